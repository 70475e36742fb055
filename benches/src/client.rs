//! The cost that the Rust client adds to the scripts: the same calls by the crate, and sent raw.

use crate::figure::{Figure, Limit};
use crate::rounds::compare;
use crate::server::Server;
use crate::wire::Script;
use luagate::Semaphore;
use redis::Connection;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const PAIRS: usize = 1_000;
const THREADS: usize = 8;
const LEASE: Duration = Duration::from_secs(30);

/// Sends pairs of calls on one connection, and does nothing else.
pub struct Raw {
    con: Connection,
    acquire: Script,
    release: Script,
    keys: [String; 3],
}

impl Raw {
    pub fn new(server: &Server, name: &str) -> Raw {
        let mut con = server.connection();
        Raw {
            acquire: Script::of_manifest(&mut con, "semaphore/acquire"),
            release: Script::of_manifest(&mut con, "semaphore/release"),
            keys: server.keys(name).names().map(str::to_owned),
            con,
        }
    }

    pub fn pairs(&mut self, count: usize) {
        let keys = self.keys.each_ref().map(String::as_str);
        for _ in 0..count {
            let id = uuid::Uuid::new_v4().to_string();
            let granted = self.acquire.call(&keys, &[&id, "1", "100", "30000", "0", "", "0"]);
            granted.exec(&mut self.con).unwrap();
            self.release.call(&keys, &[&id, "0"]).exec(&mut self.con).unwrap();
        }
    }
}

pub fn pairs(semaphore: &Semaphore, count: usize) {
    for _ in 0..count {
        semaphore.try_acquire().unwrap().release().unwrap();
    }
}

/// The time per pair, in µs.
fn us(pairs: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6 / pairs as f64
}

/// The time per pair when this number of threads do the same work, in µs. `count`: the pairs of each thread.
pub fn together_us(threads: usize, count: usize, work: impl Fn() + Sync) -> f64 {
    us(threads * count, || std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work)))))
}

/// The same with threads that each have their own connection.
pub fn apart_us(raws: &mut [Raw], count: usize) -> f64 {
    us(raws.len() * count, || {
        std::thread::scope(|scope| raws.iter_mut().for_each(|raw| drop(scope.spawn(move || raw.pairs(count)))))
    })
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let semaphore = server.gate().semaphore("client", 100).lease(LEASE);
    let mut raw = Raw::new(server, "raw");
    let one = compare(ROUNDS, || us(PAIRS, || pairs(&semaphore, PAIRS)), || us(PAIRS, || raw.pairs(PAIRS)));
    let mut raws: Vec<Raw> = (0..THREADS).map(|_| Raw::new(server, "raw")).collect();
    let threads =
        compare(ROUNDS, || together_us(THREADS, PAIRS, || pairs(&semaphore, PAIRS)), || apart_us(&mut raws, PAIRS));
    vec![
        Figure {
            what: "acquire + release by the crate, one thread".to_owned(),
            unit: "µs",
            ours: one.ours,
            beside: ("the scripts sent raw", one.theirs),
            ratio: one.ratio,
            limit: Limit::AtMost(1.05),
        },
        Figure {
            what: format!("pairs per second by {THREADS} threads with one gate"),
            unit: "/s",
            ours: 1e6 / threads.ours,
            beside: ("a raw connection per thread", 1e6 / threads.theirs),
            ratio: 1.0 / threads.ratio,
            limit: Limit::AtLeast(0.95),
        },
    ]
}
