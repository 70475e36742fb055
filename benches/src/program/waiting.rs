//! The memory of the client for each task that waits in line, beside a thread that waits.

use luagate::{Lease, admin};
use luagate_benches::figure::{Figure, Limit};
use luagate_benches::server::Server;
use luagate_benches::tasks::runtime;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TASKS: usize = 10_000;
const THREADS: usize = 1_000;

/// Waiters that are there before the memory is measured: the connection and its buffers exist then.
const BEFORE: usize = 100;

const LEASE: Duration = Duration::from_secs(3_600);

/// The work of the other process, whose memory is measured.
const WAITING: [&str; 2] = ["--tasks-in-line", "--threads-in-line"];

/// The memory that this process uses, in bytes.
fn rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    kb.and_then(|kb| kb.trim().parse::<f64>().ok()).map_or(f64::NAN, |kb| kb * 1024.0)
}

/// Returns false if the arguments do not name this work.
pub fn work(arguments: &[String]) -> bool {
    match arguments {
        [job, url, prefix] if job == WAITING[0] => tasks(url, prefix),
        [job, url, prefix] if job == WAITING[1] => threads(url, prefix),
        _ => return false,
    }
    true
}

/// Prints by how many bytes the memory has grown for each waiter, once all wait. Then waits until it is
/// killed.
fn report(count: usize, start: &mut dyn FnMut(usize), waiting: &mut dyn FnMut() -> u64) {
    let mut start_all = |count: usize, all: usize| {
        (0..count).for_each(&mut *start);
        while waiting() < all as u64 {
            std::thread::sleep(Duration::from_millis(50));
        }
        rss()
    };
    let before = start_all(BEFORE, BEFORE);
    let after = start_all(count, BEFORE + count);
    println!("{}", (after - before) / count as f64);
    std::thread::park();
}

fn tasks(url: &str, prefix: &str) {
    let runtime = runtime();
    let gate = luagate::Gate::builder(url).prefix(prefix).read_timeout(Duration::from_secs(30));
    let semaphore =
        runtime.block_on(gate.open_async()).unwrap().semaphore("tasks-in-line", 1).lease(Lease::fixed(LEASE));
    let held = runtime.block_on(semaphore.try_acquire_async()).unwrap();
    report(
        TASKS,
        &mut |_| {
            let semaphore = semaphore.clone();
            runtime.spawn(async move { drop(semaphore.acquire_async().await.unwrap()) });
        },
        &mut || runtime.block_on(semaphore.inspect_async()).unwrap().waiter_count,
    );
    drop(held);
}

fn threads(url: &str, prefix: &str) {
    let gate =
        luagate::Gate::builder(url).prefix(prefix).read_timeout(Duration::from_secs(30)).open().unwrap();
    let semaphore = gate.semaphore("threads-in-line", 1).lease(Lease::fixed(LEASE));
    let held = semaphore.try_acquire().unwrap();
    report(
        THREADS,
        &mut |_| {
            let semaphore = semaphore.clone();
            std::thread::spawn(move || drop(semaphore.acquire().unwrap()));
        },
        &mut || admin::inspect_page(&semaphore, 0, 0).unwrap().waiter_count,
    );
    drop(held);
}

/// A process that is killed when this is dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connections(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    list.lines().count()
}

/// The bytes for each waiter, and the connections of all of them.
fn each(server: &Server, job: &str) -> (f64, usize) {
    let before = connections(server);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([job, &server.url, &server.prefix]).stdout(Stdio::piped());
    let mut other = Other(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(other.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let bytes = line.trim().parse().unwrap_or_else(|_| panic!("{job} failed: {line}"));
    (bytes, connections(server) - before)
}

pub fn measure(server: &Server) -> Vec<Figure> {
    let [(of_task, connections), (of_thread, _)] = WAITING.map(|job| each(server, job));
    if of_task.is_nan() {
        return Vec::new(); // this system does not tell
    }
    vec![Figure {
        what: format!(
            "memory of a task that waits in line, of {TASKS} on one gate (connections: {connections})"
        ),
        unit: "bytes",
        ours: of_task,
        beside: ("a thread that waits in line, of 1000", of_thread),
        ratio: of_task / of_thread,
        limit: Limit::None,
    }]
}
