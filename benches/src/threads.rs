//! Pairs per second with an increasing number of threads: one gate, compared with a connection per thread.

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
    // All points are measured in turns, so that other load on the machine does not affect a single point.
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
        title: "Pairs of acquire and release per second",
        x: Axis::of("threads", true, &THREADS.map(|threads| threads as u32)),
        y: Axis::upwards("pairs per second", most),
        lines: vec![
            line("one gate for all threads", measured.map(|at| (at.0, at.1))),
            line("a raw connection per thread", measured.map(|at| (at.0, at.2))),
        ],
        has_marks: true,
    }
    .chart()
}
