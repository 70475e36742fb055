//! The cost that the Rust client adds to the scripts: the same calls by the crate, and sent raw.

use crate::distance;
use crate::figure::{Figure, Limit};
use crate::rounds::{Compared, compare};
use crate::server::Server;
use crate::wire::Script;
use luagate::{Gate, Lease, Semaphore};
use redis::Connection;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const PAIRS: usize = 1_000;
const PAIRS_AWAY: usize = 200;
const LEASE: Duration = Duration::from_secs(30);

/// The delay of a call and its reply to a server in the same data centre.
const AWAY: Duration = Duration::from_micros(500);

/// Sends pairs of calls on one connection, and does nothing else.
pub struct Raw {
    con: Connection,
    acquire: Script,
    release: Script,
    keys: [String; 3],
}

impl Raw {
    pub fn new(server: &Server, name: &str) -> Raw {
        Raw::at(&server.url, server, name)
    }

    /// A connection to this URL of the server.
    fn at(url: &str, server: &Server, name: &str) -> Raw {
        let mut con = redis::Client::open(url).unwrap().get_connection().unwrap();
        Raw {
            acquire: Script::of_manifest(&mut con, "semaphore/acquire"),
            release: Script::of_manifest(&mut con, "semaphore/release"),
            keys: server.keys(name).list().map(str::to_owned),
            con,
        }
    }

    pub fn pairs(&mut self, count: usize) {
        self.timed_pairs(count, |call| call());
    }

    /// `time` runs each call.
    pub fn timed_pairs(&mut self, count: usize, mut time: impl FnMut(&mut dyn FnMut())) {
        let keys = self.keys.each_ref().map(String::as_str);
        for _ in 0..count {
            let id = uuid::Uuid::new_v4().to_string();
            let granted = self.acquire.call(&keys, &[&id, "1", "100", "30000", "0", "", "0"]);
            time(&mut || granted.exec(&mut self.con).unwrap());
            let released = self.release.call(&keys, &[&id, "0"]);
            time(&mut || released.exec(&mut self.con).unwrap());
        }
    }
}

pub fn pairs(semaphore: &Semaphore, count: usize) {
    for _ in 0..count {
        semaphore.try_acquire().unwrap().release().unwrap();
    }
}

/// Pairs whose release nobody waits for.
pub fn sections(semaphore: &Semaphore, count: usize) {
    for _ in 0..count {
        drop(semaphore.try_acquire().unwrap());
    }
}

/// The time per pair, in µs.
pub fn us(pairs: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6 / pairs as f64
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let away = distance::away(server.address(), AWAY);
    let beside_raw = |url: &str, count: usize, work: fn(&Semaphore, usize)| {
        let gate = Gate::builder(url).prefix(&server.prefix).open().unwrap();
        let semaphore = gate.semaphore("client", 100).lease(Lease::fixed(LEASE));
        let mut raw = Raw::at(url, server, "raw");
        compare(ROUNDS, || us(count, || work(&semaphore, count)), || us(count, || raw.pairs(count)))
    };
    let figure = |what: &str, compared: Compared, limit| Figure {
        what: what.to_owned(),
        unit: "µs",
        ours: compared.ours,
        beside: ("the scripts sent raw, both confirmed", compared.theirs),
        ratio: compared.ratio,
        limit: Limit::AtMost(limit),
    };
    vec![
        figure("acquire + release by the crate, one thread", beside_raw(&server.url, PAIRS, pairs), 1.05),
        figure(
            "a critical section (acquire, drop), one thread",
            beside_raw(&server.url, PAIRS, sections),
            0.8,
        ),
        figure("the same, a server 0.5 ms away", beside_raw(&away, PAIRS_AWAY, sections), 0.56),
    ]
}
