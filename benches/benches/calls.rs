//! Compares the time of calls before and after a change: `cargo bench -p luagate-benches [WORD]`. Each group measures
//! the crate, the same script sent raw, and a minimal command with a similar effect. Run it with `-- --save-baseline
//! before`, change the code, then run it with `-- --baseline before`.

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use luagate::scripts::semaphore::{self, AcquireAnswer, Ask};
use luagate::{Lease, Permit};
use luagate_benches::client::{Raw, pairs};
use luagate_benches::script_time::Scripts;
use luagate_benches::server::Server;
use luagate_benches::threads::{apart_us, together_us};
use redis::{Commands, Connection};
use std::time::Duration;

const THREADS: usize = 8;
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MS: &str = "30000";
const LIMIT: &str = "100";

/// The scripts on a plain connection.
struct Plain {
    con: Connection,
    scripts: Scripts,
}

impl Plain {
    fn new(server: &Server, name: &str) -> Plain {
        let mut con = server.connection();
        Plain { scripts: Scripts::load(&mut con, server, name), con }
    }

    fn keys(&self) -> [&str; 3] {
        self.scripts.keys.each_ref().map(String::as_str)
    }

    /// Returns the first word of the reply.
    fn acquire(&mut self, id: &str, limit: &str, wait_ms: &str) -> String {
        let arguments = [id, "1", limit, LEASE_MS, wait_ms, "", "0"];
        let call = self.scripts.acquire.call(&self.keys(), &arguments);
        let reply: Vec<redis::Value> = call.query(&mut self.con).unwrap();
        redis::from_redis_value(reply.into_iter().next().unwrap()).unwrap()
    }

    fn release(&mut self, id: &str) {
        let call = self.scripts.release.call(&self.keys(), &[id, "0"]);
        call.exec(&mut self.con).unwrap();
    }

    fn refresh(&mut self, id: &str) {
        let call = self.scripts.refresh.call(&self.keys(), &[id, LEASE_MS]);
        call.exec(&mut self.con).unwrap();
    }

    fn bare_acquire(&mut self, id: &str, limit: &str) -> bool {
        let call = self.scripts.bare_acquire.call(&[&self.scripts.bare_key], &[id, limit, LEASE_MS]);
        call.query(&mut self.con).unwrap()
    }

    fn bare_release(&mut self, id: &str) {
        let call = self.scripts.bare_release.call(&[&self.scripts.bare_key], &[id]);
        call.exec(&mut self.con).unwrap();
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn start() -> Server {
    Server::private(&[]).expect("a redis-server or valkey-server on the PATH")
}

fn pair(criterion: &mut Criterion) {
    let server = start();
    let semaphore = server.gate().semaphore("crate", 100).lease(Lease::fixed(LEASE));
    let (mut raw, mut plain) = (Raw::new(&server, "raw"), Plain::new(&server, "bare"));
    let mut group = criterion.benchmark_group("acquire + release");
    group.bench_function("crate", |bencher| bencher.iter(|| pairs(&semaphore, 1)));
    group.bench_function("raw", |bencher| bencher.iter(|| raw.pairs(1)));
    group.bench_function("bare sorted set", |bencher| {
        bencher.iter(|| {
            let id = new_id();
            assert!(plain.bare_acquire(&id, LIMIT));
            plain.bare_release(&id);
        });
    });
}

fn denied(criterion: &mut Criterion) {
    let server = start();
    let mut plain = Plain::new(&server, "full");
    let full = server.gate().semaphore("full", 1).lease(Lease::fixed(Duration::from_secs(3_600)));
    let holder = full.acquire().unwrap();
    assert!(plain.bare_acquire("holder", "1"));
    let mut group = criterion.benchmark_group("denied");
    group.bench_function("crate", |bencher| {
        bencher.iter(|| full.try_acquire().unwrap_err());
    });
    group.bench_function("raw", |bencher| {
        bencher.iter(|| assert_eq!(plain.acquire(&new_id(), "1", "0"), "denied"));
    });
    group.bench_function("bare sorted set", |bencher| {
        bencher.iter(|| plain.bare_acquire(&new_id(), "1"));
    });
    group.finish();
    holder.release().unwrap();
}

fn refresh(criterion: &mut Criterion) {
    let server = start();
    let semaphore = server.gate().semaphore("held", 100).lease(Lease::fixed(LEASE));
    let mut plain = Plain::new(&server, "held");
    let permit: Permit = semaphore.acquire().unwrap();
    let mut group = criterion.benchmark_group("refresh");
    group.bench_function("crate", |bencher| bencher.iter(|| permit.refresh().unwrap()));
    group.bench_function("raw", |bencher| bencher.iter(|| plain.refresh(permit.id())));
    group.bench_function("bare ZADD", |bencher| {
        let key = plain.scripts.bare_key.clone();
        bencher.iter(|| plain.con.zadd::<_, _, _, ()>(&key, permit.id(), 1).unwrap());
    });
    group.finish();
    permit.release().unwrap();
}

/// Joins the line, then leaves it.
fn in_line(criterion: &mut Criterion) {
    let server = start();
    let keys = server.keys("line");
    let mut plain = Plain::new(&server, "line");
    let full = server.gate().semaphore("line", 1).lease(Lease::fixed(Duration::from_secs(3_600)));
    let holder = full.acquire().unwrap();
    let mut con = server.connection();
    let mut group = criterion.benchmark_group("join + leave the line");
    group.bench_function("crate", |bencher| {
        bencher.iter(|| {
            let id = new_id();
            let ask = Ask { id: &id, limit: 1, wait_ms: 60_000, ..Ask::default() };
            let answer = semaphore::acquire(&mut con, &keys, &ask).unwrap();
            assert!(matches!(answer, AcquireAnswer::Queued { .. }));
            semaphore::release(&mut con, &keys, &id, 0, None).unwrap();
        });
    });
    group.bench_function("raw", |bencher| {
        bencher.iter(|| {
            let id = new_id();
            assert_eq!(plain.acquire(&id, "1", "60000"), "queued");
            plain.release(&id);
        });
    });
    group.bench_function("bare ZADD + ZREM", |bencher| {
        let key = plain.scripts.bare_key.clone();
        bencher.iter(|| {
            let id = new_id();
            plain.con.zadd::<_, _, _, ()>(&key, &id, 1).unwrap();
            plain.con.zrem::<_, _, ()>(&key, &id).unwrap();
        });
    });
    group.finish();
    holder.release().unwrap();
}

fn threads(criterion: &mut Criterion) {
    let server = start();
    let semaphore = server.gate().semaphore("crate", 100).lease(Lease::fixed(LEASE));
    let mut raws: Vec<Raw> = (0..THREADS).map(|_| Raw::new(&server, "raw")).collect();
    // The time that this number of pairs takes, counted over all threads.
    let took = |us: f64, pairs: u64| Duration::from_secs_f64(us * pairs as f64 / 1e6);
    let each = |pairs: u64| pairs.div_ceil(THREADS as u64) as usize;
    let mut group = criterion.benchmark_group("acquire + release, 8 threads");
    group.sampling_mode(SamplingMode::Flat).sample_size(20); // long samples: the start of the threads is negligible
    group.bench_function("crate", |bencher| {
        bencher.iter_custom(|count| {
            let each = each(count);
            took(together_us(THREADS, each, || pairs(&semaphore, each)), count)
        });
    });
    group.bench_function("raw", |bencher| {
        bencher.iter_custom(|pairs| took(apart_us(&mut raws, each(pairs)), pairs));
    });
}

criterion_group! {
    name = calls;
    // All benchmarks together take less than a minute.
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = pair, denied, refresh, in_line, threads
}
criterion_main!(calls);
