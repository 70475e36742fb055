//! How many scripts a grant takes while many clients wait: one to join the line, one to release, and the rest
//! for asking again.

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

/// The stack of a waiting thread.
const STACK: usize = 256 * 1024;

/// Waiters on one permit, grants, and the maximum number of scripts per grant.
const LINES: [(u32, u32, f64); 4] =
    [(10, 1_000, 2.1), (100, 1_000, 2.1), (1_000, 3_000, 2.1), (10_000, 12_000, 4.0)];

/// Lets this number of threads take turns until they had this number of grants.
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

/// The number of scripts per grant, with this number of waiters at all times.
pub fn scripts_a_grant(con: &mut Connection, gate: &Gate, waiters: u32, grants: u32) -> f64 {
    take_turns(&gate.semaphore("first", 1), 10, 20); // opens the subscription and loads the scripts
    take_scripts(con);
    let name = format!("of-{waiters}");
    take_turns(&gate.semaphore(&name, 1), waiters, grants);
    take_scripts(con).0 / f64::from(grants)
}

pub fn measure(server: &Server) -> (Vec<Figure>, Vec<Chart>) {
    let gate = server.gate();
    let mut con = server.connection();
    let figures = LINES.map(|(waiters, grants, most)| {
        let a_grant = scripts_a_grant(&mut con, &gate, waiters, grants);
        Figure {
            what: format!("scripts per grant, {waiters} waiters"),
            unit: "scripts",
            ours: a_grant,
            beside: ("the grants", 1.0),
            ratio: a_grant,
            limit: Limit::AtMost(most),
        }
    });
    let waiters = LINES.map(|line| line.0);
    let at = |n: usize, scripts: f64| (f64::from(waiters[n]), scripts);
    let measured = (0..LINES.len()).map(|n| at(n, figures[n].ours));
    let most = figures.iter().map(|figure| figure.ours).fold(2.0, f64::max);
    let chart = Lines {
        file: "waiters.svg",
        title: "Scripts per grant while many clients wait",
        x: Axis::of("waiters", true, &waiters),
        y: Axis::upwards("scripts per grant", most),
        lines: vec![
            Line {
                name: "minimum: one to acquire, one to release",
                points: vec![at(0, 2.0), at(LINES.len() - 1, 2.0)],
                is_reference: true,
            },
            Line { name: "measured", points: measured.collect(), is_reference: false },
        ],
        has_marks: true,
    };
    (figures.into(), vec![chart.chart()])
}
