//! Many threads with one gate, compared with a connection for each thread: pairs per second, and the time of
//! a call.

use luagate::{Lease, Semaphore};
use luagate_benches::chart::{Axis, Chart, Line, Lines};
use luagate_benches::client::{Raw, pairs, sections, us};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::rounds::{compare, median};
use luagate_benches::server::Server;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
/// The pairs of all threads together, for a point of the chart, and for a figure.
const PAIRS: usize = 1_600;
const PAIRS_OF_A_FIGURE: usize = 8_000;
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const NAME: &str = "a raw connection per thread";

/// The time per pair when this number of threads do the same work, in µs. `each`: the pairs of each thread.
pub fn together_us(threads: usize, each: usize, work: impl Fn() + Sync) -> f64 {
    us(threads * each, || std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work)))))
}

/// The same with threads that each have their own connection.
pub fn apart_us(raws: &mut [Raw], each: usize) -> f64 {
    us(raws.len() * each, || {
        std::thread::scope(|scope| raws.iter_mut().for_each(|raw| drop(scope.spawn(move || raw.pairs(each)))))
    })
}

/// The 99th percentile of the times that these threads return, in µs.
fn percentile(threads: impl Iterator<Item = impl FnOnce() -> Vec<f64> + Send>) -> f64 {
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = threads.map(|thread| scope.spawn(thread)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Stores the time of a call, in µs.
fn timed<T>(times: &mut Vec<f64>, call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = call();
    times.push(begun.elapsed().as_secs_f64() * 1e6);
    result
}

/// The times of the calls of one thread.
fn times_of_pairs(semaphore: &Semaphore, count: usize) -> Vec<f64> {
    let mut times = Vec::with_capacity(2 * count);
    for _ in 0..count {
        let permit = timed(&mut times, || semaphore.try_acquire().unwrap());
        timed(&mut times, || permit.release().unwrap());
    }
    times
}

fn times_of_raw(raw: &mut Raw, count: usize) -> Vec<f64> {
    let mut times = Vec::with_capacity(2 * count);
    raw.timed_pairs(count, |call| timed(&mut times, call));
    times
}

fn semaphore(server: &Server) -> Semaphore {
    server.gate().semaphore("threads", 100).lease(Lease::fixed(Duration::from_secs(30)))
}

fn raws(server: &Server, count: usize) -> Vec<Raw> {
    (0..count).map(|_| Raw::new(server, "raw")).collect()
}

fn beside_raw(server: &Server, threads: usize, work: Work, limit: f64) -> Figure {
    let (semaphore, mut raws, each) = (semaphore(server), raws(server, threads), PAIRS_OF_A_FIGURE / threads);
    let compared = compare(
        ROUNDS,
        || together_us(threads, each, || (work.run)(&semaphore, each)),
        || apart_us(&mut raws, each),
    );
    Figure {
        what: format!("{} per second by {threads} threads with one gate", work.name),
        unit: "/s",
        ours: 1e6 / compared.ours,
        beside: (NAME, 1e6 / compared.theirs),
        ratio: 1.0 / compared.ratio,
        limit: Limit::AtLeast(limit),
    }
}

/// The work that each thread repeats.
#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    run: fn(&Semaphore, usize),
}

const SECTIONS: Work = Work { name: "critical sections (acquire, drop)", run: sections };
const CONFIRMED: Work = Work { name: "pairs (acquire, confirmed release)", run: pairs };

fn slowest_calls(server: &Server, threads: usize, limit: f64) -> Figure {
    let (semaphore, mut raws, each) = (semaphore(server), raws(server, threads), PAIRS_OF_A_FIGURE / threads);
    let compared = compare(
        ROUNDS,
        || percentile((0..threads).map(|_| || times_of_pairs(&semaphore, each))),
        || percentile(raws.iter_mut().map(|raw| move || times_of_raw(raw, each))),
    );
    Figure {
        what: format!("99th percentile of a call, {threads} threads with one gate"),
        unit: "µs",
        ours: compared.ours,
        beside: (NAME, compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(limit),
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    vec![
        beside_raw(server, 8, SECTIONS, 1.2),
        beside_raw(server, 32, SECTIONS, 1.3),
        // A raw call wakes one thread. Here a reply wakes the reader, which wakes the caller.
        beside_raw(server, 8, CONFIRMED, 0.9),
        beside_raw(server, 32, CONFIRMED, 1.1),
        slowest_calls(server, 12, 2.0),
    ]
}

pub fn chart(server: &Server) -> Chart {
    let (semaphore, mut raws) = (semaphore(server), raws(server, THREADS[THREADS.len() - 1]));
    let mut measured = THREADS.map(|count| (count as f64, vec![], vec![]));
    // All points are measured in turns, so that other load on the machine does not affect a single point.
    for _ in 0..ROUNDS {
        for (at, count) in THREADS.into_iter().enumerate() {
            let each = PAIRS / count;
            let (_, together, apart) = &mut measured[at];
            together.push(1e6 / together_us(count, each, || pairs(&semaphore, each)));
            apart.push(1e6 / apart_us(&mut raws[..count], each));
        }
    }
    let measured = measured
        .map(|(threads, together, apart)| (threads, median(together.into_iter()), median(apart.into_iter())));
    let line =
        |name, points: [(f64, f64); THREADS.len()]| Line { name, points: points.into(), is_reference: false };
    let most = measured.iter().map(|at| at.1.max(at.2)).fold(0.0, f64::max);
    Lines {
        file: "threads.svg",
        title: "Pairs of acquire and release per second",
        x: Axis::of("threads", true, &THREADS.map(|threads| threads as u32)),
        y: Axis::upwards("pairs per second", most),
        lines: vec![
            line("one gate for all threads", measured.map(|at| (at.0, at.1))),
            line(NAME, measured.map(|at| (at.0, at.2))),
        ],
        has_marks: true,
    }
    .chart()
}
