//! Jobs that run or are skipped: at most three at the same time over all processes, on a `bb8` pool of the
//! program.
//!
//! ```sh
//! cargo run --example bb8_pool    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! Five jobs start while three permits are free. Two are skipped, and run after the others have released. A
//! call whose reply was lost is repeated with the same id, which grants nothing twice.

use bb8_redis::RedisConnectionManager;
use bb8_redis::bb8::Pool;
use luagate::errors::CallError;
use luagate::scripts::semaphore::{Acquire, AcquireAnswer, Ask, Grant, Release, ReleaseAnswer};
use luagate::scripts::{self, Call, Keys};
use std::env;
use std::error::Error;

const LIMIT: u32 = 3;

/// How often a call is sent at most. Each time takes a connection that the pool has checked.
const ATTEMPTS: u32 = 3;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs one script on a connection of the pool.
async fn run<C: Call>(pool: &Pool<RedisConnectionManager>, call: &C) -> Outcome<C::Answer> {
    let mut attempt = 1;
    loop {
        let mut con = pool.get().await?;
        let mut reply = scripts::evalsha(call).query_async(&mut *con).await;
        if scripts::is_no_script(&reply) {
            reply = scripts::eval(call).query_async(&mut *con).await;
        }
        match scripts::read(call, reply) {
            // The server may have run the call or not.
            Err(CallError::Unknown(_)) if attempt < ATTEMPTS => attempt += 1,
            answer => return Ok(answer?),
        }
    }
}

/// Takes a permit if one is free, and does not wait.
async fn try_acquire(pool: &Pool<RedisConnectionManager>, keys: &Keys, id: &str) -> Outcome<Option<Grant>> {
    let ask = Ask { id, limit: LIMIT, lease_ms: 30_000, ..Ask::default() };
    match run(pool, &Acquire { keys, ask }).await? {
        AcquireAnswer::Granted(grant, usage) | AcquireAnswer::Held(grant, usage) => {
            println!("{id} runs, {} of {} permits are in use", usage.in_use, usage.limit);
            Ok(Some(grant))
        }
        AcquireAnswer::Denied { next_expiry, .. } => {
            println!(
                "{id} is skipped: the next lease ends in at most {} ms",
                next_expiry.unwrap_or_default()
            );
            Ok(None)
        }
        other => Err(format!("{id}: {other:?}").into()),
    }
}

async fn release(pool: &Pool<RedisConnectionManager>, keys: &Keys, id: &str, grant: &Grant) -> Outcome<()> {
    let release = Release { keys, id, keep: 0, fence: Some(grant.fence) };
    match run(pool, &release).await? {
        ReleaseAnswer::Released { usage, .. } => {
            println!("{id} is done, {} permits are in use", usage.in_use)
        }
        // Either the lease had ended, or an earlier attempt has released the permit.
        other => println!("{id} held no permit any more: {other:?}"),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let manager = RedisConnectionManager::new(url)?;
    // One connection is opened now. So a wrong address is an error here.
    let pool = Pool::builder().max_size(4).min_idle(1).retry_connection(false).build(manager).await?;
    // A prefix for this run only, so that two runs on one server do not interfere. Processes that share a
    // limit must share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let keys = Keys::semaphore(&prefix, "jobs")?;

    let (mut active, mut skipped) = (Vec::new(), Vec::new());
    for number in 1..=5 {
        let id = format!("job-{number}");
        match try_acquire(&pool, &keys, &id).await? {
            Some(grant) => active.push((id, grant)),
            None => skipped.push(id),
        }
    }
    for (id, grant) in &active {
        release(&pool, &keys, id, grant).await?;
    }
    for id in &skipped {
        let grant = try_acquire(&pool, &keys, id).await?.ok_or("no permit is free after all releases")?;
        release(&pool, &keys, id, &grant).await?;
    }
    println!("{} ran at once, {} later", active.len(), skipped.len());
    if active.len() <= LIMIT as usize { Ok(()) } else { Err("more jobs ran than the limit".into()) }
}
