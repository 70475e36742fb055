//! Promise: a latch opens for all waiters at its last count, never earlier, in every thread and process and
//! in spite of outages. An id counts once.

mod arguments;
mod counting;
mod ending;
mod keys;
mod messages;
mod opening;
mod outages;

use crate::support::{Server, eventually};

use luagate::errors::{CallError, WaitError};
use luagate::scripts::LatchKeys;
use luagate::scripts::latch::{self, CountAnswer, CountDownAnswer, WaitAnswer};
use luagate::{CountDownLatch, Gate};
use redis::{Commands, Connection};
use std::time::{Duration, Instant, SystemTime};

const MINUTE: Duration = Duration::from_secs(60);

/// A waiter without a message asks again after 5 s, so a faster one received a message.
const REPORTED: Duration = Duration::from_secs(3);

/// The longest pause of a waiter without a message, and some time for a busy machine.
const RECHECK: Duration = Duration::from_secs(7);

/// One latch, used directly through the scripts, like a client in any language.
struct Raw {
    con: Connection,
    keys: LatchKeys,
    count: u32,
}

impl Raw {
    fn new(server: &Server, count: u32) -> Raw {
        Raw { con: server.connection(), keys: LatchKeys::new(&server.prefix, "raw").unwrap(), count }
    }

    fn try_count_down(&mut self, id: &str) -> Result<CountDownAnswer, CallError> {
        latch::count_down(&mut self.con, &self.keys, id, self.count, 60_000)
    }

    /// Counts down; it must count. Returns the number that is left.
    #[track_caller]
    fn count_down(&mut self, id: &str) -> u32 {
        match self.try_count_down(id).unwrap() {
            CountDownAnswer::Counted { left, .. } => left,
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Counts down again; it must not count. Returns the number that is left.
    #[track_caller]
    fn count_down_again(&mut self, id: &str) -> u32 {
        match self.try_count_down(id).unwrap() {
            CountDownAnswer::Already { left, .. } => left,
            other => panic!("{id}: {other:?}"),
        }
    }

    fn try_wait(&mut self, wait_ms: u64, inbox: &str) -> Result<WaitAnswer, CallError> {
        latch::wait(&mut self.con, &self.keys, self.count, 60_000, wait_ms, inbox)
    }

    #[track_caller]
    fn wait_closed(&mut self, wait_ms: u64, inbox: &str) -> (u32, u64) {
        match self.try_wait(wait_ms, inbox).unwrap() {
            WaitAnswer::Closed { left, retry_after, .. } => (left, retry_after),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn assert_open(&mut self) {
        let answer = self.try_wait(0, "").unwrap();
        assert!(matches!(answer, WaitAnswer::Open { .. }), "{answer:?}");
        let answer = latch::count(&mut self.con, &self.keys).unwrap();
        assert!(matches!(answer, CountAnswer::Open { .. }), "{answer:?}");
    }

    fn key(&self, at: usize) -> String {
        self.keys.list()[at].to_owned()
    }

    /// The number of clients that have registered their inbox.
    fn waiting(&mut self) -> u64 {
        let key = self.key(1);
        self.con.zcard(key).unwrap()
    }

    fn await_waiters(&mut self, count: u64) {
        eventually("they wait", || (self.waiting() == count).then_some(()));
    }

    /// Sends all waiters the hint to ask again, as if the latch had opened.
    fn call_waiters(&mut self) {
        let (latch, inboxes) = (self.key(0), self.key(1));
        let inboxes: Vec<String> = self.con.zrange(inboxes, 0, -1).unwrap();
        for inbox in inboxes {
            let received: u32 = self.con.publish(inbox, format!("{latch} 0 0 0 1")).unwrap();
            assert_eq!(received, 1);
        }
    }

    /// Loads the scripts, so that later counts of calls contain no retries.
    fn warm(&mut self, prefix: &str) {
        let keys = LatchKeys::new(prefix, "warm").unwrap();
        latch::count_down(&mut self.con, &keys, "a", 1, 60_000).unwrap();
        latch::wait(&mut self.con, &keys, 1, 60_000, 0, "").unwrap();
    }

    fn ttls(&mut self) -> [i64; 2] {
        [0, 1].map(|at| self.con.pttl(self.keys.list()[at]).unwrap())
    }
}

/// Waits in another thread. Returns the time at which the wait ended.
fn waiter<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    latch: &'scope CountDownLatch,
) -> std::thread::ScopedJoinHandle<'scope, Result<Instant, WaitError>> {
    scope.spawn(|| latch.wait_timeout(MINUTE).map(|()| Instant::now()))
}

fn nanos() -> u128 {
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// The main function of another process.
pub fn work(job: &str, arguments: &[String]) {
    let [url, prefix, argument] = arguments else { panic!() };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    match job {
        "wait" => std::thread::scope(|scope| {
            let latch = gate.latch("raw", argument.parse().unwrap());
            for _ in 0..5 {
                let latch = latch.clone();
                scope.spawn(move || {
                    latch.wait_timeout(MINUTE).unwrap();
                    println!("\nopen {}", nanos());
                });
            }
        }),
        "crash" => {
            gate.latch("raw", 2).count_down_as(argument).unwrap();
            std::process::abort();
        }
        other => panic!("{other}"),
    }
}

/// Makes the script that opens the latch notify no one, as if the message were lost.
fn lose_message(raw: &mut Raw) {
    let key = raw.key(1);
    let _: () = raw.con.del(key).unwrap();
}

/// A server without PUBSUB, like some proxies, and a gate on it. It receives no messages, so its waiters ask
/// every second.
fn with_deaf_gate() -> Option<(Server, Gate)> {
    let server = Server::private(&["--rename-command", "PUBSUB", ""])?;
    let gate = server.gate();
    Some((server, gate))
}
