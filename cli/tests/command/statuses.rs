//! Every exit status of `luagate run`.

use super::tool::{Run, Shared, Text, bare, luagate, words};
use crate::support::{Server, eventually};

#[test]
fn the_status_is_that_of_the_command() {
    let server = Server::any();
    for status in [0, 1, 3, 75, 255] {
        let ended = luagate(&server).args(words("run a -- sh -c")).arg(format!("exit {status}")).done();
        assert_eq!(ended.code(), status, "{ended:?}");
        assert_eq!(ended.out() + &ended.err(), "");
    }
}

#[test]
fn a_command_that_a_signal_has_ended_gives_128_and_its_number() {
    let server = Server::any();
    for (signal, status) in [("TERM", 143), ("KILL", 137), ("USR1", 138)] {
        let ended = luagate(&server).args(words("run a -- sh -c")).arg(format!("kill -{signal} $$")).done();
        assert_eq!(ended.code(), status, "{ended:?}");
    }
}

#[test]
fn status_64_for_arguments_that_are_not_valid() {
    let server = Server::any();
    for arguments in [
        "",
        "walk",
        "run",
        "run a",
        "run -- true",
        "run -n 0 a -- true",
        "run -n many a -- true",
        "run -n 5 -p 6 a -- true",
        "run -p 0 a -- true",
        "run --shared -n 5 a -- true",
        "run --shared --exclusive a -- true",
        "run a b -n 5 -- true",
        "run -w soon a -- true",
        "run --lease 0.5s a -- true",
        "run --lease 10s --grace 6s a -- true",
        "run -n stored a -- true",
        "run a{b -- true",
        "run --label a\u{1}b a -- true",
        "run --prefix a/b a -- true",
        "try -w 1s --try a -- true",
        "acquire",
        "acquire a b",
        "acquire --lease 0.5s a",
        "acquire --no-keeper a",
        "acquire --no-keeper --lease 5s --at-most 2s a",
        "acquire --pid 0 a",
        "acquire --pid 2147483647 a",
        "acquire -n 5 -p 6 a",
        "release a",
        "refresh a",
        "ls --sort size",
        "revoke a",
        "resize a",
        "resize a 0",
        "latch a",
        "top --json",
        "export --listen nowhere",
    ] {
        let ended = luagate(&server).args(words(arguments)).done();
        assert_eq!(ended.code(), 64, "{arguments}: {ended:?}");
        assert_eq!(ended.out(), "", "{arguments}");
        assert!(!ended.err().is_empty(), "{arguments}");
    }
}

#[test]
fn status_69_if_the_server_cannot_be_used() {
    for command in [
        "run a -- true",
        "try a -- true",
        "acquire a",
        "release a b",
        "refresh a b",
        "ls",
        "inspect a",
        "top --once",
        "resize a 5",
        "latch a show",
        "doctor",
        "export --once",
    ] {
        let ended = bare().env("LUAGATE_URL", "redis://127.0.0.1:1/").args(words(command)).done();
        assert_eq!(ended.code(), 69, "{command}: {ended:?}");
        assert!(ended.err().contains("127.0.0.1:1"), "{command}: {ended:?}");
    }
}

#[test]
fn status_75_or_the_chosen_one_if_no_permit_was_obtained() {
    let server = Server::any();
    let held = server.gate().semaphore("a", 1).acquire().unwrap();
    for (arguments, status) in [
        ("run --try -n 1 a -- true", 75),
        ("try -n 1 a -- true", 75),
        ("run -w 0 -n 1 a -- true", 75),
        ("run -w 50ms -n 1 a -- true", 75),
        ("try -E 9 -n 1 a -- true", 9),
        ("run -w 0.05 --conflict-exit-code 0 -n 1 a -- true", 0),
    ] {
        let ended = luagate(&server).args(words(arguments)).done();
        assert_eq!(ended.code(), status, "{arguments}: {ended:?}");
        assert!(ended.err().starts_with("luagate: "), "{arguments}: {ended:?}");
        let ended =
            luagate(&server).args(words(arguments).take(1)).arg("-q").args(words(arguments).skip(1)).done();
        assert_eq!((ended.code(), ended.err()), (status, String::new()), "{arguments}");
    }
    held.release().unwrap();
    assert_eq!(luagate(&server).args(words("try -n 1 a -- true")).done().code(), 0);
}

#[test]
fn status_126_or_127_if_the_command_cannot_be_run_and_nothing_stays_held() {
    let server = Server::any();
    let shared = Shared::new();
    std::fs::write(shared.path("text"), "no program").unwrap();
    for (command, status) in
        [(shared.path("text"), 126), (shared.path("missing"), 127), ("no-such-command".into(), 127)]
    {
        let ended = luagate(&server).args(words("run a --")).arg(&command).done();
        assert_eq!(ended.code(), status, "{ended:?}");
        assert!(ended.err().contains(&*command.to_string_lossy()), "{ended:?}");
        assert!(!server.gate().mutex("a").is_locked().unwrap());
    }
}

#[test]
fn status_79_if_the_permit_is_revoked() {
    let server = Server::any();
    let shared = Shared::new();
    let mut run = luagate(&server);
    run.args(words("run --lease 3s a -- sh -c"))
        .arg("trap '' TERM; echo $$ >\"$0\"; while :; do sleep 0.01; done");
    let run = run.arg(shared.path("pid")).started();
    shared.text("pid");
    let mutex = server.gate().mutex("a");
    let holder = eventually("a holder", || mutex.inspect().unwrap().holders.pop());
    mutex.revoke(&holder.id).unwrap();
    let ended = run.output();
    assert_eq!(ended.code(), 79, "{ended:?}");
    assert_eq!(ended.err().lines().count(), 1, "{ended:?}");
    assert!(ended.err().contains("the permit of a was lost") && ended.err().contains("revoked"), "{ended:?}");
}
