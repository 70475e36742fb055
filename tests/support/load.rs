//! The processes of `tests/load/load.rs`: each has a gate and many threads. The threads use many
//! semaphores until the test ends them.

use super::random::Random;
use super::usage::Usage;
use super::{SOON, job, within};
use luagate::errors::{AcquireError, TryAcquireError};
use luagate::{Error, Gate, Lease, Permit, Released};
use redis::{Commands, Connection};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of each process.
const THREADS: u64 = 50;

pub const NAMES: u64 = 2_000;

/// This number of semaphores receives as many requests as all others together, so that there are lines.
const BUSY: u64 = 10;

/// A ledger is kept for this number of semaphores.
const IN_LEDGER: u64 = 200;

/// Much longer than any pause of a busy machine. Permits are held only for a moment.
pub const LEASE: Duration = Duration::from_secs(30);

/// The maximum pause of a thread between two requests.
const REST_MS: u64 = 1_000;

/// The outcomes of the requests, and how often each occurred.
pub type Counts = BTreeMap<String, u64>;

pub fn name(n: u64) -> String {
    format!("load-{n}")
}

pub fn limit(n: u64) -> u32 {
    1 + (n % 4) as u32
}

/// The semaphore of the next request.
pub fn any(random: &mut Random) -> u64 {
    let of = if random.below(2) == 0 { BUSY } else { NAMES };
    random.below(of)
}

/// Counts holders independently of the scripts: from the grant's arrival until before the release.
struct Ledger {
    con: Mutex<Connection>,
    key: String,
}

impl Ledger {
    fn new(url: &str, prefix: &str) -> Ledger {
        let con = redis::Client::open(url).unwrap().get_connection().unwrap();
        Ledger { con: Mutex::new(con), key: format!("ledger:{prefix}") }
    }

    fn add(&self, n: u64, permits: i64) {
        if n >= IN_LEDGER {
            return;
        }
        let mut con = self.con.lock().unwrap();
        let inside: i64 = con.hincr(&self.key, n, permits).unwrap();
        let limit = limit(n);
        assert!(inside <= limit.into(), "{inside} permits held, limit {limit}");
    }
}

/// The job of such a process.
pub fn work(arguments: &[String]) {
    let [url, prefix, seed] = arguments else { panic!("{arguments:?}") };
    let me = std::process::id();
    let ledger = Ledger::new(url, prefix);
    let before = Usage::of(me).unwrap();
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Ordering::SeqCst);
    });
    let gate = Gate::builder(url).prefix(prefix).read_timeout(SOON);
    let gate = gate.open().unwrap();
    let seed: u64 = seed.parse().unwrap();
    let mut counts = Counts::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (gate, ledger) = (&gate, &ledger);
                let random = Random::new(seed * THREADS + thread);
                scope.spawn(move || live(gate, ledger, random, &OVER))
            })
            .collect();
        for thread in threads {
            for (what, count) in thread.join().unwrap() {
                *counts.entry(what).or_default() += count;
            }
        }
    });
    // The background completes pending releases within half a minute. Each can keep a connection until then.
    let mut had = None;
    let bounded = within(4 * SOON, || {
        let more = Usage::of(me).unwrap().files - before.files;
        had = Some(more);
        (more <= 2).then_some(()) // one connection for calls, one for messages
    });
    assert!(bounded.is_some(), "files: {had:?}");
    drop(gate);
    let back = within(4 * SOON, || {
        let now = Usage::of(me).unwrap();
        (now.files == before.files && now.threads == before.threads).then_some(())
    });
    let now = Usage::of(me);
    assert!(back.is_some(), "{before:?} before the gate, {now:?} after it");
    for (what, count) in counts {
        println!("count {what} {count}");
    }
}

/// One thread: requests in all ways, holds for a moment, and releases in all ways.
fn live(gate: &Gate, ledger: &Ledger, mut random: Random, over: &AtomicBool) -> Counts {
    let mut counts = Counts::new();
    while !over.load(Ordering::Relaxed) {
        let n = any(&mut random);
        let semaphore = gate.semaphore(&name(n), limit(n));
        let semaphore = match random.below(2) {
            0 => semaphore.lease(Lease::fixed(LEASE)),
            _ => semaphore, // the same lease, renewed
        };
        let permits = 1 + random.below(limit(n).into()) as u32;
        let reported = match random.below(5) {
            0..2 => semaphore.try_acquire_many(permits).map_err(at_once),
            _ => {
                let time = Duration::from_millis(1 + random.below(2_000));
                let waited = semaphore.acquire_many_timeout(permits, time);
                waited.map_err(in_line)
            }
        };
        let what = match reported {
            Ok(permit) => stay(ledger, n, permit, &mut random),
            Err(what) => what,
        };
        *counts.entry(what).or_default() += 1;
        std::thread::sleep(Duration::from_millis(random.below(REST_MS)));
    }
    counts
}

fn stay(ledger: &Ledger, n: u64, permit: Permit, random: &mut Random) -> String {
    let permits = i64::from(permit.permits());
    ledger.add(n, permits);
    std::thread::sleep(Duration::from_millis(random.below(15)));
    let refreshed = match random.below(4) {
        0 => permit.refresh().map_err(Error::from),
        _ => Ok(()),
    };
    ledger.add(n, -permits);
    let released = match random.below(4) {
        0 => {
            drop(permit);
            Ok(Released::Released)
        }
        _ => permit.release().map_err(Error::from),
    };
    match refreshed.and(released) {
        Ok(Released::Released) => "granted".to_owned(),
        Ok(Released::Gone) => "lost".to_owned(),
        Err(error) => kind(&error),
    }
}

fn at_once(error: TryAcquireError) -> String {
    match error {
        TryAcquireError::Denied(_) => "denied".to_owned(),
        other => kind(&other.into()),
    }
}

fn in_line(error: AcquireError) -> String {
    match error {
        AcquireError::TimedOut(_) => "timed out".to_owned(),
        other => kind(&other.into()),
    }
}

fn kind(error: &Error) -> String {
    match error {
        Error::Failed(failure) | Error::Unknown(failure) => format!("{:?}", failure.kind()),
        Error::Lost(_) => "lost".to_owned(),
        other => panic!("{other:?}"),
    }
}
