//! How many scripts a grant takes while many wait: each comes once and goes once, and the rest is asking again.

use crate::chart::{Axis, Chart, Line, Lines};
use crate::figure::{Figure, Limit};
use crate::server::Server;
use crate::wire::take_scripts;
use luagate::{Gate, Semaphore};
use redis::Connection;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const HOLD: Duration = Duration::from_millis(1);

/// What a thread that waits needs.
const STACK: usize = 256 * 1024;

/// Waiters on one permit, grants, and the most scripts a grant.
const CROWDS: [(u32, u32, f64); 4] = [(10, 1_000, 2.1), (100, 1_000, 2.1), (1_000, 3_000, 2.1), (10_000, 12_000, 4.0)];

/// So many threads take turns until they were inside so many times.
fn take_turns(semaphore: &Semaphore, threads: u32, grants: u32) {
    let left = AtomicU32::new(grants);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    thread::scope(|scope| {
        for _ in 0..threads {
            let turns = || {
                while take() {
                    let permit = semaphore.acquire().unwrap();
                    thread::sleep(HOLD);
                    permit.release().unwrap();
                }
            };
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, turns).unwrap();
        }
    });
}

/// How many scripts ran for each grant, with so many waiters all the time.
pub fn scripts_a_grant(con: &mut Connection, gate: &Gate, waiters: u32, grants: u32) -> f64 {
    take_turns(&gate.semaphore("first", 1), 10, 20); // the subscription stands, and the scripts are loaded
    take_scripts(con);
    let name = format!("of-{waiters}");
    take_turns(&gate.semaphore(&name, 1), waiters, grants);
    take_scripts(con).0 / f64::from(grants)
}

pub fn measure(server: &Server) -> (Vec<Figure>, Vec<Chart>) {
    let gate = server.gate();
    let mut con = server.connection();
    let figures = CROWDS.map(|(waiters, grants, most)| {
        let a_grant = scripts_a_grant(&mut con, &gate, waiters, grants);
        Figure {
            what: format!("scripts a grant, {waiters} waiters"),
            unit: "scripts",
            ours: a_grant,
            beside: ("the grants", 1.0),
            ratio: a_grant,
            limit: Limit::AtMost(most),
        }
    });
    let waiters = CROWDS.map(|crowd| crowd.0);
    let at = |n: usize, scripts: f64| (f64::from(waiters[n]), scripts);
    let measured = (0..CROWDS.len()).map(|n| at(n, figures[n].ours));
    let most = figures.iter().map(|figure| figure.ours).fold(2.0, f64::max);
    let chart = Lines {
        file: "crowd.svg",
        title: "Scripts that a grant takes while many wait",
        x: Axis::of("waiters", true, &waiters),
        y: Axis::upwards("scripts a grant", most),
        lines: vec![
            Line {
                name: "one to come and one to go",
                points: vec![at(0, 2.0), at(CROWDS.len() - 1, 2.0)],
                is_reference: true,
            },
            Line { name: "measured", points: measured.collect(), is_reference: false },
        ],
        has_marks: true,
    };
    (figures.into(), vec![chart.chart()])
}
