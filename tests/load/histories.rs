//! Promise: for everything that many processes observe of a semaphore, there is an order of their calls that
//! explains it. In that order limit, line order, fences and leases are correct, and every denial was correct
//! at some moment of its call.

use crate::all_processors;
use crate::support::history::client::{Recorded, any_head_start};
use crate::support::history::{Granted, History, Op, Outcome, Recorder, Rules};
use crate::support::random::Random;
use crate::support::{Server, eventually, process};

use luagate::{Cancel, Gate};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

const LIMIT: u32 = 3;
const PROCESSES: u64 = 8;
const THREADS: u64 = 3;

/// The number of requests of each thread: some hundred; with `LUAGATE_PROVE=long` enough for minutes; or the
/// number in that variable.
fn asks() -> u32 {
    match std::env::var("LUAGATE_PROVE") {
        Ok(count) if count != "long" => count.parse().expect("LUAGATE_PROVE: long, or a count"),
        Ok(_) => 10_000,
        Err(_) => 500,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The calls of one thread: all kinds of acquires, now and then with a head start, held for less or more than
/// the lease.
fn live(recorder: &Recorder, gate: &Gate, seed: u64, asks: u32) {
    let mut random = Random::new(seed);
    let semaphore = gate.semaphore("mixed", LIMIT);
    for _ in 0..asks {
        let ends_early = random.below(80) == 0;
        let lease = if ends_early { ms(20) } else { ms(300 + random.below(300)) };
        let recorded = Recorded::new(recorder, semaphore.clone(), lease);
        let mut recorded = recorded.head_start(any_head_start(&mut random));
        let permits = 1 + random.below(2) as u32;
        let timeout = ms(1 + random.below(30));
        let permit = match random.below(16) {
            0..6 => recorded.try_acquire_many(permits).ok(),
            6 => recorded.try_acquire_available().ok(),
            7 => {
                let cancel = Cancel::new();
                recorded.semaphore = recorded.semaphore.cancelled_by(&cancel);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(timeout / 4);
                        cancel.cancel();
                    });
                    recorded.acquire_many(permits).ok()
                })
            }
            _ => recorded.acquire_many_timeout(permits, timeout).ok(),
        };
        let Some(permit) = permit else { continue };
        match random.below(4) {
            _ if ends_early => std::thread::sleep(lease + ms(5)),
            0 => drop(recorded.refresh(&permit)),
            1 => std::thread::sleep(ms(1)),
            _ => {}
        }
        recorded.is_lost(&permit);
        match random.below(10) {
            0 => recorded.drop(permit),
            _ => drop(recorded.release(permit)),
        }
    }
}

/// The main function of each process.
pub fn work(arguments: &[String]) {
    let [url, prefix, folder, seed, asks] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let recorder = Recorder::create(Path::new(folder));
    let seed: u64 = seed.parse().unwrap();
    let asks = asks.parse().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (recorder, gate) = (&recorder, &gate);
            scope.spawn(move || live(recorder, gate, seed * THREADS + thread, asks));
        }
    });
}

/// The number of bytes that a process has recorded.
fn recorded(child: &Child, folder: &Path) -> u64 {
    let process = format!("{}-", child.id());
    let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    files
        .filter(|file| file.file_name().to_str().unwrap().starts_with(&process))
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

/// Whether a head start has let a caller overtake a waiter that was in line already.
fn has_overtaken(history: &History) -> bool {
    let granted = history.calls.iter().filter_map(|call| match (&call.op, &call.outcome) {
        (Op::Acquire { head_start_ms, .. }, Outcome::Granted(granted)) => {
            Some((head_start_ms * 1_000, granted))
        }
        _ => None,
    });
    let granted: Vec<_> = granted.collect();
    granted.iter().filter(|(head_start, _)| *head_start > 0).any(|(head_start, early)| {
        let came = early.ticket.map_or(early.fence, |ticket| ticket + head_start);
        let was_in_line = |(head_start, other): &(u64, &Granted)| {
            other.ticket.is_some_and(|ticket| ticket + head_start < came) && other.fence > early.fence
        };
        granted.iter().any(was_in_line)
    })
}

#[test]
fn the_history_of_many_processes_is_explained_by_an_order() {
    let _processors = all_processors();
    let server = Server::any();
    let mut folder = tempfile::tempdir().unwrap();
    let start = |seed: u64, asks: u32| {
        let (seed, asks) = (seed.to_string(), asks.to_string());
        let path = folder.path().to_str().unwrap();
        let arguments = [&*server.url, &*server.prefix, path, &*seed, &*asks];
        process("live", &arguments).spawn().unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(|seed| start(seed, asks())).collect();
    // Further processes are killed in the middle of a call.
    for seed in PROCESSES..PROCESSES + 3 {
        let mut killed = start(seed, u32::MAX);
        eventually("the process has recorded some calls", || {
            (recorded(&killed, folder.path()) > 10_000).then_some(())
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let history = History::read(folder.path());
    let rules = Rules { same_clock: server.is_private(), ..Rules::new(LIMIT) };
    if let Err(violation) = history.check(&rules) {
        folder.disable_cleanup(true);
        panic!("{violation}\nthe history is in {}", folder.path().display());
    }
    // The history contained all these outcomes.
    let count = |is: fn(&Outcome) -> bool| history.count(is);
    let in_line = |reported: &Outcome| matches!(reported, Outcome::Granted(g) if g.ticket.is_some());
    let at_once = |reported: &Outcome| matches!(reported, Outcome::Granted(g) if g.ticket.is_none());
    for (what, found) in [
        ("granted in line", count(in_line)),
        ("granted at once", count(at_once)),
        ("granted before a waiter by a head start", has_overtaken(&history).into()),
        ("denied", count(|reported| matches!(reported, Outcome::Denied(_)))),
        ("timed out", count(|reported| matches!(reported, Outcome::TimedOut(_)))),
        ("cancelled", count(|reported| *reported == Outcome::Cancelled)),
        ("lost", count(|reported| *reported == Outcome::Lost)),
        ("held", count(|reported| *reported == Outcome::Held)),
        ("gone", count(|reported| *reported == Outcome::Gone)),
        ("never returned", count(|reported| *reported == Outcome::NeverReturned)),
    ] {
        assert!(found > 0, "no call had the outcome: {what}");
    }
}
