//! Errors use the words of the command, not those of the library.

use super::tool::{Run, Text, bare, luagate, waits, words};
use crate::support::{Server, eventually};
use luagate::Permit;

/// Names that only a program can use.
const LIBRARY: [&str; 14] = [
    "`acquire",
    "`try_acquire",
    "`max_waiting",
    "max_waiting:",
    "head_start:",
    "at_least:",
    "root_certificates",
    "client_certificate",
    "`resize`",
    "`count`",
    "guide::",
    "Lease::",
    " gate",
    "handle",
];

#[test]
fn an_error_names_the_options() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.semaphore("full", 1).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.semaphore("full", 1).acquire().map(Permit::release));
        waits(&gate.semaphore("full", 1), 1);
        for (arguments, status, expected) in [
            ("run -w 50ms -n 1 full -- true", 75, "Run the command again, or raise --wait"),
            ("run -w 1ms -n 1 full -- true", 75, "Run the command again, or raise --wait"),
            ("run -w 1ms -n 1 full b -- true", 75, "raise --wait"),
            ("try -n 1 full -- true", 75, "or wait in line with `luagate run`"),
            ("run --max-waiting 1 -n 1 full -- true", 75, "or raise --max-waiting"),
            ("run --try -p 9 -n 5 a -- true", 64, "or raise the limit with `luagate resize`"),
            ("run --try -n stored a -- true", 64, "or store one with `luagate resize --create`"),
            ("run --head-start 2d a -- true", 64, "--head-start: "),
            ("run --try a b -- true", 64, "NAME: different groups. Accepted: names of one group"),
            ("try a b -- true", 64, "For any other names, wait with `luagate run`"),
            ("try -w 5 a -- true", 64, "try: it does not wait. Accepted: `luagate run` with --wait"),
            ("try --max-waiting 5 a -- true", 64, "`luagate run` with --max-waiting"),
            ("run a{b -- true", 64, "NAME: \"a{b\" contains a brace"),
            ("latch nightly -n 2 wait -w 50ms", 75, "Run the command again, or raise --wait"),
            ("latch nightly -n 2 wait -w 0", 75, "Run the command again, or raise --wait"),
            ("ls --prefix a/b", 64, "--prefix: "),
            ("ls --url redis://", 64, "the URL of the server: "),
            ("inspect a{b", 64, "contains a brace"),
        ] {
            // On a busy machine a wait of 1 ms can end before the server has answered. Then its outcome is
            // unknown.
            let ended = eventually("an answer in time", || {
                let ended = luagate(&server).args(words(arguments)).done();
                (!arguments.contains("-w 1ms") || ended.code() != 69).then_some(ended)
            });
            assert_eq!(ended.code(), status, "{arguments}: {ended:?}");
            assert!(ended.err().contains(expected), "{arguments}: {ended:?}");
            let word = LIBRARY.iter().find(|word| ended.err().contains(**word));
            assert_eq!(word, None, "{arguments}: {ended:?}");
        }
        held.release().unwrap();
        waiter.join().unwrap().unwrap().unwrap();
    });
}

#[test]
fn an_error_of_tls_names_the_options() {
    let shared = super::tool::Shared::new();
    let file = shared.path("empty");
    std::fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    for (options, expected) in [
        (vec!["--ca", &*file], "luagate: --ca: no certificate found"),
        (vec!["--cert", &*file, "--key", &*file], "luagate: --cert and --key: "),
    ] {
        let ended = bare().env("LUAGATE_URL", "rediss://127.0.0.1:1/").arg("ls").args(options).done();
        assert_eq!(ended.code(), 64, "{ended:?}");
        assert!(ended.err().starts_with(expected), "{ended:?}");
    }
}

#[test]
fn a_name_that_is_not_valid_is_a_wrong_argument_and_not_an_unreadable_name() {
    let server = Server::any();
    let ended = luagate(&server).args(["inspect", "a b"]).done();
    assert_eq!(ended.code(), 64, "{ended:?}");
    assert!(ended.err().starts_with("luagate: NAME: \"a b\" contains"), "{ended:?}");
}

/// A command with its own namespaces, where the system allows it: `sh -c SCRIPT LUAGATE`.
fn apart(server: &Server, options: &str, script: &str) -> Option<std::process::Output> {
    let unshare = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(words(options)).args(["sh", "-c", script, env!("CARGO_BIN_EXE_luagate")]);
        command.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix).done()
    };
    unshare("true").status.success().then(|| unshare(script))
}

#[test]
fn a_process_that_has_joined_a_container_is_told_to_pass_a_process() {
    let server = Server::any();
    // The parent of what `nsenter` starts is outside.
    let join = "unshare --fork --pid --kill-child sleep 60 & outer=$!
        while [ -z \"$first\" ] && kill -0 $outer; do first=$(cat /proc/$outer/task/$outer/children); done
        nsenter --target $first --pid \"$0\" acquire a; status=$?; kill -KILL $outer; exit $status";
    let Some(ended) = apart(&server, "--fork --pid --mount-proc", join) else { return };
    assert_eq!(ended.code(), 64, "{ended:?}");
    assert!(ended.err().contains("acquire: its parent is outside of this container"), "{ended:?}");
    assert!(ended.err().contains("Accepted: --pid PID"), "{ended:?}");
}

#[test]
fn a_missing_proc_is_named() {
    let server = Server::any();
    for arguments in ["run a -- true", "try a -- true", "acquire a"] {
        let script = format!("mount -t tmpfs none /proc && exec \"$0\" {arguments}");
        let Some(ended) = apart(&server, "--mount", &script) else { return };
        assert_eq!(ended.code(), 126, "{arguments}: {ended:?}");
        assert!(ended.err().contains("/proc is missing"), "{arguments}: {ended:?}");
    }
}

#[test]
fn after_two_dashes_a_name_and_an_id_may_begin_with_a_dash() {
    let server = Server::any();
    let printed = luagate(&server).args(["acquire", "-q", "--label=-l", "--pid", "1", "--", "-a"]).done();
    assert_eq!(printed.code(), 0, "{printed:?}");
    let ended = luagate(&server).args(["release", "--"]).args(words(&printed.out())).done();
    assert_eq!(ended.code(), 0, "{ended:?}");
}
