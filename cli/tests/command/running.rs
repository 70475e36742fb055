//! The input, output and variables of a command, and its permits while it runs.

use super::tool::{Run, Shared, Text, luagate, waits, words};
use crate::support::{Server, eventually};
use luagate::Gate;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn input_and_output_are_those_of_the_command() {
    let server = Server::any();
    let mut run = luagate(&server);
    let run = run.args(words("run a -- cat")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = run.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in\0put").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.stdout, b"in\0put");
}

#[test]
fn the_command_knows_its_permit() {
    let server = Server::any();
    let print = "echo $LUAGATE_NAME; echo $LUAGATE_ID; echo $LUAGATE_FENCE; env | grep -c HIDDEN";
    let ended = luagate(&server).args(words("run --label nightly a -- sh -c")).arg(print).done();
    let out = ended.out();
    let [name, id, fence, hidden] = out.lines().collect::<Vec<_>>()[..] else { panic!("{ended:?}") };
    assert_eq!((name, hidden), ("a", "0"));
    assert!(id.starts_with("nightly@"), "{id}");
    let later = server.gate().mutex("a").lock().unwrap();
    assert!(fence.parse::<u64>().unwrap() < later.fence());
    later.release().unwrap();
}

/// In each order of the names, also if the command waits for them in another one.
#[test]
fn the_command_knows_which_permit_is_of_which_name() {
    let server = Server::any();
    for names in ["-n 2 a -n 3 b", "-n 3 b -n 2 a", "-n 2 b -n 2 a", "-n 2 x -n 2 x:1", "-n 2 x:1 -n 2 x"] {
        let shared = Shared::new();
        let mut run = luagate(&server);
        let run = run.args(words("run")).args(words(names)).args(words("-- sh -c"));
        let print = "echo \"$LUAGATE_NAME $LUAGATE_ID $LUAGATE_FENCE\" >\"$0\"; read line";
        let run = run.arg(print).arg(shared.path("permits")).stdin(Stdio::piped()).started();
        let permits = shared.text("permits");
        let [first, other, id, id_of_other, fence, fence_of_other] =
            permits.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("{permits}")
        };
        assert!(names.contains(&format!("{first} -n")) && names.ends_with(other), "{names}: {permits}");
        for (name, id, fence) in [(first, id, fence), (other, id_of_other, fence_of_other)] {
            let state = server.gate().semaphore(name, 2).inspect().unwrap();
            let holder = &state.holders[0];
            assert_eq!(
                (holder.id.as_str(), holder.fence.to_string().as_str()),
                (id, fence),
                "{names}: {name}"
            );
        }
        run.signal("TERM");
        assert_eq!(run.output().code(), 143);
    }
}

/// Looks at the server while a command runs under these arguments.
#[track_caller]
fn held(server: &Server, arguments: &str, look: impl FnOnce(&Gate)) {
    let shared = Shared::new();
    let mut run = luagate(server);
    let run = run.args(words("run")).args(words(arguments)).args(words("-- sh -c"));
    let run = run.arg("echo >\"$0\"; read line").arg(shared.path("started")).stdin(Stdio::piped()).started();
    shared.text("started");
    look(&server.gate());
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}

#[test]
fn the_permit_is_held_while_the_command_runs_and_free_afterwards() {
    let server = Server::any();
    held(&server, "-n 5 -p 2 a", |gate| {
        let state = gate.semaphore("a", 5).inspect().unwrap();
        assert_eq!((state.in_use, state.limit), (2, Some(5)));
        assert!(state.holders[0].label().unwrap().contains(':'), "host and process: {state:?}");
        assert!(state.holders[0].remaining.unwrap() > Duration::from_secs(25), "{state:?}");
    });
    assert_eq!(server.gate().semaphore("a", 5).inspect().unwrap().in_use, 0);
    held(&server, "a --lease 2s", |gate| assert!(gate.mutex("a").is_locked().unwrap()));
    held(&server, "--shared a", |gate| {
        gate.rwlock("a").try_read().unwrap().release().unwrap();
        gate.rwlock("a").try_write().unwrap_err();
    });
    held(&server, "--exclusive a", |gate| assert!(gate.rwlock("a").try_read().is_err()));
    server.gate().stored_semaphore("stored").resize(3).unwrap();
    held(&server, "-n stored -p 3 stored", |gate| {
        assert_eq!(gate.stored_semaphore("stored").available_permits().unwrap(), 0);
    });
    held(&server, "-n 2 one -n 3 -p 2 two three", |gate| {
        assert_eq!(gate.semaphore("one", 2).inspect().unwrap().in_use, 1);
        assert_eq!(gate.semaphore("two", 3).inspect().unwrap().in_use, 2);
        assert!(gate.mutex("three").is_locked().unwrap());
    });
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let server = Server::any();
    held(&server, "--lease 2s a", |gate| {
        let mutex = gate.mutex("a");
        let first = mutex.inspect().unwrap().holders.pop().unwrap();
        eventually("an age of more than two leases", || {
            let now = mutex.inspect().unwrap().holders.pop().unwrap();
            assert_eq!(now.fence, first.fence);
            (now.age > Duration::from_secs(4)).then_some(())
        });
    });
}

#[test]
fn a_full_line_is_refused_at_once() {
    let server = Server::any();
    let held = server.gate().semaphore("a", 1).acquire().unwrap();
    let waiter = luagate(&server).args(words("run -n 1 a -- true")).started();
    waits(&server.gate().semaphore("a", 1), 1);
    let ended = luagate(&server).args(words("run --max-waiting 1 -n 1 a -- true")).done();
    assert_eq!(ended.code(), 75, "{ended:?}");
    assert!(ended.err().contains("the line is full"), "{ended:?}");
    held.release().unwrap();
    assert_eq!(waiter.output().code(), 0);
}

#[test]
fn a_command_with_a_head_start_comes_before_one_that_came_earlier() {
    let server = Server::any();
    let shared = Shared::new();
    let held = server.gate().semaphore("a", 1).acquire().unwrap();
    let waiters = [("plain", "0s"), ("urgent", "1d")].map(|(name, head_start)| {
        let mut run = luagate(&server);
        let run = run.args([
            "run",
            "-n",
            "1",
            "--head-start",
            head_start,
            "a",
            "--",
            "sh",
            "-c",
            "echo $0 >>\"$1\"",
            name,
        ]);
        let waiter = run.arg(shared.path("order")).started();
        waits(&server.gate().semaphore("a", 1), if name == "plain" { 1 } else { 2 });
        waiter
    });
    held.release().unwrap();
    for waiter in waiters {
        assert_eq!(waiter.output().code(), 0);
    }
    assert_eq!(std::fs::read_to_string(shared.path("order")).unwrap(), "urgent\nplain\n");
    let ended = luagate(&server).args(words("run -n 1 --head-start 2d a -- true")).done();
    assert_eq!(ended.code(), 64, "{ended:?}");
    assert!(ended.err().contains("up to a day"), "{ended:?}");
}

#[test]
fn a_minimum_hold_outlives_the_command() {
    let server = Server::any();
    let begun = Instant::now();
    assert_eq!(luagate(&server).args(words("run -n 1 --at-least 500ms a -- true")).done().code(), 0);
    assert_eq!(luagate(&server).args(words("run -n 1 a -- true")).done().code(), 0);
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn several_names_are_acquired_together_or_not_at_all() {
    let server = Server::any();
    let held = server.gate().semaphore("b", 1).acquire().unwrap();
    let ended = luagate(&server).args(words("run -w 100ms -n 1 a -n 1 b -- true")).done();
    assert_eq!(ended.code(), 75, "{ended:?}");
    assert_eq!(server.gate().semaphore("a", 1).inspect().unwrap().in_use, 0);
    held.release().unwrap();
}

#[test]
fn a_password_is_not_in_the_process_list() {
    let server = crate::own!(Server::private_tcp(&["--requirepass", "secret-word"]));
    let shared = Shared::new();
    let url = server.url.replace("redis://", "redis://:secret-word@");
    for option in [vec!["--url".to_owned(), url.clone()], vec![format!("--url={url}")]] {
        let mut run = super::tool::bare();
        let run = run.args(["--prefix", &server.prefix, "run"]).args(option).args(words("a -- sh -c"));
        let run =
            run.arg("echo \"${LUAGATE_HIDDEN_URL-none}\" >\"$0\"; read line").arg(shared.path("started"));
        let run = run.stdin(Stdio::piped()).started();
        assert_eq!(shared.text("started"), "none\n");
        let arguments = std::fs::read(format!("/proc/{}/cmdline", run.id())).unwrap();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        assert!(arguments.contains("started") && !arguments.contains("secret-word"), "{arguments}");
        run.signal("TERM");
        assert_eq!(run.output().code(), 143);
        std::fs::remove_file(shared.path("started")).unwrap();
    }
}
