//! Pairs a second by more and more threads: one gate, beside a connection for each thread.

use crate::chart::{Axis, Chart, Line, Lines};
use crate::client::{Raw, apart_us, pairs, together_us};
use crate::rounds::median;
use crate::server::Server;
use std::time::Duration;

const ROUNDS: usize = 9;
const PAIRS: usize = 1_600;
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];

pub fn chart(server: &Server) -> Chart {
    let semaphore = server.gate().semaphore("threads", 100).lease(Duration::from_secs(30));
    let mut raws: Vec<Raw> = (0..THREADS[THREADS.len() - 1]).map(|_| Raw::new(server, "raw")).collect();
    let mut measured = THREADS.map(|threads| (threads as f64, vec![], vec![]));
    // All points in turns, so that a moment in which the machine does something else falls on none alone.
    for _ in 0..ROUNDS {
        for (at, threads) in THREADS.into_iter().enumerate() {
            let each = PAIRS / threads;
            let (_, together, apart) = &mut measured[at];
            together.push(1e6 / together_us(threads, each, || pairs(&semaphore, each)));
            apart.push(1e6 / apart_us(&mut raws[..threads], each));
        }
    }
    let measured =
        measured.map(|(threads, together, apart)| (threads, median(together.into_iter()), median(apart.into_iter())));
    let line = |name, points: [(f64, f64); THREADS.len()]| Line { name, points: points.into(), is_reference: false };
    let most = measured.iter().map(|at| at.1.max(at.2)).fold(0.0, f64::max);
    Lines {
        file: "threads.svg",
        title: "Pairs of acquire and release a second",
        x: Axis::of("threads", true, &THREADS.map(|threads| threads as u32)),
        y: Axis::upwards("pairs a second", most),
        lines: vec![
            line("one gate for all", measured.map(|at| (at.0, at.1))),
            line("a raw connection for each", measured.map(|at| (at.0, at.2))),
        ],
        has_marks: true,
    }
    .chart()
}
