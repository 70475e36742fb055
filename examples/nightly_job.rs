//! A nightly job. Cron starts this program on every host, and it runs the job on one of them.
//!
//! ```sh
//! cargo run --example nightly_job -- report    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! A lock alone is not enough. If the clock of a host is late, this host starts after the first one has
//! finished. It finds the lock free and runs the job again. Therefore the lock is held for at least ten
//! minutes, even if the job takes a second. The clocks must differ by less than that. If a host crashes while
//! it runs the job, the other hosts are excluded for that time too. Without your own code, `luagate try` does
//! the same: `examples/deploy/cronjob.yaml`. STEP_MS is the duration of a step of the job in milliseconds.

use luagate::errors::TryAcquireError;
use luagate::{Gate, Permit, Released};
use std::env;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

/// The job. It checks its lock before each step. Pass `lock.fence()` to the data store, which refuses lower
/// ones.
fn run_job(job: &str, lock: &Permit, step: Duration) -> Result<(), Box<dyn Error>> {
    for number in 1..=10 {
        if lock.is_lost() {
            return Err(format!("{job}: the lock was lost before step {number}").into());
        }
        sleep(step); // a step, for example a batch of rows
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let job = env::args().nth(1).unwrap_or_else(|| "report".to_owned());
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let step = Duration::from_millis(env::var("STEP_MS").unwrap_or_else(|_| "20".to_owned()).parse()?);
    let gate = Gate::open(&url)?;
    let mutex = gate.mutex(&format!("nightly:{job}")).with(|mutex| mutex.at_least(Duration::from_secs(600)));
    let lock = match mutex.try_lock() {
        Ok(lock) => lock,
        Err(TryAcquireError::Denied(_)) => {
            println!("{job}: runs on another host, or ran there tonight");
            return Ok(()); // no mail from cron
        }
        Err(error) => return Err(error.into()),
    };
    println!("{job}: runs on this host");
    run_job(&job, &lock, step)?; // on an error, the lock is dropped, and stays in use until the ten minutes are over
    if lock.release()? == Released::Gone {
        return Err(format!("{job}: the lock was lost during the last step").into());
    }
    println!("{job}: done");
    Ok(())
}
