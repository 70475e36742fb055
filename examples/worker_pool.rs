//! Workers that export data for many customers: at most three exports of a customer and 100 in total at the
//! same time, over all processes. A customer with many jobs makes only the own line longer.
//!
//! ```sh
//! printf 'anna report\nanna photos\nbob report\n' | cargo run --example worker_pool    # REDIS_URL is the server
//! ```
//!
//! Each line of the input is a job: the customer and the name of the export. Ctrl-C or SIGTERM ends the
//! waits, and lets the exports that run end. Jobs that were not done are written to the standard error, and
//! the exit status is 1. JOB_MS is the duration of an export in milliseconds.

use luagate::{Cancel, Gate, Released};
use std::env;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;

/// Jobs that one process has at the same time. Most of them wait in line, which costs no thread and no
/// connection.
const JOBS: usize = 1_000;

async fn run(gate: Gate, stop: Cancel, job: String, time: Duration) -> Result<(), String> {
    let done = export(&gate, &stop, &job, time).await;
    done.map_err(|why| format!("not done: {job}: {why}"))
}

async fn export(gate: &Gate, stop: &Cancel, job: &str, time: Duration) -> Result<(), luagate::Error> {
    let (customer, _) = job.split_once(' ').unwrap_or((job, ""));
    let name = luagate::name_from(&format!("export:customer:{customer}")); // valid for any text
    let (customer, total) = (gate.semaphore(&name, 3), gate.semaphore("export:total", 100));
    // One permit of each, or none: in line for the customer first, and then for the total.
    let both = gate.several([(&customer, 1), (&total, 1)]).with(|semaphore| semaphore.cancelled_by(stop));
    let permits = both.acquire_async().await?;
    println!("begins: {job}");
    tokio::select! {
        () = tokio::time::sleep(time) => {} // the export
        // Another export may have a permit now, so this one is dropped.
        lost = permits.lost_async() => return Err(lost.into()),
    }
    println!("ends: {job}");
    if permits.release_async().await? == Released::Gone {
        eprintln!("{job}: a permit was lost at the end");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let time = Duration::from_millis(env::var("JOB_MS").unwrap_or_else(|_| "500".to_owned()).parse()?);
    let gate = Gate::builder(&url).label("exports").open_async().await?;
    let (stop, mut lines, mut jobs) = (Cancel::new(), input(), JoinSet::new());
    let (mut is_open, mut failed, mut stopped) = (true, 0, pin!(stopped()));
    while is_open || !jobs.is_empty() {
        tokio::select! {
            line = lines.recv(), if is_open && jobs.len() < JOBS => match line {
                Some(job) => drop(jobs.spawn(run(gate.clone(), stop.clone(), job, time))),
                None => is_open = false,
            },
            Some(done) = jobs.join_next() => if let Err(why) = done? {
                eprintln!("{why}");
                failed += 1;
            },
            () = &mut stopped, if !stop.is_cancelled() => {
                stop.cancel(); // ends all waits, and each later one at once
                is_open = false;
            }
        }
    }
    gate.flush_async().await?; // waits until the server has confirmed all releases
    if failed > 0 { Err(format!("{failed} jobs were not done").into()) } else { Ok(()) }
}

/// The lines of the standard input, in place of your queue.
fn input() -> Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok).filter(|line| !line.is_empty());
        lines.map(|line| sender.blocking_send(line)).all(|sent| sent.is_ok())
    });
    receiver
}

/// Returns when the process must stop: at Ctrl-C, and on Unix at SIGTERM too.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
