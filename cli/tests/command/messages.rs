//! Errors use the words of the command, not those of the library.

use super::tool::{Run, Text, bare, luagate, waits, words};
use crate::support::Server;
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
            ("try -n 1 full -- true", 75, "or wait in line with `luagate run`"),
            ("run --max-waiting 1 -n 1 full -- true", 75, "or raise --max-waiting"),
            ("run --try -p 9 -n 5 a -- true", 64, "or raise the limit with `luagate resize`"),
            ("run --try -n stored a -- true", 64, "or store one with `luagate resize --create`"),
            ("run --head-start 2d a -- true", 64, "--head-start: "),
            ("run --try a b -- true", 64, "NAME: different groups. Accepted: names of one group"),
            ("run a{b -- true", 64, "NAME: \"a{b\" contains a brace"),
            ("latch nightly -n 2 wait -w 50ms", 75, "Run the command again, or raise --wait"),
            ("latch nightly -n 2 wait -w 0", 64, "--wait: got 0"),
            ("ls --prefix a/b", 64, "--prefix: "),
            ("ls --url redis://", 64, "the URL of the server: "),
            ("inspect a{b", 64, "contains a brace"),
        ] {
            let ended = luagate(&server).args(words(arguments)).done();
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
