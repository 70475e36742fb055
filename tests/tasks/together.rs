//! Promise: tasks and threads of several processes share one semaphore: the limit holds, and both are served
//! in one line.

use crate::support::{Server, process};
use crate::{own, runtime};
use luagate::Gate;
use redis::Commands;
use std::io::Read;
use std::process::Child;
use std::time::Duration;

const LIMIT: i64 = 3;
const ROUNDS: u32 = 100;
const WORKERS: usize = 4;
const LONG: Duration = Duration::from_secs(60);

/// The work of one process: workers that are tasks or threads.
pub fn work(arguments: &[String]) {
    let [url, prefix, kind] = arguments else {
        panic!("url, prefix and kind");
    };
    match kind.as_str() {
        "tasks" => runtime().block_on(work_in_tasks(url, prefix)),
        _ => work_in_threads(url, prefix),
    }
    println!("done");
}

/// Counts this holder on the server, and returns how many there are.
fn enter(con: &mut redis::Connection, prefix: &str, by: i64) -> i64 {
    con.incr(format!("{prefix}:holders"), by).unwrap()
}

async fn work_in_tasks(url: &str, prefix: &str) {
    let gate = Gate::builder(url).prefix(prefix).open_async().await.unwrap();
    let workers = (0..WORKERS).map(|_| {
        let (url, prefix, semaphore) = (url.to_owned(), prefix.to_owned(), gate.semaphore("s", LIMIT as u32));
        tokio::spawn(async move {
            let mut con = redis::Client::open(url).unwrap().get_connection().unwrap();
            for _ in 0..ROUNDS {
                let permit = semaphore.acquire_timeout_async(LONG).await.unwrap();
                let holders = enter(&mut con, &prefix, 1);
                assert!(holders <= LIMIT, "{holders} hold at the same time");
                enter(&mut con, &prefix, -1);
                permit.release_async().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
}

fn work_in_threads(url: &str, prefix: &str) {
    let gate = luagate::Gate::builder(url).prefix(prefix).open().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let semaphore = gate.semaphore("s", LIMIT as u32);
                let mut con = redis::Client::open(url).unwrap().get_connection().unwrap();
                for _ in 0..ROUNDS {
                    let permit = semaphore.acquire_timeout(LONG).unwrap();
                    let holders = enter(&mut con, prefix, 1);
                    assert!(holders <= LIMIT, "{holders} hold at the same time");
                    enter(&mut con, prefix, -1);
                    permit.release().unwrap();
                }
            });
        }
    });
}

#[test]
fn tasks_and_threads_of_four_processes_never_exceed_the_limit() {
    let server = own!(Server::private(&[]));
    let start = |kind: &str| process("work", &[&server.url, &server.prefix, kind]).spawn().unwrap();
    let mut processes: Vec<Child> = ["tasks", "threads", "tasks", "threads"].map(start).into_iter().collect();
    for process in &mut processes {
        let mut output = String::new();
        process.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(process.wait().unwrap().success() && output.contains("done"), "{output}");
    }
    let state = server.gate().semaphore("s", LIMIT as u32).inspect().unwrap();
    assert_eq!((state.holder_count, state.waiter_count), (0, 0));
}
