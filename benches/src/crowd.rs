//! How many scripts a grant takes while many wait: each comes once and goes once, and the rest is asking again.

use crate::figure::{Figure, Limit};
use crate::server::Server;
use crate::wire::take_scripts;
use luagate::Semaphore;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HOLD: Duration = Duration::from_millis(1);

/// What a thread that waits needs.
const STACK: usize = 256 * 1024;

/// Waiters on one permit, grants, and the most scripts a grant.
const CROWDS: [(u32, u32, f64); 4] = [
    (10, 1_000, 2.1),
    (100, 1_000, 2.1),
    (1_000, 3_000, 2.1),
    (10_000, 12_000, 4.0),
];

/// So many threads take turns until they were inside so many times.
fn take_turns(semaphore: &Semaphore, threads: u32, grants: u32) {
    let left = AtomicU32::new(grants);
    let take = || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        })
        .is_ok()
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            let turns = || {
                while take() {
                    let permit = semaphore.acquire().unwrap();
                    thread::sleep(HOLD);
                    permit.release().unwrap();
                }
            };
            thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, turns)
                .unwrap();
        }
    });
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let gate = server.gate();
    let mut con = server.connection();
    take_turns(&gate.semaphore("first", 1), 10, 20); // the subscription stands, and the scripts are loaded
    let figure = |(threads, grants, most): (u32, u32, f64)| {
        take_scripts(&mut con);
        take_turns(
            &gate.semaphore(&format!("of-{threads}"), 1),
            threads,
            grants,
        );
        let a_grant = take_scripts(&mut con).0 / f64::from(grants);
        Figure {
            what: format!("scripts a grant, {threads} waiters"),
            unit: "scripts",
            ours: a_grant,
            beside: ("the grants", 1.0),
            ratio: a_grant,
            limit: Limit::AtMost(most),
        }
    };
    CROWDS.map(figure).into()
}
