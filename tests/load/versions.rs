//! Promise: many clients of an earlier version of the scripts and of the current one can share a semaphore at
//! the same time. An order of their calls explains all results.

use crate::all_processors;
use crate::support::history::client::Recorded;
use crate::support::history::{History, Lease, Op, Outcome, Recorder, Rules};
use crate::support::random::Random;
use crate::support::raw::Raw;
use crate::support::thin::{Scripts, Thin};
use crate::support::{SOON, Server};

use luagate::Gate;
use luagate::scripts::semaphore::Ask;
use std::path::Path;
use std::time::Duration;

const LIMIT: u32 = 3;
const LEASE: Duration = Duration::from_secs(5);

fn record(recorder: &Recorder, op: &Op, call: impl FnOnce() -> Outcome) -> Outcome {
    let started = recorder.start("shared", op);
    let outcome = call();
    started.end(&outcome);
    outcome
}

/// Waits in line `asks` times, holds for a moment, and refreshes now and then.
fn live_thin(recorder: &Recorder, mut client: Thin, seed: u64, asks: u32, in_line: Duration) {
    let mut random = Random::new(seed);
    let lease = Lease::Ms(LEASE.as_millis() as u64);
    let lease_ms = LEASE.as_millis() as u64;
    for _ in 0..asks {
        let id = uuid::Uuid::new_v4().to_string();
        let ask = Ask { permits: Some(1 + random.below(2) as u32), lease_ms, ..client.ask(&id) };
        let op = Op::Acquire { permits: ask.permits, lease, waits: true, head_start_ms: 0 };
        let reported = record(recorder, &op, || client.acquire_in_line(ask, in_line));
        if !matches!(reported, Outcome::Granted(_)) {
            continue;
        }
        std::thread::sleep(Duration::from_millis(random.below(4)));
        if random.below(3) == 0 {
            let id = id.clone();
            let reply = || client.refresh(&id, lease_ms).outcome(&id, None);
            record(recorder, &Op::Refresh { id: id.clone(), lease }, reply);
        }
        let op = Op::Release { id: id.clone(), keep: 0 };
        record(recorder, &op, || client.call("release", &[&id, "0"]).outcome(&id, None));
    }
}

/// The same with the library, which uses signed messages.
fn live_gate(recorder: &Recorder, gate: &Gate, seed: u64, asks: u32, in_line: Duration) {
    let mut random = Random::new(seed);
    let semaphore = Recorded::new(recorder, gate.semaphore("shared", LIMIT), LEASE);
    for _ in 0..asks {
        let permits = 1 + random.below(2) as u32;
        let Ok(permit) = semaphore.acquire_many_timeout(permits, in_line) else {
            continue;
        };
        std::thread::sleep(Duration::from_millis(random.below(4)));
        if random.below(3) == 0 {
            semaphore.refresh(&permit).unwrap();
        }
        semaphore.release(permit).unwrap();
    }
}

/// The recorded history. Asserts that all permits are released.
#[track_caller]
fn history_of(server: &Server, folder: &Path) -> History {
    let state = Raw::named(server, "shared", LIMIT).inspect();
    assert_eq!((state.in_use, state.waiter_count, state.limit), (0, 0, LIMIT));
    History::read(folder)
}

fn granted_in_line(reported: &Outcome) -> bool {
    matches!(reported, Outcome::Granted(granted) if granted.ticket.is_some())
}

#[test]
fn both_versions_share_one_limit_and_one_line() {
    let _processors = all_processors();
    for earlier in Scripts::earlier() {
        let server = Server::any();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path());
        let versions = [earlier, Scripts::present()];
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let client = Thin::new(&server, &versions[seed % 2], "shared", LIMIT);
                let recorder = &recorder;
                scope.spawn(move || live_thin(recorder, client, seed as u64, 100, 3 * SOON));
            }
        });
        let history = history_of(&server, folder.path());
        history.assert(&Rules { same_clock: server.is_private(), ..Rules::new(LIMIT) });
        let in_line = history.count(granted_in_line);
        assert!(in_line > 400, "{in_line} were granted in line");
    }
}

#[test]
fn the_library_shares_the_limit_with_an_earlier_version() {
    let _processors = all_processors();
    for earlier in Scripts::earlier() {
        let server = Server::any();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path());
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let recorder = &recorder;
                let client = (seed % 2 == 0).then(|| Thin::new(&server, &earlier, "shared", LIMIT));
                let gate = server.gate();
                let in_line = Duration::from_millis(500);
                scope.spawn(move || match client {
                    Some(client) => live_thin(recorder, client, seed, 100, in_line),
                    None => live_gate(recorder, &gate, seed, 50, in_line),
                });
            }
        });
        let history = history_of(&server, folder.path());
        // The earlier scripts skip waiters with a signed inbox, so other waiters overtake the library.
        history.assert(&Rules { order: false, same_clock: server.is_private(), ..Rules::new(LIMIT) });
        let in_line = history.count(granted_in_line);
        assert!(in_line > 100, "{in_line} were granted in line");
    }
}
