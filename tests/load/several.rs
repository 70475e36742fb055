//! Promise: threads that acquire random overlapping sets of semaphores never deadlock. Every attempt ends in
//! time, and nothing stays held. Takes six seconds, or a minute with `LUAGATE_PROVE=long`.

use crate::all_processors;
use crate::support::random::Random;
use crate::support::{SOON, Server, eventually};

use luagate::errors::{AcquireError, FailureKind, TryAcquireError};
use luagate::{Gate, Semaphore};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = 32;
const SEMAPHORES: u32 = 64;

/// The maximum wait of an attempt.
const TIMEOUT_MS: u64 = 500;
/// How much later an attempt may end if all processors are busy. It only bounds a failure: a deadlock lasts
/// for ever.
const LATE: Duration = SOON;

fn limit(n: u32) -> u32 {
    1 + n % 4
}

fn semaphores(gate: &Gate) -> Vec<Semaphore> {
    (0..SEMAPHORES).map(|n| gate.semaphore(&format!("{{several}}:{n}"), limit(n))).collect()
}

/// The number of held permits of each semaphore.
type Ledger = Vec<AtomicU32>;

/// The numbers of granted and of other attempts.
#[derive(Default)]
struct Counts {
    granted: u64,
    refused: u64,
}

fn attempts(gate: &Gate, ledger: &Ledger, mut random: Random, end: Instant) -> Counts {
    let all = semaphores(gate);
    let mut counts = Counts::default();
    while Instant::now() < end {
        let mut picks: Vec<(u32, u32)> = Vec::new();
        for _ in 0..2 + random.below(3) {
            let n = random.below(SEMAPHORES.into()) as u32;
            if picks.iter().all(|(other, _)| *other != n) {
                picks.push((n, 1 + random.below(limit(n).into()) as u32));
            }
        }
        let several = gate.several(picks.iter().map(|(n, permits)| (&all[*n as usize], *permits)));
        let begun = Instant::now();
        let timeout = Duration::from_millis(1 + random.below(TIMEOUT_MS));
        let held = match random.below(3) {
            0 => match several.try_acquire() {
                Ok(held) => Some(held),
                Err(TryAcquireError::Denied(_)) => None,
                Err(error) => panic!("{error}"),
            },
            _ => match several.acquire_timeout(timeout) {
                Ok(held) => Some(held),
                Err(AcquireError::TimedOut(_)) => None,
                // The machine was too busy for a reply in this time.
                Err(AcquireError::Unknown(late)) if late.kind() == FailureKind::TimedOut => None,
                Err(error) => panic!("{error}"),
            },
        };
        let took = begun.elapsed();
        assert!(took < timeout + LATE, "{took:?} of {timeout:?}");
        let Some(held) = held else {
            counts.refused += 1;
            continue;
        };
        counts.granted += 1;
        for (n, permits) in &picks {
            let inside = ledger[*n as usize].fetch_add(*permits, Ordering::SeqCst) + permits;
            assert!(inside <= limit(*n), "{inside} of {}", limit(*n));
        }
        thread::sleep(Duration::from_millis(random.below(4)));
        for (n, permits) in &picks {
            ledger[*n as usize].fetch_sub(*permits, Ordering::SeqCst);
        }
        match random.below(2) {
            0 => drop(held),
            _ => drop(held.release().unwrap()),
        }
    }
    counts
}

#[test]
fn thirty_two_threads_with_random_overlapping_sets_never_deadlock() {
    let _processors = all_processors();
    let server = Server::any();
    // On a loaded machine the server may answer late.
    let gate = || Gate::builder(&server.url).prefix(&server.prefix).read_timeout(SOON).open().unwrap();
    let gates = [gate(), gate()];
    let is_long = std::env::var_os("LUAGATE_PROVE").is_some_and(|form| form == "long");
    let end = Instant::now() + Duration::from_secs(if is_long { 60 } else { 6 });
    let ledger: Ledger = (0..SEMAPHORES).map(|_| AtomicU32::new(0)).collect();
    let counts: Vec<Counts> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (gate, ledger) = (&gates[thread as usize % 2], &ledger);
                scope.spawn(move || attempts(gate, ledger, Random::new(thread + 1), end))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for semaphore in semaphores(&gates[0]) {
        // On a busy machine the background releases what could not be released in time.
        eventually("nothing is held", || {
            let state = semaphore.inspect().unwrap();
            (state.in_use == 0 && state.waiter_count == 0).then_some(())
        });
    }
    for (thread, Counts { granted, refused }) in counts.iter().enumerate() {
        assert!(*granted > 0, "thread {thread} was never granted, and refused {refused} times");
    }
    let refused: u64 = counts.iter().map(|counts| counts.refused).sum();
    assert!(refused > 0, "no attempt was ever blocked, so nothing was tested");
}
