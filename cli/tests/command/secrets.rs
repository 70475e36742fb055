//! Passwords in URLs: no message, no list of processes and no file shows them.

use super::terminal::Terminal;
use super::tool::{Run, Shared, Text, bare, words};
use crate::own;
use crate::support::{Server, eventually, leftovers};
use std::path::Path;
use std::process::{Output, Stdio};

const SECRET: &str = "hunter2";

pub fn shows(output: &Output) -> bool {
    [&output.stdout, &output.stderr].iter().any(|text| String::from_utf8_lossy(text).contains(SECRET))
}

/// Every subcommand that uses the server.
pub const CALLS: [&str; 14] = [
    "run --wait 1s a -- true",
    "try a -- true",
    "acquire --wait 1s a",
    "release a id",
    "refresh a id",
    "ls",
    "inspect a",
    "top --once",
    "revoke a id -y",
    "resize a 5",
    "latch a show",
    "doctor",
    "export --once",
    "complete 2 -- luagate inspect",
];

#[test]
fn no_message_shows_the_password_of_a_url() {
    let server = own!(Server::private_tcp(&["--requirepass", "another"]));
    let urls = [
        server.url.replace("//", "//:hunter2@"),
        "redis://user:hunter2@127.0.0.1:1/".to_owned(),
        "unix:///no/such/socket?user=me&pass=hunter2".to_owned(),
        "unix:///no/such/socket?user=a@b&pass=hunter2".to_owned(),
        "unix:///no/such/socket?pass=a@hunter2".to_owned(),
        "redis://127.0.0.1:1?user=me&password=hunter2".to_owned(),
        "redis://127.0.0.1:1?timeout=5&password=hunter2".to_owned(),
        "redis://127.0.0.1:1?password=1&hunter2=1".to_owned(),
        "redis://user:1?hunter2@host/".to_owned(),
        "redis+cluster://user:hunter2@127.0.0.1:1,127.0.0.1:2".to_owned(),
        "redis+sentinel://user:hunter2@127.0.0.1:1/master".to_owned(),
        "rediss://:hunter2@127.0.0.1:1/".to_owned(),
        "http://user:hunter2@host/".to_owned(),
    ];
    std::thread::scope(|scope| {
        for url in &urls {
            scope.spawn(move || {
                for call in CALLS {
                    let from_variable = bare().args(words(call)).env("LUAGATE_URL", url).done();
                    let from_option = bare().args(["--url", url]).args(words(call)).done();
                    for ended in [from_variable, from_option] {
                        assert!(!shows(&ended), "{url} {call}: {ended:?}");
                        let fails = !call.starts_with("complete");
                        assert!(!fails || !ended.status.success(), "{url} {call}: {ended:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn an_error_about_the_arguments_shows_no_password_and_no_escape() {
    for arguments in [
        &["doctor", "redis://:hunter2@host/"][..],
        &["ls", "--ulr", "redis://:hunter2@host/"],
        &["ls", "--ulr=redis://:hunter2@host/"],
        &["inspect", "a", "--most=redis://:hunter2@host/"],
        &["redis://:hunter2@host/"],
        &["unix:///socket?pass=hunter2"],
        &["redis://host?password=hunter2"],
        &["run", "-n", "redis://:hunter2@host/", "a", "--", "true"],
        &["inspect", "a", "b\u{1b}]0;hunter\u{7}\u{202e}"],
    ] {
        let ended = bare().args(arguments).done();
        assert_eq!(ended.status.code(), Some(64), "{arguments:?}: {ended:?}");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(!shows(&ended) && !text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {text}");
        assert!(text.starts_with("error: "), "{arguments:?}: {text}");
    }
}

/// The password of the tests that list processes: other tests run at the same time.
const LISTED: &str = "correct-horse";

/// The arguments of all processes of these tests that have this word among them.
fn listed(word: &str) -> Vec<String> {
    let mark = format!("{}={}", leftovers::MARK, leftovers::mark());
    let read = |process: &Path, file: &str| {
        let bytes = std::fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let own = processes.filter(|process| read(process, "environ").contains(&mark));
    let listed = own.map(|process| read(&process, "cmdline"));
    // A server of these tests has its password among its arguments until it has started.
    listed.filter(|arguments| arguments.contains(word) && !arguments.contains("--requirepass")).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_of_the_command_shows_the_password_in_its_arguments() {
    let server = own!(Server::private_tcp(&["--requirepass", LISTED]));
    let url = server.url.replace("//", &format!("//:{LISTED}@"));
    let shared = Shared::new();
    let name = format!("kept{}", std::process::id());
    let mut acquire = bare();
    let acquired =
        acquire.args(["--url", &url, "acquire", &name, "--pid"]).arg(std::process::id().to_string()).done();
    assert!(acquired.status.success(), "{acquired:?}");
    let mut run = bare();
    run.args([
        "--url",
        &url,
        "run",
        "ran",
        "--",
        "sh",
        "-c",
        "env >\"$0.new\"; mv \"$0.new\" \"$0\"; read line",
    ]);
    let run = run.arg(shared.path("environment")).stdin(Stdio::piped()).started();
    let environment = shared.text("environment");
    // The variables of the user stay; the one that hides the URL does not.
    assert!(environment.contains("LUAGATE_HELD=") && !environment.contains(LISTED), "{environment}");
    for (word, count) in [("guard", 1), (&*name, 1), ("run", 1), (LISTED, 0)] {
        let found = listed(word);
        assert!(found.len() >= count && (count > 0 || found.is_empty()), "{word}: {found:?}");
    }
    let words = String::from_utf8_lossy(&acquired.stdout).into_owned();
    let mut release = bare();
    assert!(
        release
            .env("LUAGATE_URL", &url)
            .arg("release")
            .args(words.split_whitespace())
            .done()
            .status
            .success()
    );
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}

#[test]
fn the_command_leaves_no_file_and_no_socket() {
    let server = own!(Server::private_tcp(&["--requirepass", LISTED]));
    let url = server.url.replace("//", &format!("//:{LISTED}@"));
    let folder = tempfile::tempdir().unwrap();
    for call in CALLS.into_iter().chain(["completions bash", "run -w 1s a -- sh -c 'kill -9 $PPID'"]) {
        let mut command = bare();
        command.args(words(call)).env("LUAGATE_URL", &url).current_dir(folder.path());
        for variable in
            ["HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]
        {
            command.env(variable, folder.path());
        }
        command.done();
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{call}: {left:?}");
    }
    let mut terminal = Terminal::new(10, 80);
    let mut top = terminal.start(&server, env!("CARGO_BIN_EXE_luagate"), &["--url", &url, "top"]);
    terminal.shows("the table", |text| text.contains("NAME"));
    assert!(listed(LISTED).is_empty());
    terminal.type_in("q");
    eventually("the end", || top.try_wait().unwrap());
}
