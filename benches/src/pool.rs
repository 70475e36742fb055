//! The throughput of a gate with more threads than connections, compared with a pool that carries one call at a time on
//! each connection.

use crate::client::{pairs, together_us};
use crate::distance;
use crate::figure::{Figure, Limit};
use crate::rounds::compare;
use crate::server::Server;
use crate::wire::Script;
use luagate::Gate;
use redis::{Cmd, Connection};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const ROUNDS: usize = 15;
const THREADS: usize = 32;
const PAIRS: usize = 150;

/// The delay of a call and its reply to a server in the same data centre.
const AWAY: Duration = Duration::from_micros(500);

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

pub fn measure(server: &Server) -> Vec<Figure> {
    let away = distance::away(server.address(), AWAY);
    vec![
        beside_a_pool(server, &server.url, "with one gate"),
        beside_a_pool(server, &away, "with one gate, a server 0.5 ms away"),
    ]
}

fn beside_a_pool(server: &Server, url: &str, how: &str) -> Figure {
    let gate = Gate::builder(url).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("threads", 100);
    let semaphore = semaphore.lease(Duration::from_secs(30));
    let client = redis::Client::open(url).unwrap();
    let connections = (0..CONNECTIONS).map(|_| client.get_connection().unwrap());
    let pool = Pool { idle: Mutex::new(connections.collect()), back: Condvar::new() };
    let mut con = server.connection();
    let acquire = Script::of_manifest(&mut con, "semaphore/acquire");
    let release = Script::of_manifest(&mut con, "semaphore/release");
    let keys = server.keys("pool");
    let keys = keys.names();
    let pair_of_pool = || {
        let id = uuid::Uuid::new_v4().to_string();
        pool.call(&acquire.call(&keys, &[&id, "1", "100", "30000", "0", "", "0"]));
        pool.call(&release.call(&keys, &[&id, "0"]));
    };
    let compared = compare(
        ROUNDS,
        || together_us(THREADS, PAIRS, || pairs(&semaphore, PAIRS)),
        || together_us(THREADS, PAIRS, || (0..PAIRS).for_each(|_| pair_of_pool())),
    );
    Figure {
        what: format!("pairs per second by {THREADS} threads {how}"),
        unit: "/s",
        ours: 1e6 / compared.ours,
        beside: ("a pool of 8 connections, one call at a time on each", 1e6 / compared.theirs),
        ratio: 1.0 / compared.ratio,
        limit: Limit::AtLeast(1.5),
    }
}
