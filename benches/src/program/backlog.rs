//! Shows that a call does not become slower if a client has given up many waits, or has many releases that it
//! cannot send.

use luagate::{Gate, Lease, Permit, Semaphore};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::over_tcp;
use luagate_benches::rounds::{Compared, compare};
use luagate_benches::server::Server;
use luagate_benches::tasks::{gate, runtime, used_us};
use std::time::Duration;
use tokio::task::JoinSet;

const ROUNDS: usize = 7;
const MOST: f64 = 2.0;

const CANCELLED: usize = 20_000;
const TASKS: usize = 100;

const DROPPED: usize = 20_000;
const FEW_DROPPED: usize = DROPPED / 20;
const LEASE: Duration = Duration::from_secs(600);

/// A gate whose callers wait in line.
struct Busy {
    gate: Gate,
    semaphore: Semaphore,
    _held: Permit,
}

impl Busy {
    async fn new(server: &Server, name: &str) -> Busy {
        let gate = gate(server).await;
        let semaphore = gate.semaphore(name, 1).lease(Lease::fixed(LEASE));
        let held = semaphore.try_acquire_async().await.unwrap();
        Busy { gate, semaphore, _held: held }
    }

    /// Cancels at least this number of waits. Returns the time of the processor for each, in µs.
    async fn cancel(&self, count: usize) -> f64 {
        let begun = used_us();
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let semaphore = self.semaphore.clone();
            tasks.spawn(async move {
                for _ in 0..count.div_ceil(TASKS) {
                    let wait = tokio::time::timeout(Duration::from_millis(5), semaphore.acquire_async());
                    assert!(wait.await.is_err(), "it was granted");
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        self.gate.flush_async().await.unwrap();
        (used_us() - begun) / count as f64
    }
}

fn cancelled(server: &Server) -> Figure {
    let runtime = runtime();
    let many = runtime.block_on(Busy::new(server, "many"));
    runtime.block_on(many.cancel(CANCELLED));
    let mut gates = 0;
    let compared = compare(
        ROUNDS,
        || runtime.block_on(many.cancel(1_000)),
        || {
            gates += 1;
            let few = runtime.block_on(Busy::new(server, &format!("few-{gates}")));
            runtime.block_on(few.cancel(1_000))
        },
    );
    figure(
        format!("a wait that is cancelled after {CANCELLED} others, in two minutes"),
        "in a new gate",
        compared,
    )
}

/// Drops this number of permits while the server is away. Returns the time of the processor for each, in µs.
fn drop_in_outage(count: usize) -> f64 {
    let mut server = over_tcp().expect("the server's binary has disappeared");
    let gate = server.gate();
    let semaphore = gate.semaphore("away", u32::MAX >> 1).lease(Lease::fixed(LEASE));
    let held: Vec<Permit> = (0..count).map(|_| semaphore.try_acquire().unwrap()).collect();
    server.kill();
    while semaphore.try_acquire().is_ok() {}
    let begun = used_us();
    drop(held);
    (used_us() - begun) / count as f64
}

fn dropped() -> Figure {
    let compared = compare(ROUNDS, || drop_in_outage(DROPPED), || drop_in_outage(FEW_DROPPED));
    figure(
        format!("a permit that is dropped in an outage, with {DROPPED} others"),
        "with a twentieth of them",
        compared,
    )
}

fn figure(what: String, beside: &'static str, compared: Compared) -> Figure {
    Figure {
        what,
        unit: "µs of processor",
        ours: compared.ours,
        beside: (beside, compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(MOST),
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    vec![cancelled(server), dropped()]
}
