//! A nightly job that every host starts and one runs.
//!
//! ```sh
//! cargo run --example nightly_job    # REDIS_URL names the server; redis://127.0.0.1/ unless set
//! ```
//!
//! A lock alone is not enough: a host whose clock is late starts after the first one has finished, finds the lock free, and runs
//! the job again. So the lock is held for at least a minute, also when the job takes a second: no clock is that late. A host that
//! crashes while it runs the job keeps the others out for that minute too.

use luagate::errors::TryAcquireError;
use luagate::{Error, Gate};
use std::time::Duration;
use std::{env, thread};

/// What each host does when its clock strikes.
fn on_host(host: &str, url: &str, prefix: &str) -> Result<(), Error> {
    let gate = Gate::builder(url).prefix(prefix).label(host).open()?;
    let job = gate.mutex("report").at_least(Duration::from_secs(60));
    match job.try_lock() {
        Ok(lock) => {
            println!("{host}: running the job");
            thread::sleep(Duration::from_millis(200)); // the job
            lock.unlock()?;
        }
        Err(TryAcquireError::Denied(_)) => println!("{host}: it runs, or ran tonight, on another host"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Three hosts at once, here threads with a gate each, and one that is late.
fn main() -> Result<(), Error> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // So that each night here has a lock of its own. All hosts of a real job share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    thread::scope(|scope| {
        let hosts = ["host-1", "host-2", "host-3"].map(|host| scope.spawn(|| on_host(host, &url, &prefix)));
        hosts.into_iter().try_for_each(|host| host.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    println!("host-4 comes late");
    on_host("host-4", &url, &prefix)
}
