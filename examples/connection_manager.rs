//! Eight exports, at most three at the same time over all processes, on the `ConnectionManager` that an async
//! program already has. luagate opens no connection and starts no thread here.
//!
//! ```sh
//! cargo run --example connection_manager    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! An export that finds no free permit stays in line and asks again, at least every 50 ms. A lease is not
//! renewed: it is longer than the longest export.

use luagate::errors::CallError;
use luagate::scripts::semaphore::{Acquire, AcquireAnswer, Ask, Grant, Release, ReleaseAnswer};
use luagate::scripts::{self, Call, Keys};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

const LIMIT: u32 = 3;
const EXPORTS: u32 = 8;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Runs one script. The text of the script is sent only if the server does not have it.
async fn run<C: Call>(con: &mut ConnectionManager, call: &C) -> Result<C::Answer, CallError> {
    let mut reply = scripts::evalsha(call).query_async(con).await;
    if scripts::is_no_script(&reply) {
        reply = scripts::eval(call).query_async(con).await;
    }
    scripts::read(call, reply)
}

/// Waits in line until the permit is granted.
async fn acquire(con: &mut ConnectionManager, keys: &Keys, id: &str) -> Outcome<Grant> {
    let ask = Ask { id, limit: LIMIT, lease_ms: 30_000, wait_ms: 10_000, ..Ask::default() };
    loop {
        match run(con, &Acquire { keys, ask }).await? {
            AcquireAnswer::Granted(grant, _) | AcquireAnswer::Held(grant, _) => return Ok(grant),
            AcquireAnswer::Queued { retry_after, .. } => {
                sleep(Duration::from_millis(retry_after.min(50))).await
            }
            other => return Err(format!("{id} is not in line: {other:?}").into()),
        }
    }
}

async fn export(
    mut con: ConnectionManager,
    keys: Arc<Keys>,
    id: String,
    active: Arc<AtomicU32>,
) -> Outcome<u32> {
    let grant = acquire(&mut con, &keys, &id).await?;
    let now = active.fetch_add(1, Ordering::SeqCst) + 1;
    println!("{id} runs, {now} of {LIMIT} are active");
    sleep(Duration::from_millis(100)).await; // the work
    active.fetch_sub(1, Ordering::SeqCst);

    // With its fence, a late release does not affect a later grant of this id.
    let release = Release { keys: &keys, id: &id, keep: 0, fence: Some(grant.fence) };
    match run(&mut con, &release).await? {
        ReleaseAnswer::Released { .. } => Ok(now),
        other => Err(format!("the lease of {id} ended before its work: {other:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let settings = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_response_timeout(Some(Duration::from_secs(5)));
    let con = redis::Client::open(url)?.get_connection_manager_with_config(settings).await?;
    // A prefix for this run only, so that two runs on one server do not interfere. Processes that share a
    // limit must share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let keys = Arc::new(Keys::semaphore(&prefix, "exports")?);

    let active = Arc::new(AtomicU32::new(0));
    let mut exports = JoinSet::new();
    for number in 1..=EXPORTS {
        // An id that no other process uses.
        let id = format!("export-{number}-{}", uuid::Uuid::new_v4().simple());
        exports.spawn(export(con.clone(), keys.clone(), id, active.clone()));
    }
    let (mut done, mut most) = (0, 0);
    while let Some(export) = exports.join_next().await {
        most = most.max(export??);
        done += 1;
    }
    println!("{done} of {EXPORTS} exports are done, at most {most} at the same time");
    if most <= LIMIT { Ok(()) } else { Err("more exports were active than the limit".into()) }
}
