//! The cost of releasing and refreshing many permits in one call, compared with one call each.

use luagate::{Lease, Permit, Semaphore};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::compare;
use luagate_benches::server::Server;
use std::time::{Duration, Instant};

const ROUNDS: usize = 31;
const PERMITS: u32 = 100;

fn acquire(semaphore: &Semaphore) -> Vec<Permit> {
    (0..PERMITS).map(|_| semaphore.try_acquire().unwrap()).collect()
}

/// The duration in µs.
fn us(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let semaphore = server.gate().semaphore("bulk", PERMITS);
    let semaphore = semaphore.lease(Lease::fixed(Duration::from_secs(600)));
    let released = compare(
        ROUNDS,
        || {
            let permits = acquire(&semaphore);
            us(|| {
                for outcome in Permit::release_each(permits) {
                    outcome.unwrap();
                }
            })
        },
        || {
            let permits = acquire(&semaphore);
            us(|| {
                for permit in permits {
                    permit.release().unwrap();
                }
            })
        },
    );
    let permits = acquire(&semaphore);
    let refreshed = compare(
        ROUNDS,
        || {
            us(|| {
                for outcome in Permit::refresh_each(&permits) {
                    outcome.unwrap();
                }
            })
        },
        || us(|| permits.iter().for_each(|permit| permit.refresh().unwrap())),
    );
    let figure = |what: &str, compared: luagate_benches::rounds::Compared| Figure {
        what: format!("{what} {PERMITS} permits in one call"),
        unit: "µs",
        ours: compared.ours,
        beside: ("one call each", compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(0.5),
    };
    vec![figure("releasing", released), figure("refreshing", refreshed)]
}
