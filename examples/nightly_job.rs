//! A nightly job that every host starts and one runs.
//!
//! ```sh
//! cargo run --example nightly_job    # REDIS_URL names the server; redis://127.0.0.1/ unless set
//! ```
//!
//! A lock alone is not enough: a host whose clock is late starts after the first one has finished, finds the lock free, and
//! runs the job again. Nor is a record alone: it is written at the end, and others start before that. So: a lock while the
//! job runs, and a record "done" for the night that is written before the lock is given back, and only by whoever still
//! holds it. A lease as long as the night would do without the record, but then nobody could take over from a host that
//! crashed. Whoever takes over starts from the beginning: what the job does must bear that.

use luagate::errors::TryAcquireError;
use luagate::{Gate, Permit, scripts};
use redis::{Commands, Connection, RedisResult, Script};
use std::env;
use std::error::Error;
use std::process::Command;
use std::thread;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [host, prefix, night] => run_on(host, &url, prefix, night),
        _ => play_a_night(&url),
    }
}

/// What each host does when its clock strikes.
fn run_on(host: &str, url: &str, prefix: &str, night: &str) -> Result<(), Box<dyn Error>> {
    let gate = Gate::builder(url).prefix(prefix).label(host).open()?;
    let mut con = redis::Client::open(url)?.get_connection()?;
    let job = gate.mutex("report");
    let lock = match job.try_lock() {
        Ok(lock) => lock,
        Err(TryAcquireError::Denied(_)) => {
            let state = job.inspect()?;
            let other = state.holders.first().and_then(|holder| holder.label());
            let other = other.unwrap_or("another host");
            println!("{host}: {other} is at it; standing by, should it crash");
            job.lock()?
        }
        Err(error) => return Err(error.into()),
    };
    let done = format!("{prefix}:done:{{report}}:{night}");
    if let Some(other) = con.get::<_, Option<String>>(&done)? {
        println!("{host}: was done tonight by {other}");
        return Ok(());
    }
    println!("{host}: running the job");
    let runs: u32 = con.incr(format!("{prefix}:runs"), 1)?;
    thread::sleep(Duration::from_secs(1)); // the job
    if !record(&mut con, &lock, &done, host)? {
        return Err("the lock was lost while the job ran; whoever has it now runs it again".into());
    }
    println!("{host}: done, run number {runs}");
    lock.unlock()?;
    Ok(())
}

/// Writes that it is done, unless the lock was lost.
fn record(con: &mut Connection, lock: &Permit, done: &str, host: &str) -> RedisResult<bool> {
    let script = Script::new(&format!(
        "{holds}
        if not holds(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return 0 end
        redis.call('SET', KEYS[4], ARGV[3], 'EX', 2 * 24 * 3600) -- no host is later than that
        return 1",
        holds = scripts::HOLDS
    ));
    script.key(&lock.keys().names()).key(done).arg((lock.id(), lock.fence())).arg(host).invoke(con)
}

/// Three hosts at once, as processes of their own, and one that is late.
fn play_a_night(url: &str) -> Result<(), Box<dyn Error>> {
    let mut con = redis::Client::open(url)?.get_connection()?;
    // So that two runs on one server do not meet. All hosts of a real job share a prefix.
    let prefix = format!("example:{}", uuid::Uuid::new_v4().simple());
    // Which night it is must be the same for all, so the server's clock says it.
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut con)?;
    let night = (seconds / 86_400).to_string();

    let in_time = start(&["host-1", "host-2", "host-3"], &prefix, &night);
    println!("host-4 comes late");
    let late = start(&["host-4"], &prefix, &night);

    let runs: Option<u32> = con.get_del(format!("{prefix}:runs"))?;
    let done: Option<String> = con.get_del(format!("{prefix}:done:{{report}}:{night}"))?;
    in_time.and(late)?;
    let (runs, by) = (runs.unwrap_or(0), done.as_deref().unwrap_or("nobody"));
    println!("hosts: 4, runs: {runs}, recorded by {by}");
    match (runs, done) {
        (1, Some(_)) => Ok(()),
        _ => Err(format!("it was to run once, and ran {runs} times").into()),
    }
}

/// Starts these hosts at once, and waits until all have ended.
fn start(hosts: &[&str], prefix: &str, night: &str) -> Result<(), Box<dyn Error>> {
    let mut children = Vec::new();
    for host in hosts {
        let mut command = Command::new(env::current_exe()?);
        children.push(command.args([host, prefix, night]).spawn()?);
    }
    let mut failed = 0;
    for mut child in children {
        failed += u32::from(!child.wait()?.success());
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} hosts failed").into()),
    }
}
