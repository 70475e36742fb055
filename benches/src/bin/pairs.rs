//! Acquires and releases a number of times, and does nothing else: the program that `instructions` runs under
//! callgrind.

use luagate::Lease;
use luagate_benches::client::pairs;
use luagate_benches::tasks;
use std::time::Duration;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(3_600);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, count, by] = &arguments[..] else {
        panic!("takes url, prefix, count, and `thread`, `task` or `raw`")
    };
    let count = count.parse().unwrap();
    match &**by {
        "thread" => by_thread(url, prefix, count),
        "task" => by_task(url, prefix, count),
        "raw" => sent_raw(url, prefix, count),
        other => panic!("`thread`, `task` or `raw`, not {other}"),
    }
}

fn by_thread(url: &str, prefix: &str, count: usize) {
    // Callgrind makes the program slow, and the processors may be busy: no call must time out and be
    // repeated.
    let gate = luagate::Gate::builder(url)
        .prefix(prefix)
        .connect_timeout(PATIENCE)
        .read_timeout(PATIENCE)
        .open()
        .unwrap();
    // A fixed lease, so that no thread renews it in the meantime.
    pairs(&gate.semaphore("pairs", 1).lease(Lease::fixed(LEASE)), count);
}

/// All in one thread, so that the count does not depend on which thread wakes which.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The scripts sent raw by a task, to compare with.
fn sent_raw(url: &str, prefix: &str, count: usize) {
    runtime().block_on(async { tasks::Raw::new(url, prefix, "pairs").await.pairs("1", count).await });
}

fn by_task(url: &str, prefix: &str, count: usize) {
    runtime().block_on(async {
        let gate = luagate::Gate::builder(url).prefix(prefix);
        let gate = gate.connect_timeout(PATIENCE).read_timeout(PATIENCE).open_async().await.unwrap();
        tasks::pairs(gate.semaphore("pairs", 1).lease(Lease::fixed(LEASE)), count).await;
    });
}
