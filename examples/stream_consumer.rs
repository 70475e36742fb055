//! A consumer that has exclusive access to a stream for hours. It stops when it loses its lock: the lock was
//! revoked, or the lease ended during a pause or an outage. A second consumer waits, and continues at the
//! same message.
//!
//! ```sh
//! cargo run --example stream_consumer    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```

use luagate::errors::Lost;
use luagate::{Gate, Lease, Permit, scripts};
use redis::{Commands, Connection, RedisResult, Script};
use std::env;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

/// How long no consumer works after a crash. The lease is renewed after each third of it, so the lock can be
/// held for hours.
const LEASE: Duration = Duration::from_secs(1);

const MESSAGES: usize = 20;

/// A message that takes long. The first consumer loses its lock while it processes this message.
const LONG: &str = "order 10";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A prefix for this run only, so that two runs on one server do not interfere. All consumers of a real
    // stream share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let mut con = redis::Client::open(&*url)?.get_connection()?;
    let outcome = play(&url, &prefix, &mut con);
    let data = [STREAM, OFFSET, DONE].map(|key| format!("{prefix}:{key}"));
    con.del::<_, ()>(&data)?;
    outcome
}

// The same hash tag in braces as in the lock's keys: in a cluster, all keys of a script must be on one node.
const STREAM: &str = "stream:{orders}";
const OFFSET: &str = "offset:{orders}";
const DONE: &str = "done:{orders}";

/// Consumes until the end of the stream. Returns the message at which it stopped, if it lost the lock before
/// the end.
fn consume(name: &'static str, url: &str, prefix: &str) -> Outcome<Option<String>> {
    let gate = Gate::builder(url).prefix(prefix).label(name).open()?;
    let mut con = redis::Client::open(url)?.get_connection()?;
    // `on_lost` is for code that cannot check the lock itself: it wakes a blocked thread, or sends an alarm.
    let alarm = move |lost: &Lost| println!("{name}: alarm: {lost}");
    let orders = gate.mutex("orders").with(|mutex| mutex.lease(Lease::renewed(LEASE)).on_lost(alarm));

    let lock = orders.lock()?; // in line: granted as soon as the lock is free
    println!("{name}: it is mine, with fence {}", lock.fence());
    let mut offset: String = con.get(format!("{prefix}:{OFFSET}"))?;
    while let Some((id, order)) = next(&mut con, prefix, &offset)? {
        if !process(&order, &lock) {
            println!("{name}: stopped in the middle of {order}");
            return Ok(Some(order));
        }
        if !commit(&mut con, prefix, &lock, &id, &order)? {
            println!("{name}: stopped, because the lock was lost before {order} was stored");
            return Ok(Some(order));
        }
        offset = id;
    }
    println!("{name}: the end of the stream");
    lock.release()?;
    Ok(None)
}

/// The message after this offset.
fn next(con: &mut Connection, prefix: &str, offset: &str) -> RedisResult<Option<(String, String)>> {
    let mut range = redis::cmd("XRANGE");
    range.arg(format!("{prefix}:{STREAM}")).arg(format!("({offset}")).arg("+");
    let found: Vec<(String, (String, String))> = range.arg("COUNT").arg(1).query(con)?;
    Ok(found.into_iter().next().map(|(id, (_field, order))| (id, order)))
}

/// Processes an order in small steps. Returns false if it stopped because the lock was lost. A real one
/// passes the fence to other systems.
fn process(order: &str, lock: &Permit) -> bool {
    let steps = if order == LONG { 100 } else { 1 };
    for _ in 0..steps {
        if lock.is_lost() {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Writes the result of a message and the new offset together, and only if the lock is held. `is_lost` is a
/// fast check; only this check is certain.
fn commit(con: &mut Connection, prefix: &str, lock: &Permit, id: &str, order: &str) -> RedisResult<bool> {
    let script = Script::new(&format!(
        "{holds}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3])
        redis.call('RPUSH', KEYS[5], ARGV[4])
        return 1",
        holds = scripts::HOLDS
    ));
    script
        .key(&lock.keys().list())
        .key(format!("{prefix}:{OFFSET}"))
        .key(format!("{prefix}:{DONE}"))
        .arg((lock.id(), lock.fence(), id, order))
        .invoke(con)
}

/// Two consumers. The operator revokes the lock of the one that holds it.
fn play(url: &str, prefix: &str, con: &mut Connection) -> Outcome<()> {
    let orders: Vec<String> = (0..MESSAGES).map(|n| format!("order {n}")).collect();
    for order in &orders {
        let mut add = redis::cmd("XADD");
        add.arg(format!("{prefix}:{STREAM}")).arg("*").arg("order").arg(order).exec(con)?;
    }
    con.set::<_, _, ()>(format!("{prefix}:{OFFSET}"), "0-0")?;
    let gate = Gate::builder(url).prefix(prefix).open()?;

    let stops = thread::scope(|scope| {
        let consumers =
            ["consumer-1", "consumer-2"].map(|name| scope.spawn(move || consume(name, url, prefix)));
        let until = Instant::now() + Duration::from_secs(10);
        // Until a consumer processes the message that takes long.
        while con.llen::<_, usize>(format!("{prefix}:{DONE}"))? < 10 && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(holder) = gate.mutex("orders").inspect()?.holders.first() {
            gate.mutex("orders").revoke(&holder.id)?;
            println!("operator: revoked the lock of {}", holder.label().unwrap_or("nobody"));
        }
        let mut stops = Vec::new();
        for consumer in consumers {
            stops.extend(consumer.join().map_err(|_| "a consumer panicked")??);
        }
        Outcome::Ok(stops)
    })?;
    let done: Vec<String> = con.lrange(format!("{prefix}:{DONE}"), 0, -1)?;
    println!("{} of {MESSAGES} orders are done, in order: {}", done.len(), done == orders);
    match (done == orders, &stops[..]) {
        (true, [at]) if at == LONG => Ok(()),
        (true, stops) => Err(format!("expected one consumer to stop at {LONG}, got {stops:?}").into()),
        (false, _) => Err(format!("orders were done twice, never, or out of order: {done:?}").into()),
    }
}
