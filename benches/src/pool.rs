//! What a gate gives to more threads than it has connections, beside a pool whose connections each carry one call at a time.

use crate::figure::{Figure, Limit};
use crate::rounds::compare;
use crate::server::Server;
use crate::wire::Script;
use redis::{Cmd, Connection};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const THREADS: usize = 32;
const PAIRS: usize = 150;

/// As many as a gate has.
const CONNECTIONS: usize = 8;

struct Pool {
    idle: Mutex<Vec<Connection>>,
    back: Condvar,
}

impl Pool {
    fn call(&self, command: &Cmd) {
        let idle = self.idle.lock().unwrap();
        let mut idle = self.back.wait_while(idle, |idle| idle.is_empty()).unwrap();
        let mut con = idle.pop().unwrap();
        drop(idle);
        command.exec(&mut con).unwrap();
        self.idle.lock().unwrap().push(con);
        self.back.notify_one();
    }
}

/// How many pairs a second all threads do.
fn pairs_a_second(pair: &(dyn Fn() + Sync)) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..PAIRS).for_each(|_| pair()));
        }
    });
    (THREADS * PAIRS) as f64 / start.elapsed().as_secs_f64()
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let semaphore = server.gate().semaphore("threads", 100);
    let semaphore = semaphore.lease(Duration::from_secs(30));
    let mut con = server.connection();
    let acquire = Script::of_manifest(&mut con, "semaphore/acquire");
    let release = Script::of_manifest(&mut con, "semaphore/release");
    let keys = server.keys("pool");
    let keys = keys.names();
    let pool = Pool {
        idle: Mutex::new((0..CONNECTIONS).map(|_| server.connection()).collect()),
        back: Condvar::new(),
    };
    let compared = compare(
        ROUNDS,
        || {
            pairs_a_second(&|| {
                semaphore.try_acquire().unwrap().release().unwrap();
            })
        },
        || {
            pairs_a_second(&|| {
                let id = uuid::Uuid::new_v4().to_string();
                pool.call(&acquire.call(&keys, &[&id, "1", "100", "30000", "0", "", "0"]));
                pool.call(&release.call(&keys, &[&id, "0"]));
            })
        },
    );
    vec![Figure {
        what: format!("pairs a second by {THREADS} threads with one gate"),
        unit: "/s",
        ours: compared.ours,
        beside: (
            "a pool of 8 connections, a call at a time on each",
            compared.theirs,
        ),
        ratio: compared.ratio,
        limit: Limit::AtLeast(1.5),
    }]
}
