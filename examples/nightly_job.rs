//! A nightly job that starts on every host and runs on one of them.
//!
//! ```sh
//! cargo run --example nightly_job    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! A lock alone is not enough. If the clock of a host is late, this host starts after the first one has finished. It
//! finds the lock free and runs the job again. Therefore the lock is held for at least a minute, even if the job takes
//! a second. The clocks must differ by less than that. If a host crashes while it runs the job, the other hosts are
//! excluded for that minute too.

use luagate::errors::TryAcquireError;
use luagate::{Error, Gate};
use std::time::Duration;
use std::{env, thread};

/// The code that each host runs at the scheduled time.
fn on_host(host: &str, url: &str, prefix: &str) -> Result<(), Error> {
    let gate = Gate::builder(url).prefix(prefix).label(host).open()?;
    let job = gate.mutex("report").with(|mutex| mutex.at_least(Duration::from_secs(60)));
    match job.try_lock() {
        Ok(lock) => {
            println!("{host}: running the job");
            thread::sleep(Duration::from_millis(200)); // the job
            lock.release()?;
        }
        Err(TryAcquireError::Denied(_)) => println!("{host}: it runs, or ran tonight, on another host"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Three hosts that start at the same time, and one that is late. Each is a thread with a separate gate.
fn main() -> Result<(), Error> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A new lock for each run of this example. All hosts of a real job share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    thread::scope(|scope| {
        let hosts = ["host-1", "host-2", "host-3"].map(|host| scope.spawn(|| on_host(host, &url, &prefix)));
        hosts.into_iter().try_for_each(|host| host.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    println!("host-4 starts late");
    on_host("host-4", &url, &prefix)
}
