//! A holder is paused for longer than its lease and then writes. The write is refused.
//!
//! ```sh
//! cargo run --example paused_holder    # REDIS_URL is the address of the server; default: redis://127.0.0.1/
//! ```
//!
//! No check of a clock can prevent such a write, because the pause may come after the check. Therefore the
//! script that writes also checks that its caller still holds the lock. If the data is elsewhere, for example
//! in a database, pass the fence to it. The database must refuse every fence lower than the highest one it
//! has seen.

use luagate::{Gate, Lease, Permit, scripts};
use redis::{Commands, Connection, RedisResult, Script};
use std::env;
use std::error::Error;
use std::time::Duration;

/// Longer than the longest work. Without renewal, it simulates a process that is paused as a whole, including
/// the thread that renews leases.
const LEASE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A prefix for this run only, so that two runs on one server do not interfere. All processes of a real
    // application share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let gate = Gate::builder(&url).prefix(&prefix).open()?;
    let mut con = redis::Client::open(url)?.get_connection()?;
    let account = gate.mutex("account:17").with(|mutex| mutex.lease(Lease::fixed(LEASE)));
    // The same hash tag in braces as in the lock's keys: in a cluster, all keys of a script must be on one
    // node.
    let balance = format!("{prefix}:balance:{{account:17}}");

    let first = account.lock()?;
    println!("first has the lock, with fence {}", first.fence());
    if first.is_lost() {
        return Err(
            "the lease ended before the first step; run the example again on a machine with less load".into(),
        );
    }
    println!("first checks its lock: not lost. Then it is paused, in the middle of its work");

    let second = account.lock()?; // waits in line until the lease of the first has ended
    println!("second has the lock, with fence {}", second.fence());
    let second_wrote = write(&mut con, &second, &balance, "150 gold")?;
    println!("second writes 150 gold: {}", in_words(second_wrote));

    println!("first wakes up and continues its work");
    let first_wrote = write(&mut con, &first, &balance, "90 gold")?;
    println!("first writes 90 gold: {}", in_words(first_wrote));
    println!("first checks again: lost is {}", first.is_lost());

    let left: Option<String> = con.get_del(&balance)?;
    println!("in the account: {}", left.as_deref().unwrap_or("nothing"));
    second.release()?;
    match (second_wrote, first_wrote, left.as_deref()) {
        (true, false, Some("150 gold")) => Ok(()),
        _ => Err("a holder without the lock wrote, or the holder of the lock could not write".into()),
    }
}

/// Writes if `lock` is held, and otherwise does not. The check and the write are one atomic step.
fn write(con: &mut Connection, lock: &Permit, key: &str, value: &str) -> RedisResult<bool> {
    let script = Script::new(&format!(
        "{holds}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3])
        return 1",
        holds = scripts::HOLDS
    ));
    script.key(&lock.keys().list()).key(key).arg((lock.id(), lock.fence())).arg(value).invoke(con)
}

fn in_words(wrote: bool) -> &'static str {
    if wrote { "done" } else { "refused" }
}
