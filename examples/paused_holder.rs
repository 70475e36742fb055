//! A holder that is paused for longer than its lease and writes when it wakes up: its write is refused.
//!
//! ```sh
//! cargo run --example paused_holder    # REDIS_URL names the server; redis://127.0.0.1/ unless set
//! ```
//!
//! No look at a clock can prevent this, since the pause may come after the look. So the script that writes asks whether
//! its caller still holds. Where the writing is done elsewhere, in a database say, hand the fence over, and let that
//! refuse lower ones than it has seen.

use luagate::{Gate, Permit, scripts};
use redis::{Commands, Connection, RedisResult, Script};
use std::env;
use std::error::Error;
use std::time::Duration;

/// As long as the longest work takes, and then some. Without renewal this stands for a process that is paused as a whole,
/// the thread that renews included.
const LEASE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // So that two runs on one server do not meet. All processes of a real application share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    let gate = Gate::builder(&url).prefix(&prefix).open()?;
    let mut con = redis::Client::open(url)?.get_connection()?;
    let account = gate.mutex("account:17").lease(LEASE);
    // The same braces as in the lock's keys: in a cluster, a script's keys live on one node.
    let balance = format!("{prefix}:balance:{{account:17}}");

    let first = account.lock()?;
    println!("first has the lock, with fence {}", first.fence());
    if first.is_lost() {
        return Err("the lease was over before anything was done; is the machine that busy?".into());
    }
    println!("first looks: not lost. Then it is paused, in the middle of its work");

    let second = account.lock()?; // in line, until the lease of the first has ended
    println!("second has the lock, with fence {}", second.fence());
    let second_wrote = write(&mut con, &second, &balance, "150 gold")?;
    println!("second writes 150 gold: {}", in_words(second_wrote));

    println!("first wakes up, and goes on where it was");
    let first_wrote = write(&mut con, &first, &balance, "90 gold")?;
    println!("first writes 90 gold: {}", in_words(first_wrote));
    println!("first looks again: lost is {}", first.is_lost());

    let left: Option<String> = con.get_del(&balance)?;
    println!("in the account: {}", left.as_deref().unwrap_or("nothing"));
    second.unlock()?;
    match (second_wrote, first_wrote, left.as_deref()) {
        (true, false, Some("150 gold")) => Ok(()),
        _ => Err("a holder that had lost its lock wrote, or one that held it could not".into()),
    }
}

/// Writes while `lock` is held, or not at all: the look and the write are one atomic step.
fn write(con: &mut Connection, lock: &Permit, key: &str, value: &str) -> RedisResult<bool> {
    let script = Script::new(&format!(
        "{holds}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3])
        return 1",
        holds = scripts::HOLDS
    ));
    script.key(&lock.keys().names()).key(key).arg((lock.id(), lock.fence())).arg(value).invoke(con)
}

fn in_words(wrote: bool) -> &'static str {
    if wrote { "done" } else { "refused" }
}
