//! The effect of a user who sends very many requests, when each user has a limit and all together have one:
//! how long the other users wait, compared with the same load without that user.

use luagate::{Cancel, Gate, Lease, Several};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::median;
use luagate_benches::server::Server;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);

/// Long enough that other delays of a busy machine are small in comparison.
const HOLD: Duration = Duration::from_millis(20);

const OTHERS: usize = 50;
const PER_USER: u32 = 3;
const IN_TOTAL: u32 = 20;

/// The number of concurrent calls of that user: normal, and in the flood.
const CALM: usize = 1;
const FLOOD: usize = 500;

fn limits(gate: &Gate, user: usize, cancel: &Cancel) -> Several {
    let lease = Duration::from_secs(60);
    let own = gate.semaphore(&format!("flood:{user}"), PER_USER).lease(Lease::fixed(lease));
    let total = gate.semaphore("flood", IN_TOTAL).lease(Lease::fixed(lease));
    gate.several([(&own, 1), (&total, 1)]).with(|semaphore| semaphore.cancelled_by(cancel))
}

/// The median and the 99th percentile of the other users' waits in ms, while one user makes this number of
/// concurrent calls.
fn waits(gate: &Gate, calls: usize) -> (f64, f64) {
    let (cancel, over) = (Cancel::new(), AtomicBool::new(false));
    let waits = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..calls {
            let limits = limits(gate, 0, &cancel);
            scope.spawn(move || {
                while let Ok(held) = limits.acquire_timeout(Duration::from_secs(3_600)) {
                    thread::sleep(HOLD);
                    held.release().unwrap();
                }
            });
        }
        let floods = || gate.semaphore("flood:0", PER_USER).inspect().unwrap().waiter_count as usize;
        while floods() + (PER_USER as usize) < calls {
            thread::sleep(Duration::from_millis(10));
        }
        let others: Vec<_> = (1..=OTHERS)
            .map(|user| {
                let limits = limits(gate, user, &cancel);
                let (waits, over) = (&waits, &over);
                scope.spawn(move || {
                    let mut own = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        let held = limits.acquire_timeout(Duration::from_secs(60)).unwrap();
                        own.push(begun.elapsed().as_secs_f64() * 1e3);
                        thread::sleep(HOLD);
                        held.release().unwrap();
                    }
                    waits.lock().unwrap().extend(own.into_iter().skip(2)); // while the lines grow
                })
            })
            .collect();
        thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        cancel.cancel();
    });
    let mut waits = waits.into_inner().unwrap();
    waits.sort_by(f64::total_cmp);
    (median(waits.iter().copied()), waits[waits.len() * 99 / 100])
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let gate = server.gate();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (waits(&gate, FLOOD), waits(&gate, CALM))).collect();
    let figure = |what: &str, ours: fn(&(f64, f64)) -> f64| {
        let middle = |values: Vec<f64>| median(values.into_iter());
        Figure {
            what: format!("{what} wait of {OTHERS} users while another one makes {FLOOD} concurrent calls"),
            unit: "ms",
            ours: middle(rounds.iter().map(|(flood, _)| ours(flood)).collect()),
            beside: ("while it makes 1", middle(rounds.iter().map(|(_, calm)| ours(calm)).collect())),
            ratio: middle(rounds.iter().map(|(flood, calm)| ours(flood) / ours(calm)).collect()),
            limit: Limit::AtMost(1.1),
        }
    };
    vec![figure("median", |waits| waits.0), figure("99th percentile of the", |waits| waits.1)]
}
