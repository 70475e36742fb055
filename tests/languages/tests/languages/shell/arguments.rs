//! What it cannot take, and how it says so.

use super::{BAD_USAGE, Shell, Test, said, script};
use libtest_mimic::Failed;

pub const TESTS: [Test; 4] = [
    ("says_which_number_it_cannot_take", numbers),
    ("says_which_name_prefix_label_or_kind_it_cannot_take", names),
    ("says_which_option_it_cannot_take", options),
    ("says_how_it_is_used", usage),
];

/// A server that nothing listens at: what cannot be is said without asking one.
const NOBODY: &str = "redis://127.0.0.1:1/";

/// Runs it with one variable set; checks that it only says this, with the status of bad usage.
#[track_caller]
fn is_refused(shell: Shell, arguments: [&str; 3], variable: (&str, &str), expected: &str) {
    let [name, limit, seconds] = arguments;
    let mut command = script(shell, NOBODY, &[name, limit, seconds, "echo", "inside"]);
    let output = command.env(variable.0, variable.1).output().unwrap();
    let expected = format!("with-permit: {expected}\n");
    assert_eq!((&*output.stdout, said(&output)), (&b""[..], expected));
    assert_eq!(output.status.code(), Some(BAD_USAGE));
}

fn numbers(shell: Shell) -> Result<(), Failed> {
    const NONE: (&str, &str) = ("UNUSED", "");
    let takes = "takes 0 to 9999999 seconds, in decimal digits, not";
    for seconds in ["1m", "-1", "", "10000000", "99999999999999999999"] {
        let expected = format!("SECONDS: {takes} '{seconds}'");
        is_refused(shell, ["batch", "2", seconds], NONE, &expected);
    }
    let takes = "takes 2 to 9999999 seconds, in decimal digits, not";
    for lease in ["0", "1", "030", "lots", "10000000"] {
        let expected = format!("LUAGATE_LEASE: {takes} '{lease}'");
        let variable = ("LUAGATE_LEASE", lease);
        is_refused(shell, ["batch", "2", "0"], variable, &expected);
    }
    for limit in ["-1", "all", "2147483648"] {
        let expected = format!("LIMIT: takes 0 to 2147483647, in decimal digits, not '{limit}'");
        is_refused(shell, ["batch", limit, "0"], NONE, &expected);
    }
    let variable = ("LUAGATE_KIND", "mutex");
    let expected = "LIMIT: takes 1 for a mutex, not '2'";
    is_refused(shell, ["batch", "2", "0"], variable, expected);
    Ok(())
}

fn names(shell: Shell) -> Result<(), Failed> {
    let long = "x".repeat(201);
    let usual = ["batch", "2", "0"];
    for name in ["", "a b", "a\tb", "a\u{1}", "a{b", "}", "{}", "{}:a", "{a}:", "{a}", "{a}:{b}", &long] {
        let expected = format!(
            "NAME: takes 1 to 200 bytes without white space, control characters and braces, or {{GROUP}}:NAME, not '{name}'"
        );
        is_refused(shell, [name, "2", "0"], ("UNUSED", ""), &expected);
    }
    for prefix in ["", "a b", "{a}", "é", "a/b", &long[..65]] {
        let expected =
            format!("LUAGATE_PREFIX: takes 1 to 64 of letters, digits, '.', '_', '-' and ':', not '{prefix}'");
        is_refused(shell, usual, ("LUAGATE_PREFIX", prefix), &expected);
    }
    for label in ["", "a b", &long[..164]] {
        let expected =
            format!("LUAGATE_LABEL: takes 1 to 163 bytes without white space and control characters, not '{label}'");
        is_refused(shell, usual, ("LUAGATE_LABEL", label), &expected);
    }
    let expected = "LUAGATE_KIND: takes semaphore or mutex, not 'rwlock'";
    is_refused(shell, usual, ("LUAGATE_KIND", "rwlock"), expected);
    let expected = "REDIS_URL: takes redis://, rediss:// or unix:///";
    is_refused(shell, usual, ("REDIS_URL", "localhost:6379"), expected);
    Ok(())
}

fn options(shell: Shell) -> Result<(), Failed> {
    let many = (0..64).map(|number| format!("n{number}:1")).collect::<Vec<_>>();
    let many = many.iter().flat_map(|and| ["--and", and]).collect::<Vec<_>>();
    let cases: [(&[&str], &str); 8] = [
        (&["--max-waiting", "-1"], "--max-waiting: takes 0 to 2147483647, in decimal digits, not '-1'"),
        (&["--at-least", "1.5"], "--at-least: takes 0 to 9999999 seconds, in decimal digits, not '1.5'"),
        (&["--and", "total"], "--and: takes NAME:LIMIT, not 'total'"),
        (&["--and", "total:all"], "LIMIT: takes 0 to 2147483647, in decimal digits, not 'all'"),
        (&["--and", "batch:3"], "--and: takes each name once, got 'batch' twice"),
        (&["--and", "total:3"], "LIMIT: takes 1 for a mutex, not '3'"),
        (&["--lease", "3"], "takes the options --and, --max-waiting and --at-least, not '--lease'"),
        (&many, "--and: takes 1 to 64 semaphores together, not more"),
    ];
    for (options, expected) in cases {
        let arguments = [options, &["batch", "1", "0", "echo", "inside"]].concat();
        let mut command = script(shell, NOBODY, &arguments);
        if expected.contains("mutex") {
            command.env("LUAGATE_KIND", "mutex");
        }
        let output = command.output()?;
        assert_eq!((&*output.stdout, said(&output)), (&b""[..], format!("with-permit: {expected}\n")));
        assert_eq!(output.status.code(), Some(BAD_USAGE));
    }
    Ok(())
}

fn usage(shell: Shell) -> Result<(), Failed> {
    let expected = "usage: with-permit [OPTION]... NAME LIMIT SECONDS COMMAND [ARGUMENT]...\n";
    for arguments in [&["batch", "2", "0"][..], &["--at-least", "2", "batch", "2", "0"], &["--and"], &[]] {
        let output = script(shell, NOBODY, arguments).output()?;
        assert_eq!(said(&output), expected);
        assert_eq!(output.status.code(), Some(BAD_USAGE));
    }
    Ok(())
}
