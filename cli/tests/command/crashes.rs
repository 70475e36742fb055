//! The guard: what happens when `luagate run` itself dies.

use super::signals::{exists, mutex, script};
use super::tool::{Run, Running, Shared, Text, luagate, signal_to, waits, words};
use crate::support::{Server, eventually, pause};
use std::process::Command;
use std::time::{Duration, Instant};

/// The process id of the guard of this `luagate run`, apart from `other`.
fn guard(run: &Running, other: Option<u32>) -> u32 {
    eventually("the guard", || {
        let children =
            Command::new("ps").args(["-o", "pid=,comm=", "--ppid", &run.id().to_string()]).output().unwrap();
        let children = children.out();
        let guards = children
            .lines()
            .filter_map(|line| line.trim().split_once(' ').filter(|line| line.1 == "permit-guard"));
        guards.filter_map(|(id, _)| id.parse().ok()).find(|id| Some(*id) != other)
    })
}

/// Until the next caller gets the mutex. By then nothing of the command is left.
fn next(server: &Server, within: Duration, left: &[&str]) {
    let begun = Instant::now();
    let next = mutex(server).try_lock_for(2 * within).unwrap();
    assert!(left.iter().all(|process| !exists(process)), "the command goes on");
    assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
    next.release().unwrap();
}

const WORK: &str = "sh -c 'echo $$ >$0/child; while :; do sleep 0.01; done' $0 & echo $$ >$0/pid; wait";

#[test]
fn after_a_crash_the_next_holder_comes_once_nothing_of_the_command_is_left() {
    let server = Server::any();
    for (options, text) in [
        ("--lease 60s", WORK.to_owned()),
        ("--lease 60s --foreground", WORK.to_owned()),
        ("--lease 60s", WORK.replace("sh -c", "setsid sh -c")),
    ] {
        let shared = Shared::new();
        let run = script(&server, &shared, options, &text);
        let left = [shared.text("pid"), shared.text("child")];
        run.signal("KILL");
        next(&server, Duration::from_secs(10), &[&left[0], &left[1]]);
    }
}

#[test]
fn after_a_crash_a_command_that_ignores_term_has_its_time_and_then_gets_kill() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(&server, &shared, "--lease 60s --grace 1s", &format!("trap '' TERM; {WORK}"));
    let left = [shared.text("pid"), shared.text("child")];
    run.signal("KILL");
    next(&server, Duration::from_secs(10), &[&left[0], &left[1]]);
}

#[test]
fn after_a_crash_during_the_wait_the_place_in_line_is_free_at_once() {
    let server = Server::any();
    let held = mutex(&server).lock().unwrap();
    let run = luagate(&server).args(words("run -q a -- true")).started();
    waits(mutex(&server).to_lock().0, 1);
    run.signal("KILL");
    waits(mutex(&server).to_lock().0, 0);
    held.release().unwrap();
}

#[test]
fn the_guard_survives_the_signals_that_end_programs_and_is_started_again_if_it_dies() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(&server, &shared, "--lease 60s", WORK);
    let left = [shared.text("pid"), shared.text("child")];
    let first = guard(&run, None);
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        assert!(signal_to(first, signal));
    }
    assert!(exists(&first.to_string()));
    assert!(signal_to(first, "KILL"));
    guard(&run, Some(first));
    assert!(exists(&left[0]), "the command goes on");
    run.signal("KILL");
    next(&server, Duration::from_secs(10), &[&left[0], &left[1]]);
    let said = run.output().err();
    assert!(said.contains("the guard process has ended. Another one is started"), "{said}");
}

#[test]
fn the_guard_is_there_although_the_program_was_replaced_during_the_wait() {
    let server = Server::any();
    let shared = Shared::new();
    let program = shared.path("luagate");
    let copy = |to: &str| {
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_luagate")).arg(shared.path(to)).status();
        assert!(copied.unwrap().success());
    };
    copy("luagate");
    let held = mutex(&server).lock().unwrap();
    let mut run = Command::new(&program);
    run.env("LUAGATE_URL", &server.url).env("LUAGATE_PREFIX", &server.prefix);
    run.env(crate::support::leftovers::MARK, crate::support::leftovers::mark());
    let run = run.args(words("run -q --lease 60s a -- sh -c")).arg(WORK).arg(shared.path("")).started();
    waits(mutex(&server).to_lock().0, 1);
    copy("new");
    std::fs::rename(shared.path("new"), &program).unwrap();
    std::fs::remove_file(&program).unwrap();
    held.release().unwrap();
    let left = [shared.text("pid"), shared.text("child")];
    let first = guard(&run, None);
    assert!(signal_to(first, "KILL"));
    guard(&run, Some(first));
    run.signal("KILL");
    next(&server, Duration::from_secs(10), &[&left[0], &left[1]]);
}

#[test]
fn if_luagate_and_its_guard_are_killed_the_command_gets_term() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(
        &server,
        &shared,
        "--lease 2s",
        "trap 'echo >$0/got' TERM; echo $$ >$0/pid; while [ ! -e $0/got ]; do sleep 0.01; done",
    );
    shared.text("pid");
    // The guard is stopped first, so it can do nothing.
    let guard = guard(&run, None);
    pause(guard);
    run.signal("KILL");
    shared.text("got");
    assert!(signal_to(guard, "KILL"));
}

#[test]
fn a_stopped_guard_does_not_delay_luagate() {
    let server = Server::any();
    let shared = Shared::new();
    let run = script(&server, &shared, "--lease 2s", "echo $$ >$0/pid; read line; exit 3");
    let pid = shared.text("pid");
    let guard = guard(&run, None);
    pause(guard);
    let first = mutex(&server).inspect().unwrap().holders.pop().unwrap().fence;
    eventually("two leases are over", || {
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        (holder.fence == first && holder.age.as_secs() >= 4).then_some(())
    });
    // It has missed that the lease was renewed, and does not end the command for that.
    assert!(signal_to(guard, "CONT"));
    eventually("a third lease is over", || {
        let holder = mutex(&server).inspect().unwrap().holders.pop().unwrap();
        (holder.age.as_secs() >= 6).then_some(())
    });
    assert!(exists(&pid));
    run.signal("TERM");
    assert_eq!(run.output().code(), 143);
}
