//! Invalid arguments and variables.

use super::{INVALID, Shell, Test, script, stderr};
use libtest_mimic::Failed;

pub const TESTS: [Test; 4] = [
    ("an_invalid_number_is_refused", numbers),
    ("an_invalid_name_prefix_label_kind_or_url_is_refused", names),
    ("an_invalid_option_is_refused", options),
    ("missing_arguments_print_the_usage", usage),
];

/// No server listens here: invalid arguments are refused without a call.
const NO_SERVER: &str = "redis://127.0.0.1:1/";

/// Runs it with one variable. It prints only this error.
#[track_caller]
fn is_refused(shell: Shell, arguments: [&str; 3], variable: (&str, &str), expected: &str) {
    let [name, limit, seconds] = arguments;
    let mut command = script(shell, NO_SERVER, &[name, limit, seconds, "echo", "inside"]);
    let output = command.env(variable.0, variable.1).output().unwrap();
    let expected = format!("with-permit: {expected}\n");
    assert_eq!((&*output.stdout, stderr(&output)), (&b""[..], expected));
    assert_eq!(output.status.code(), Some(INVALID));
}

fn numbers(shell: Shell) -> Result<(), Failed> {
    const NONE: (&str, &str) = ("UNUSED", "");
    for seconds in ["1m", "-1", "", "10000000", "99999999999999999999"] {
        let expected = format!("SECONDS: got '{seconds}'. Accepted: 0 to 9999999 seconds, in decimal digits");
        is_refused(shell, ["batch", "2", seconds], NONE, &expected);
    }
    for lease in ["0", "1", "030", "lots", "10000000"] {
        let expected = format!("LUAGATE_LEASE: got '{lease}'. Accepted: 2 to 9999999 seconds, in decimal digits");
        let variable = ("LUAGATE_LEASE", lease);
        is_refused(shell, ["batch", "2", "0"], variable, &expected);
    }
    for limit in ["-1", "all", "2147483648"] {
        let expected = format!("LIMIT: got '{limit}'. Accepted: 0 to 2147483647, in decimal digits");
        is_refused(shell, ["batch", limit, "0"], NONE, &expected);
    }
    let variable = ("LUAGATE_KIND", "mutex");
    let expected = "LIMIT: got '2'. Accepted for a mutex: 1";
    is_refused(shell, ["batch", "2", "0"], variable, expected);
    Ok(())
}

fn names(shell: Shell) -> Result<(), Failed> {
    let long = "x".repeat(201);
    let usual = ["batch", "2", "0"];
    for name in ["", "a b", "a\tb", "a\u{1}", "a{b", "}", "{}", "{}:a", "{a}:", "{a}", "{a}:{b}", &long] {
        let expected = format!(
            "NAME: got '{name}'. Accepted: 1 to 200 bytes without white space, control characters and braces, or {{GROUP}}:NAME"
        );
        is_refused(shell, [name, "2", "0"], ("UNUSED", ""), &expected);
    }
    for prefix in ["", "a b", "{a}", "é", "a/b", &long[..65]] {
        let accepted = "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'";
        let expected = format!("LUAGATE_PREFIX: got '{prefix}'. Accepted: {accepted}");
        is_refused(shell, usual, ("LUAGATE_PREFIX", prefix), &expected);
    }
    for label in ["", "a b", &long[..164]] {
        let accepted = "1 to 163 bytes without white space and control characters";
        let expected = format!("LUAGATE_LABEL: got '{label}'. Accepted: {accepted}");
        is_refused(shell, usual, ("LUAGATE_LABEL", label), &expected);
    }
    let expected = "LUAGATE_KIND: got 'rwlock'. Accepted: semaphore or mutex";
    is_refused(shell, usual, ("LUAGATE_KIND", "rwlock"), expected);
    let expected = "REDIS_URL: not a valid URL. Accepted: redis://HOST, rediss://HOST or unix:///PATH";
    is_refused(shell, usual, ("REDIS_URL", "localhost:6379"), expected);
    Ok(())
}

fn options(shell: Shell) -> Result<(), Failed> {
    let many = (0..64).map(|number| format!("n{number}:1")).collect::<Vec<_>>();
    let many = many.iter().flat_map(|and| ["--and", and]).collect::<Vec<_>>();
    let cases: [(&[&str], &str); 9] = [
        (&["--max-waiting", "-1"], "--max-waiting: got '-1'. Accepted: 0 to 2147483647, in decimal digits"),
        (&["--at-least", "1.5"], "--at-least: got '1.5'. Accepted: 0 to 9999999 seconds, in decimal digits"),
        (&["--head-start", "86401"], "--head-start: got '86401'. Accepted: 0 to 86400 seconds, in decimal digits"),
        (&["--and", "total"], "--and: got 'total'. Accepted: NAME:LIMIT"),
        (&["--and", "total:all"], "LIMIT: got 'all'. Accepted: 0 to 2147483647, in decimal digits"),
        (&["--and", "batch:3"], "--and: got 'batch' twice. Accepted: each name once"),
        (&["--and", "total:3"], "LIMIT: got '3'. Accepted for a mutex: 1"),
        (&["--lease", "3"], "got the option '--lease'. Accepted: --and, --max-waiting, --at-least, --head-start"),
        (&many, "--and: got 65 semaphores. Accepted: 1 to 64 with NAME"),
    ];
    for (options, expected) in cases {
        let arguments = [options, &["batch", "1", "0", "echo", "inside"]].concat();
        let mut command = script(shell, NO_SERVER, &arguments);
        if expected.contains("mutex") {
            command.env("LUAGATE_KIND", "mutex");
        }
        let output = command.output()?;
        assert_eq!((&*output.stdout, stderr(&output)), (&b""[..], format!("with-permit: {expected}\n")));
        assert_eq!(output.status.code(), Some(INVALID));
    }
    Ok(())
}

fn usage(shell: Shell) -> Result<(), Failed> {
    let expected = "usage: with-permit [OPTION]... NAME LIMIT SECONDS COMMAND [ARGUMENT]...\n";
    for arguments in [&["batch", "2", "0"][..], &["--at-least", "2", "batch", "2", "0"], &["--and"], &[]] {
        let output = script(shell, NO_SERVER, arguments).output()?;
        assert_eq!(stderr(&output), expected);
        assert_eq!(output.status.code(), Some(INVALID));
    }
    Ok(())
}
