//! Processes without variables whose parents have ended: neither their parents nor their variables tell whose
//! they are.

use super::signals::{exists, mutex, script};
use super::tool::{Shared, signal_to};
use crate::support::Server;
use std::time::Duration;

/// Until the next caller gets the mutex. By then the process has ended.
fn next(server: &Server, process: &str, what: &str) {
    let next = mutex(server).try_lock_for(Duration::from_secs(30)).unwrap();
    let goes_on = exists(process);
    signal_to(process.trim().parse().unwrap(), "KILL");
    assert!(!goes_on, "{what}: the command goes on");
    next.release().unwrap();
}

#[test]
fn after_a_crash_they_are_ended_before_the_next_holder_comes() {
    let server = Server::any();
    // With the death of `luagate run` its command gets TERM and ends at once, but not its child.
    let child =
        "env -i sh -c 'trap \"sleep 20; exit\" TERM; echo $$ >$0/child; while :; do sleep 0.01; done' $0";
    for (options, child) in [("--foreground", child.to_owned()), ("", format!("setsid -w {child}"))] {
        let shared = Shared::new();
        let run = script(&server, &shared, &format!("--lease 10s {options}"), &format!("{child} & wait"));
        let process = shared.text("child");
        run.signal("KILL");
        next(&server, &process, options);
    }
}

#[test]
fn while_luagate_is_stopped_they_are_ended_before_the_next_holder_comes() {
    let server = Server::any();
    let orphan = "(env -i sh -c 'echo $$ >$0/orphan; exec sleep 60' $0 &); sleep 60";
    for (options, orphan) in [("--foreground", orphan.to_owned()), ("", orphan.replace("env", "setsid env"))]
    {
        let shared = Shared::new();
        // The guard ends them a sixteenth of the lease before its end: a busy machine needs that time.
        let run = script(&server, &shared, &format!("--lease 16s {options}"), &orphan);
        let process = shared.text("orphan");
        run.signal("STOP");
        next(&server, &process, options);
        run.signal("CONT");
        run.output();
    }
}
