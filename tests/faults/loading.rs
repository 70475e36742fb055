//! Promise: scripts are loaded when they are first needed. If the server lost them, the next call makes one
//! more round trip, and the order of calls and releases is the same.

use crate::own;
use crate::support::stop::Stop;
use crate::support::{Server, command_counts, reset_counts};

use std::collections::BTreeMap;

/// The commands that the server ran for `run`: one release and one acquire.
fn commands(server: &Server, run: impl FnOnce()) -> BTreeMap<String, u64> {
    let mut con = server.connection();
    reset_counts(&mut con);
    run();
    command_counts(&mut con)
}

fn count(counts: &BTreeMap<String, u64>, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// How many calls named a script by its SHA-1, and how many contained its text.
fn calls(counts: &BTreeMap<String, u64>) -> (u64, u64) {
    assert!(!counts.keys().any(|name| name.starts_with("script")), "{counts:?}");
    (count(counts, "evalsha"), count(counts, "eval"))
}

#[test]
fn scripts_are_loaded_when_they_are_first_needed() {
    let server = own!(Server::private(&[]));
    let counts = commands(&server, || drop(server.gate().semaphore("lazy", 1)));
    assert_eq!(calls(&counts), (0, 0));
    let pair = || {
        server.gate().semaphore("lazy", 1).try_acquire().unwrap().release().unwrap();
    };
    let counts = commands(&server, pair);
    assert_eq!(calls(&counts), (2, 2), "acquire and release");
    let counts = commands(&server, pair);
    assert_eq!(calls(&counts), (2, 0));
}

#[test]
fn a_lost_script_is_stored_again_by_the_call_that_needs_it() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("flushed", 1);
    let permit = semaphore.try_acquire().unwrap();
    permit.refresh().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
    let counts = commands(&server, || permit.refresh().unwrap());
    assert_eq!(calls(&counts), (1, 1));
    let counts = commands(&server, || permit.refresh().unwrap());
    assert_eq!(calls(&counts), (1, 0));
    permit.release().unwrap();
}

/// Since version 7.4 a server keeps only 500 scripts that no `SCRIPT LOAD` has stored.
#[test]
fn beside_a_program_that_evaluates_600_scripts_a_call_makes_at_most_one_more_round_trip() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    let permit = server.gate().semaphore("evicted", 1).try_acquire().unwrap();
    for round in 0..5 {
        for script in 0..600 {
            let text = format!("return {}", round * 600 + script);
            redis::cmd("EVAL").arg(text).arg(0).exec(&mut con).unwrap();
        }
        let (by_sha1, with_text) = calls(&commands(&server, || permit.refresh().unwrap()));
        assert!(by_sha1 == 1 && with_text <= 1, "{by_sha1} by SHA-1, {with_text} with the text");
    }
    permit.release().unwrap();
}

/// Another client has stored only the script of `acquire`.
#[test]
fn a_release_whose_script_is_missing_precedes_the_next_call() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    for own_id in [true, false] {
        let mut seat = gate.semaphore("seat", 1);
        if own_id {
            seat = seat.id("alice");
        }
        for _ in 0..20 {
            let permit = seat.try_acquire().unwrap();
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection()).unwrap();
            let other = server.gate();
            let held = other.semaphore("other", 100).try_acquire().unwrap();
            drop(permit);
            let next = seat.try_acquire().unwrap();
            next.release().unwrap();
            held.release().unwrap();
        }
    }
}

#[test]
fn every_call_succeeds_while_scripts_are_flushed_all_the_time() {
    let server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("flushed", 3);
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        scope.spawn(|| {
            let mut con = server.connection();
            while !stop.is_set() {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con).unwrap();
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..100).for_each(|_| drop(semaphore.acquire().unwrap()))))
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        assert!(ends.iter().all(Result::is_ok));
    });
    assert_eq!(semaphore.available_permits().unwrap(), 3);
}
