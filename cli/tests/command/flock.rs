//! Lines of scripts with `flock(1)` and with `luagate run` behave the same.

use super::tool::{Run, Shared, Text, luagate, words};
use crate::support::Server;
use std::process::{Command, Output};

/// The same script under both locks.
fn both(server: &Server, flock: &str, luagate_run: &str, script: &str) -> [Output; 2] {
    let shared = Shared::new();
    let by_flock =
        Command::new("flock").args(words(flock)).arg(shared.path("lock")).args(["sh", "-c", script]).done();
    let by_luagate = luagate(server)
        .arg("run")
        .args(words(luagate_run))
        .args(words("flocked -- sh -c"))
        .arg(script)
        .done();
    [by_flock, by_luagate]
}

#[test]
fn status_and_output_of_a_command_are_the_same() {
    let server = Server::any();
    for script in ["echo out; echo err >&2; exit 3", "exit 0", "kill -TERM $$", "exit 255"] {
        let [flock, luagate] = both(&server, "", "", script);
        assert_eq!(
            (flock.code(), flock.out(), flock.err()),
            (luagate.code(), luagate.out(), luagate.err()),
            "{script}"
        );
    }
}

#[test]
fn a_lock_in_use_gives_the_chosen_status() {
    let server = Server::any();
    let shared = Shared::new();
    let lock = shared.path("lock");
    let mut by_flock = Command::new("flock")
        .arg(&lock)
        .args(["sh", "-c", "echo >$0; read line"])
        .arg(shared.path("flocked"))
        .stdin(std::process::Stdio::piped())
        .started();
    let mut by_luagate = luagate(&server)
        .args(words("run flocked -- sh -c"))
        .arg("echo >$0; read line")
        .arg(shared.path("run"))
        .stdin(std::process::Stdio::piped())
        .started();
    shared.text("flocked");
    shared.text("run");
    for options in ["-n -E 9", "-w 0.1 -E 9"] {
        let flock = Command::new("flock").args(words(options)).arg(&lock).arg("true").done();
        let options = options.replace("-n", "--try");
        let luagate =
            luagate(&server).arg("run").args(words(&options)).args(words("-q flocked -- true")).done();
        assert_eq!((flock.code(), flock.err()), (luagate.code(), luagate.err()), "{options}");
        assert_eq!(luagate.code(), 9);
    }
    assert!(by_flock.is_running() && by_luagate.is_running());
}

#[test]
fn readers_share_and_writers_do_not() {
    let server = Server::any();
    let nested = |outer: &str, inner: &str| {
        let shared = Shared::new();
        let lock = shared.path("lock");
        let script = format!("flock {inner} -n \"$0\" true");
        let flock =
            Command::new("flock").arg(outer).arg(&lock).args(["sh", "-c", &script]).arg(&lock).done().code();
        let long = |option: &str| if option == "-s" { "--shared" } else { "--exclusive" };
        let script = format!("\"$0\" run {} --try -q -E 1 nested -- true", long(inner));
        let run = luagate(&server)
            .args(["run", long(outer), "nested", "--", "sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_luagate"))
            .done();
        (flock, run.code())
    };
    assert_eq!(nested("-s", "-s"), (0, 0));
    for pair in [("-s", "-x"), ("-x", "-s"), ("-x", "-x")] {
        assert_eq!(nested(pair.0, pair.1), (1, 1), "{pair:?}");
    }
}

#[test]
fn a_command_that_does_not_exist_is_told_apart() {
    let server = Server::any();
    let ended = luagate(&server).args(words("run a -- no-such-command")).done();
    let shared = Shared::new();
    let flock = Command::new("flock").arg(shared.path("lock")).arg("no-such-command").done();
    // flock(1) has the status 69 (EX_UNAVAILABLE) for it; timeout(1) and the shells 127, as luagate.
    assert_eq!((flock.code(), ended.code()), (69, 127));
}
