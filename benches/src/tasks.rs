//! The cost that the async client adds to the scripts: the same calls by the crate, and sent raw on one
//! multiplexed connection.

use crate::figure::{Figure, Limit};
use crate::rounds::{Compared, compare};
use crate::server::Server;
use crate::wire::Script;
use luagate::scripts::Keys;
use luagate::{Gate, Lease, Semaphore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion};
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const ROUNDS: usize = 15;
const PAIRS: usize = 1_000;
/// How many tasks work at a time, the pairs of each, and the limit of the ratio. There are so many pairs that
/// the start of the tasks does not count.
const CROWDS: [(usize, usize, f64); 3] = [(64, 400, 1.0), (200, 150, 1.0), (1_000, 50, 0.95)];
const BESIDE: &str = "the scripts sent raw on a multiplexed connection";
const LEASE: Duration = Duration::from_secs(30);

/// Sends pairs of calls, and does nothing else. Its clones share a connection.
#[derive(Clone)]
pub struct Raw {
    con: MultiplexedConnection,
    acquire: Script,
    release: Script,
    keys: [String; 3],
}

/// A connection as a gate has it: with RESP3, and without a time limit for a call.
pub async fn connection(url: &str, config: AsyncConnectionConfig) -> MultiplexedConnection {
    let info = url.into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = redis::Client::open(info.set_redis_settings(settings)).unwrap();
    let config = config.set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

impl Raw {
    pub async fn new(url: &str, prefix: &str, name: &str) -> Raw {
        let mut con = redis::Client::open(url).unwrap().get_connection().unwrap();
        Raw {
            con: connection(url, AsyncConnectionConfig::new()).await,
            acquire: Script::of_manifest(&mut con, "semaphore/acquire"),
            release: Script::of_manifest(&mut con, "semaphore/release"),
            keys: Keys::semaphore(prefix, name).unwrap().list().map(str::to_owned),
        }
    }

    pub async fn pairs(mut self, limit: &'static str, count: usize) {
        let keys = self.keys.each_ref().map(String::as_str);
        for _ in 0..count {
            let id = uuid::Uuid::new_v4().to_string();
            let granted = self.acquire.call(&keys, &[&id, "1", limit, "30000", "0", "", "0"]);
            granted.exec_async(&mut self.con).await.unwrap();
            self.release.call(&keys, &[&id, "0"]).exec_async(&mut self.con).await.unwrap();
        }
    }
}

pub async fn pairs(semaphore: Semaphore, count: usize) {
    for _ in 0..count {
        semaphore.try_acquire_async().await.unwrap().release_async().await.unwrap();
    }
}

/// The runtime of `#[tokio::main]`, without timers of its own.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// A runtime of one thread. With several, the time of one task depends on which thread wakes which: between
/// 90 and 180 µs for the same work.
fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The time per pair when this number of tasks do the same work, in µs. `count`: the pairs of each task.
fn us<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    tasks: usize,
    count: usize,
    work: impl Fn() -> F,
) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(work())).collect();
    let pairs = tasks.len() * count;
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    start.elapsed().as_secs_f64() * 1e6 / pairs as f64
}

pub async fn gate(server: &Server) -> Gate {
    Gate::builder(&server.url).prefix(&server.prefix).open_async().await.unwrap()
}

fn one_task(server: &Server) -> Compared {
    let runtime = one_thread();
    let gate = runtime.block_on(gate(server));
    let semaphore = gate.semaphore("tasks", 100).lease(Lease::fixed(LEASE));
    let raw = runtime.block_on(Raw::new(&server.url, &server.prefix, "raw"));
    compare(
        ROUNDS,
        || us(&runtime, 1, PAIRS, || pairs(semaphore.clone(), PAIRS)),
        || us(&runtime, 1, PAIRS, || raw.clone().pairs("100", PAIRS)),
    )
}

/// The processor time of this process per pair, in µs.
fn processor_us<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    tasks: usize,
    count: usize,
    work: impl Fn() -> F,
) -> f64 {
    let begun = used_us();
    us(runtime, tasks, count, work);
    (used_us() - begun) / (tasks * count) as f64
}

/// The processor time of this process until now, in µs.
pub fn used_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// So many tasks, each of which does so many pairs.
fn crowd(server: &Server, tasks: usize, count: usize, is_processor_time: bool) -> Compared {
    let runtime = runtime();
    let gate = runtime.block_on(gate(server));
    let semaphore = gate.semaphore("many-tasks", 1_000).lease(Lease::fixed(LEASE));
    let raw = runtime.block_on(Raw::new(&server.url, &server.prefix, "raw-many"));
    let (ours, theirs) = (|| pairs(semaphore.clone(), count), || raw.clone().pairs("1000", count));
    if is_processor_time {
        compare(
            ROUNDS,
            || processor_us(&runtime, tasks, count, ours),
            || processor_us(&runtime, tasks, count, theirs),
        )
    } else {
        compare(ROUNDS, || us(&runtime, tasks, count, ours), || us(&runtime, tasks, count, theirs))
    }
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let one = one_task(server);
    let mut figures = vec![Figure {
        what: "acquire + release by the crate, one task".to_owned(),
        unit: "µs",
        ours: one.ours,
        beside: (BESIDE, one.theirs),
        ratio: one.ratio,
        limit: Limit::AtMost(1.1),
    }];
    figures.extend(CROWDS.map(|(tasks, count, limit)| {
        let many = crowd(server, tasks, count, false);
        Figure {
            what: format!("pairs per second by {tasks} tasks with one gate, and as many permits"),
            unit: "/s",
            ours: 1e6 / many.ours,
            beside: (BESIDE, 1e6 / many.theirs),
            ratio: 1.0 / many.ratio,
            limit: Limit::AtLeast(limit),
        }
    }));
    let (tasks, count, _) = CROWDS[CROWDS.len() - 1];
    let processor = crowd(server, tasks, count, true);
    figures.push(Figure {
        what: format!("processor time of the client for a pair, {tasks} tasks"),
        unit: "µs",
        ours: processor.ours,
        beside: (BESIDE, processor.theirs),
        ratio: processor.ratio,
        limit: Limit::AtMost(1.1),
    });
    figures
}
