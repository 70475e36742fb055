//! The cost that the async client adds to the scripts: the same calls by the crate, and sent raw on one multiplexed
//! connection.

use crate::figure::{Figure, Limit};
use crate::rounds::{Compared, compare};
use crate::server::Server;
use crate::wire::Script;
use luagate::aio::{Gate, Semaphore};
use luagate::scripts::Keys;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const ROUNDS: usize = 15;
const PAIRS: usize = 1_000;
const TASKS: usize = 1_000;
/// Long enough that the start of the tasks does not count.
const PAIRS_OF_TASK: usize = 50;
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
            keys: Keys::semaphore(prefix, name).unwrap().names().map(str::to_owned),
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
        semaphore.try_acquire().await.unwrap().release().await.unwrap();
    }
}

/// The runtime of `#[tokio::main]`, without timers of its own.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// A runtime of one thread. With several, the time of one task depends on which thread wakes which: between 90 and 180 µs
/// for the same work.
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
    Gate::builder(&server.url).prefix(&server.prefix).open().await.unwrap()
}

fn one_task(server: &Server) -> Compared {
    let runtime = one_thread();
    let gate = runtime.block_on(gate(server));
    let semaphore = gate.semaphore("tasks", 100).lease(LEASE);
    let raw = runtime.block_on(Raw::new(&server.url, &server.prefix, "raw"));
    compare(
        ROUNDS,
        || us(&runtime, 1, PAIRS, || pairs(semaphore.clone(), PAIRS)),
        || us(&runtime, 1, PAIRS, || raw.clone().pairs("100", PAIRS)),
    )
}

fn many_tasks(server: &Server) -> Compared {
    let runtime = runtime();
    let gate = runtime.block_on(gate(server));
    let semaphore = gate.semaphore("many-tasks", TASKS as u32).lease(LEASE);
    let raw = runtime.block_on(Raw::new(&server.url, &server.prefix, "raw-many"));
    compare(
        ROUNDS,
        || us(&runtime, TASKS, PAIRS_OF_TASK, || pairs(semaphore.clone(), PAIRS_OF_TASK)),
        || us(&runtime, TASKS, PAIRS_OF_TASK, || raw.clone().pairs("1000", PAIRS_OF_TASK)),
    )
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let (one, many) = (one_task(server), many_tasks(server));
    vec![
        Figure {
            what: "acquire + release by the crate, one task".to_owned(),
            unit: "µs",
            ours: one.ours,
            beside: ("the scripts sent raw on a multiplexed connection", one.theirs),
            ratio: one.ratio,
            limit: Limit::AtMost(1.08),
        },
        Figure {
            what: format!("pairs per second by {TASKS} tasks with one gate, and as many permits"),
            unit: "/s",
            ours: 1e6 / many.ours,
            beside: ("the scripts sent raw on a multiplexed connection", 1e6 / many.theirs),
            ratio: 1.0 / many.ratio,
            limit: Limit::AtLeast(0.95),
        },
    ]
}
