//! Promise: a latch opens when the last of so many has counted down, never earlier, and for all who wait: in every thread
//! and process, however badly things go. An id counts once.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Listener;
use crate::support::{self, Server, command_counts, eventually, process, reset_counts};

use luagate::errors::{CallError, FailureKind, StillClosed, WaitError};
use luagate::scripts::LatchKeys;
use luagate::scripts::latch::{self, CountAnswer, CountDownAnswer, WaitAnswer};
use luagate::{Cancel, CountDownLatch, Error, Gate};
use redis::{Commands, Connection};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant, SystemTime};

const MINUTE: Duration = Duration::from_secs(60);

/// A waiter that hears no message asks again after 5 s: whoever is faster than this was told.
const TOLD: Duration = Duration::from_secs(3);

/// The longest that whoever was not told may sleep, and some more for a busy machine.
const RECHECK: Duration = Duration::from_secs(7);

/// One latch through the scripts alone, as a client in any language drives it.
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

    /// Counts down, and has to be counted; how many are left.
    #[track_caller]
    fn count_down(&mut self, id: &str) -> u32 {
        match self.try_count_down(id).unwrap() {
            CountDownAnswer::Counted { left, .. } => left,
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Counts down, and must not be counted; how many are left.
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
        self.keys.names()[at].to_owned()
    }

    /// How many clients have left their inbox.
    fn waiting(&mut self) -> u64 {
        let key = self.key(1);
        self.con.zcard(key).unwrap()
    }

    fn await_waiters(&mut self, count: u64) {
        eventually("they wait", || (self.waiting() == count).then_some(()));
    }

    /// Tells all who wait that it is worth asking, as if the latch had opened.
    fn call_waiters(&mut self) {
        let (latch, inboxes) = (self.key(0), self.key(1));
        let inboxes: Vec<String> = self.con.zrange(inboxes, 0, -1).unwrap();
        for inbox in inboxes {
            let heard: u32 = self.con.publish(inbox, format!("{latch} 0 0 0 1")).unwrap();
            assert_eq!(heard, 1);
        }
    }

    fn dump(&mut self) -> Vec<Option<Vec<u8>>> {
        let dump = |at: usize| redis::cmd("DUMP").arg(self.keys.names()[at]).query(&mut self.con).unwrap();
        [0, 1].map(dump).to_vec()
    }

    /// The server knows the scripts: whoever counts them afterwards counts none that is sent again.
    fn warm(&mut self, prefix: &str) {
        let keys = LatchKeys::new(prefix, "warm").unwrap();
        latch::count_down(&mut self.con, &keys, "a", 1, 60_000).unwrap();
        latch::wait(&mut self.con, &keys, 1, 60_000, 0, "").unwrap();
    }

    fn ttls(&mut self) -> [i64; 2] {
        [0, 1].map(|at| self.con.pttl(self.keys.names()[at]).unwrap())
    }
}

/// Waits in a thread of its own; says when it went on.
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

/// What another process does.
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

#[test]
fn opens_at_the_last_count_for_every_thread_of_every_process() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 10);
    let children: Vec<_> = (0..4)
        .map(|_| {
            let arguments = [&*server.url, &*server.prefix, "10"];
            process("wait", &arguments).spawn().unwrap()
        })
        .collect();
    let gate = server.gate();
    let latch = gate.latch("raw", 10);
    let (before_last, mut opened) = std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..20).map(|_| scope.spawn(|| latch.wait_timeout(MINUTE).map(|()| nanos()))).collect();
        raw.await_waiters(5);
        let counters: Vec<_> = (0..9).map(|_| scope.spawn(|| latch.count_down())).collect();
        for counter in counters {
            assert!(counter.join().unwrap().unwrap() > 0);
        }
        assert_eq!(latch.count().unwrap(), 1);
        let before_last = nanos();
        assert_eq!(latch.count_down().unwrap(), 0);
        let opened: Vec<u128> = waiters.into_iter().map(|waiter| waiter.join().unwrap().unwrap()).collect();
        (before_last, opened)
    });
    for mut child in children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            opened.extend(line.strip_prefix("open ").map(|at| at.parse::<u128>().unwrap()));
        }
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(opened.len(), 40);
    for at in opened {
        assert!(at > before_last, "let through before the last had counted");
        let late = Duration::from_nanos((at - before_last).try_into().unwrap());
        assert!(late < TOLD, "{late:?} after the last had counted");
    }
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn a_waiter_is_told_and_asks_once() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let latch = server.gate().latch("raw", 1);
    raw.warm(&server.prefix);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        support::reset_counts(&mut raw.con);
        let start = Instant::now();
        raw.count_down("a");
        let woken = waiting.join().unwrap().unwrap() - start;
        assert!(woken < TOLD, "{woken:?}");
        assert_eq!(support::calls_in_scripts(&mut raw.con).1, 2);
    });
}

#[test]
fn a_message_has_the_form_of_a_hint() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "hint");
    assert_eq!(raw.wait_closed(15_000, &inbox.channel), (2, 5_000));
    raw.count_down("a");
    assert!(inbox.is_silent(&server), "told before it was open");
    let CountDownAnswer::Counted { left: 0, now, .. } = raw.try_count_down("b").unwrap() else { panic!() };
    let latch = raw.key(0);
    assert_eq!(inbox.next(), [&latch, "0", "0", "0", &now.to_string()]);
    raw.assert_open();
    assert!(inbox.is_silent(&server), "told twice");
}

#[test]
fn who_waits_before_anybody_counted_waits() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 2);
    assert_eq!(latch.count().unwrap(), 2);
    assert!(server.all_keys().is_empty(), "looking writes nothing");
    let closed = latch.wait_timeout(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(closed, WaitError::TimedOut(StillClosed { left: 2, count: 2, .. })), "{closed:?}");
    assert!(matches!(Error::from(closed), Error::TimedOut(_)));
}

#[test]
fn the_first_call_stores_the_count() {
    let server = Server::any();
    let gate = server.gate();
    let raw = Raw::new(&server, 3);
    let waited = gate.latch("raw", 3).wait_timeout(Duration::from_millis(50));
    assert!(waited.is_err());
    assert_eq!(gate.latch("raw", 1).count_down().unwrap(), 2);
    assert_eq!(gate.latch("raw", 9).count().unwrap(), 2);
    let mut other = Raw { count: 1, ..raw };
    assert_eq!(other.wait_closed(0, "").0, 2);
}

#[test]
fn an_id_counts_once() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    assert_eq!(raw.count_down("a"), 1);
    assert_eq!(raw.count_down_again("a"), 1);
    assert_eq!(raw.count_down("b"), 0);
    assert_eq!(raw.count_down_again("b"), 0);
    // Once it is open, whoever counts down changes nothing; and nobody asks who did.
    assert_eq!(raw.count_down_again("c"), 0);
    let fields: u64 = raw.con.hlen(raw.keys.names()[0]).unwrap();
    assert_eq!(fields, 1);
    raw.assert_open();
}

#[test]
fn a_lost_reply_counts_once() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let latch = gate.latch("raw", 3);
    assert_eq!(latch.count().unwrap(), 3);
    proxy.lose_replies(1);
    assert_eq!(latch.count_down().unwrap(), 2);
    assert!(proxy.is_done());
    // Lost twice, and then repeated by the caller.
    proxy.lose_replies(2);
    let lost = latch.count_down_as("me");
    assert!(matches!(lost, Err(CallError::Unknown(_))), "{lost:?}");
    assert_eq!(latch.count_down_as("me").unwrap(), 1);
    drop(server);
}

#[test]
fn a_worker_that_crashed_and_runs_again_counts_once() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 2);
    for _ in 0..2 {
        let arguments = [&*server.url, &*server.prefix, "part-1"];
        let mut child = process("crash", &arguments);
        let status = child.stderr(std::process::Stdio::null()).status().unwrap();
        assert!(!status.success());
        assert_eq!(latch.count().unwrap(), 1);
    }
}

#[test]
fn each_call_without_an_id_counts() {
    let server = Server::any();
    let gate = Gate::builder(&server.url).prefix(&server.prefix).label("worker").open().unwrap();
    let latch = gate.latch("raw", 3);
    assert_eq!(latch.count_down().unwrap(), 2);
    assert_eq!(latch.clone().count_down().unwrap(), 1);
    let mut raw = Raw::new(&server, 3);
    let fields: Vec<String> = raw.con.hkeys(raw.keys.names()[0]).unwrap();
    let labelled = fields.iter().filter(|id| id.starts_with("worker/"));
    assert_eq!(labelled.count(), 2, "{fields:?}");
}

#[test]
fn a_timeout_is_kept() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 3);
    latch.count_down().unwrap();
    let timeout = Duration::from_millis(120);
    let mut over: Vec<Duration> = (0..7)
        .map(|_| {
            let start = Instant::now();
            let error = latch.wait_timeout(timeout).unwrap_err();
            assert_eq!(error.to_string(), "timed out: 2 of 3 have still to count down");
            start.elapsed().checked_sub(timeout).expect("too early")
        })
        .collect();
    over.sort();
    assert!(over[3] <= Duration::from_millis(50), "{over:?}");
}

#[test]
fn the_end_of_a_wait_looks_once_more() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let latch = server.gate().latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_secs(1)));
        raw.await_waiters(1);
        lose_message(&mut raw);
        raw.count_down("a");
        assert!(waiting.join().unwrap().is_ok());
    });
}

#[test]
fn cancelled_from_another_thread() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let stop = Cancel::new();
    let latch = server.gate().latch("raw", 1).cancelled_by(&stop);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| waiter(scope, &latch)).collect();
        raw.await_waiters(1);
        let start = Instant::now();
        stop.cancel();
        for waiting in waiters {
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
        }
        assert!(start.elapsed() < Duration::from_millis(500));
    });
    assert!(matches!(latch.wait(), Err(WaitError::Cancelled(_))));
    assert_eq!(latch.count_down().unwrap(), 0, "counting is no wait");
}

#[test]
fn open_for_whoever_comes_late() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.count_down("a");
    let gate = server.gate();
    let latch = gate.latch("raw", 1);
    for _ in 0..3 {
        let start = Instant::now();
        latch.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(latch.count().unwrap(), 0);
    let subscribers: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
    assert_eq!(subscribers.trim(), "", "nobody had to wait");
}

/// Whoever counts down will tell nobody: as if the message were lost.
fn lose_message(raw: &mut Raw) {
    let key = raw.key(1);
    let _: () = raw.con.del(key).unwrap();
}

#[test]
fn a_lost_message_costs_no_more_than_the_recheck() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let latch = server.gate().latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        lose_message(&mut raw);
        let start = Instant::now();
        raw.count_down("a");
        let woken = waiting.join().unwrap().unwrap() - start;
        assert!(woken < RECHECK, "{woken:?}");
    });
}

#[test]
fn a_lost_subscription_heals() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    for round in 0..5 {
        let mut raw = Raw::new(&server, 1);
        raw.keys = LatchKeys::new(&server.prefix, &format!("round-{round}")).unwrap();
        let latch = gate.latch(&format!("round-{round}"), 1);
        std::thread::scope(|scope| {
            let waiting = waiter(scope, &latch);
            raw.await_waiters(1);
            support::kill_connections(&mut raw.con, "pubsub");
            let start = Instant::now();
            raw.count_down("a");
            let woken = waiting.join().unwrap().unwrap() - start;
            assert!(woken < TOLD, "{woken:?}");
        });
    }
}

#[test]
fn a_user_without_the_channels_counts_and_is_told_why_it_cannot_wait() {
    let user = "--user mute on >pw ~* resetchannels +@all";
    let server = own!(Server::private_tcp(&user.split(' ').collect::<Vec<_>>()));
    let mute =
        Gate::builder(&server.url.replace("redis://", "redis://mute:pw@")).prefix(&server.prefix).open().unwrap();
    let mut raw = Raw::new(&server, 2);
    let mute_latch = mute.latch("raw", 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let heard = waiter(scope, &latch);
        raw.await_waiters(1);
        raw.count_down("a");
        let Err(WaitError::Failed(failure)) = mute_latch.wait() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::Permission, "{failure}");
        let start = Instant::now();
        // It may not publish; the latch is open all the same.
        assert_eq!(mute_latch.count_down().unwrap(), 0);
        let heard = heard.join().unwrap().unwrap() - start;
        assert!(heard < RECHECK, "{heard:?}");
    });
    raw.assert_open();
}

/// A server that knows no PUBSUB, as behind some proxies, and a gate on it: it hears nothing, so its waiters ask every second.
fn with_deaf_gate() -> Option<(Server, Gate)> {
    let server = Server::private(&["--rename-command", "PUBSUB", ""])?;
    let gate = server.gate();
    Some((server, gate))
}

#[test]
fn who_hears_nothing_asks_every_second() {
    let (server, deaf) = own!(with_deaf_gate());
    let mut raw = Raw::new(&server, 2);
    let latch = deaf.latch("raw", 2);
    raw.count_down("a");
    std::thread::scope(|scope| {
        reset_counts(&mut raw.con);
        let waiting = waiter(scope, &latch);
        eventually("it asks", || {
            let counts = command_counts(&mut raw.con);
            counts.contains_key("evalsha").then_some(())
        });
        let start = Instant::now();
        raw.count_down("b");
        let opened = waiting.join().unwrap().unwrap() - start;
        assert!(opened < TOLD, "{opened:?}");
    });
}

#[test]
fn when_memory_is_full_a_latch_still_opens_and_none_begins() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let mut raw = Raw::new(&server, 3);
    let latch = gate.latch("raw", 3);
    let mut inbox = Listener::new(&server, "full");
    raw.wait_closed(15_000, &inbox.channel);
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut raw.con).unwrap();
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(2);
        assert_eq!(raw.count_down("a"), 2);
        assert_eq!(latch.count_down().unwrap(), 1);
        assert_eq!(raw.count_down("b"), 0);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(inbox.next()[1..4], ["0", "0", "0"]);
    for count in [1, 2] {
        let other = gate.latch("other", count);
        let Err(CallError::Failed(failure)) = other.count_down() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory);
        let Err(WaitError::Failed(failure)) = other.wait() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::OutOfMemory);
    }
    assert_eq!(server.all_keys().len(), 1, "{:?}", server.all_keys());
}

#[test]
fn keys_that_hold_something_else_are_left_alone() {
    let server = Server::any();
    for at in 0..2 {
        let mut raw = Raw::new(&server, 1);
        let key = raw.key(at);
        let _: () = raw.con.set(&key, "mine").unwrap();
        let before = raw.dump();
        let answers = [
            raw.try_count_down("a").map(drop),
            raw.try_wait(15_000, "x").map(drop),
            latch::count(&mut raw.con, &raw.keys).map(drop),
        ];
        for answer in answers {
            let Err(CallError::Failed(failure)) = answer else { panic!("{answer:?}") };
            assert_eq!(failure.kind(), FailureKind::WrongType);
        }
        assert_eq!(raw.dump(), before);
        let _: () = raw.con.del(key).unwrap();
    }
}

/// Runs a script by its text, so that arguments no typed function would send get there.
fn call(raw: &mut Raw, script: &str, arguments: &[&str]) -> Result<redis::Value, String> {
    let text = std::fs::read_to_string(format!("lua/dist/{script}.lua")).unwrap();
    let reply = redis::cmd("EVAL").arg(text).arg(2).arg(&raw.keys.names()).arg(arguments).query(&mut raw.con);
    reply.map_err(|error: redis::RedisError| {
        assert_eq!(error.code(), Some("LUAGATE"), "{error}");
        error.detail().unwrap().to_owned()
    })
}

#[test]
fn arguments_that_cannot_be_are_refused_and_begin_nothing() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let mut refused = |script: &str, good: &[&str], at: usize, bad: &str, name: &str| {
        let mut arguments = good.to_vec();
        arguments[at] = bad;
        match call(&mut raw, script, &arguments) {
            Err(text) => assert!(text.starts_with(name), "{script} {arguments:?}: {text}"),
            Ok(reply) => panic!("{script} {arguments:?}: {reply:?}"),
        }
        assert_eq!(raw.dump(), [None, None], "{script} {arguments:?}");
    };
    let count_down = ["id", "3", "1000"];
    let wait = ["3", "1000", "0", ""];
    for bad in ["", "-1", "0x3", "1e0", " 2 ", "1.5", "+1", "nan"] {
        refused("latch/count_down", &count_down, 1, bad, "count");
        refused("latch/count_down", &count_down, 2, bad, "life_ms");
        refused("latch/wait", &wait, 0, bad, "count");
        refused("latch/wait", &wait, 1, bad, "life_ms");
        refused("latch/wait", &wait, 2, bad, "wait_ms");
    }
    for bad in ["0", "2147483648"] {
        refused("latch/count_down", &count_down, 1, bad, "count");
        refused("latch/wait", &wait, 0, bad, "count");
    }
    for bad in ["0", "3155760000001"] {
        refused("latch/count_down", &count_down, 2, bad, "life_ms");
        refused("latch/wait", &wait, 1, bad, "life_ms");
    }
    refused("latch/wait", &wait, 2, "86400001", "wait_ms");
    let long = "x".repeat(301);
    for bad in ["", "a b", "a\n", &long[..201]] {
        refused("latch/count_down", &count_down, 0, bad, "id");
    }
    for bad in ["a b", "a\n", &long] {
        refused("latch/wait", &wait, 3, bad, "inbox");
    }
    for (script, arguments) in
        [("latch/count_down", &count_down[..2]), ("latch/wait", &wait[..3]), ("latch/count", &["x"])]
    {
        let error = call(&mut raw, script, arguments).unwrap_err();
        assert!(error.starts_with("arguments"), "{script}: {error}");
    }
    assert_eq!(raw.dump(), [None, None]);
    // What they were made of is good.
    call(&mut raw, "latch/count_down", &count_down).unwrap();
    call(&mut raw, "latch/wait", &wait).unwrap();
}

#[test]
fn bad_arguments_leave_a_latch_as_it_is() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    raw.count_down("a");
    raw.wait_closed(60_000, "x");
    let before = raw.dump();
    for (script, arguments) in [
        ("latch/count_down", &["a b", "3", "1000"][..]),
        ("latch/count_down", &["b", "0", "1000"]),
        ("latch/wait", &["3", "0", "0", ""]),
        ("latch/wait", &["3", "1000", "1000", "a b"]),
        ("latch/count", &["x"]),
    ] {
        assert!(call(&mut raw, script, arguments).is_err(), "{script} {arguments:?}");
    }
    assert_eq!(raw.dump(), before);
}

#[test]
fn what_a_latch_takes() {
    let server = Server::any();
    let gate = server.gate();
    let invalid = |result: Result<(), Error>, what: &str| match result {
        Err(Error::Invalid(invalid)) => assert_eq!(invalid.what(), what),
        other => panic!("expected {what} to be invalid, got {other:?}"),
    };
    let all = |latch: CountDownLatch, what: &str| {
        invalid(latch.count_down().map(drop).map_err(Error::from), what);
        invalid(latch.count().map(drop).map_err(Error::from), what);
        invalid(latch.wait().map_err(Error::from), what);
        invalid(latch.wait_timeout(MINUTE).map_err(Error::from), what);
    };
    for name in ["", "a b", "a{b", "{}:a"] {
        all(gate.latch(name, 1), "name");
    }
    for count in [0, 1 << 31, u32::MAX] {
        all(gate.latch("a", count), "count");
    }
    for life in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(3_155_760_000_001), Duration::MAX] {
        all(gate.latch("a", 1).life(life), "life");
    }
    let latch = gate.latch("a", 1);
    invalid(latch.wait_timeout(Duration::ZERO).map_err(Error::from), "timeout");
    for id in ["", "a b", &"x".repeat(201)] {
        invalid(latch.count_down_as(id).map(drop).map_err(Error::from), "id");
    }
    assert!(server.all_keys().is_empty());
    let grouped = gate.latch("{builds}:17", i32::MAX as u32);
    let grouped = grouped.life(Duration::from_millis(3_155_760_000_000));
    assert_eq!(grouped.count_down().unwrap(), i32::MAX as u32 - 1);
    assert_eq!(grouped.name(), "{builds}:17");
    gate.latch("forever", 1).count_down().unwrap();
    gate.latch("forever", 1).wait_timeout(Duration::MAX).unwrap();
}

#[test]
fn keys_live_for_the_longest_life_asked_for_and_vanish() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let count_down =
        |raw: &mut Raw, id: &str, life_ms: u64| latch::count_down(&mut raw.con, &raw.keys, id, 2, life_ms).unwrap();
    count_down(&mut raw, "a", 600_000);
    let long = 590_000..=600_000;
    assert!(long.contains(&raw.ttls()[0]), "{:?}", raw.ttls());
    // Never shortened: by another's life, by a wait, by opening.
    raw.wait_closed(5_000, "x");
    assert!(raw.ttls().iter().all(|ttl| long.contains(ttl)), "{:?}", raw.ttls());
    count_down(&mut raw, "b", 1);
    assert!(long.contains(&raw.ttls()[0]), "{:?}", raw.ttls());
    assert_eq!(raw.ttls()[1], -2);
    // Extended, also when it is open.
    count_down(&mut raw, "b", 700_000);
    assert!(raw.ttls()[0] > 600_000);
    // Whoever is told later finds the latch.
    let later = LatchKeys::new(&server.prefix, "later").unwrap();
    latch::wait(&mut raw.con, &later, 1, 1, 600_000, "x").unwrap();
    for key in later.names() {
        let ttl: i64 = raw.con.pttl(key).unwrap();
        assert!(long.contains(&ttl), "{key}: {ttl}");
    }
    // A day unless chosen.
    gate.latch("day", 1).count_down().unwrap();
    let day: i64 = raw.con.pttl(LatchKeys::new(&server.prefix, "day").unwrap().names()[0]).unwrap();
    assert!((86_390_000..=86_400_000).contains(&day), "{day}");
    // Short lives end: then the latch is a new one.
    let short = gate.latch("short", 1).life(Duration::from_millis(50));
    short.count_down().unwrap();
    eventually("it is forgotten", || (short.count().unwrap() == 1).then_some(()));
    assert!(!server.all_keys().iter().any(|key| key.contains("short")));
}

#[test]
fn three_hundred_clients_are_told_in_bounded_scripts() {
    const BOUND: u64 = 112; // a hundred messages, and what goes around them
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    raw.warm(&server.prefix);
    let inboxes: Vec<String> = (0..300).map(|n| format!("inbox:{n}")).collect();
    let mut listener = server.connection();
    let mut subscriber = listener.as_pubsub();
    subscriber.psubscribe("inbox:*").unwrap();
    for inbox in &inboxes {
        raw.wait_closed(60_000, inbox);
    }
    let mut heard = BTreeSet::new();
    let calls = |raw: &mut Raw, run: &dyn Fn(&mut Raw)| {
        support::reset_counts(&mut raw.con);
        run(raw);
        let (calls, scripts) = support::calls_in_scripts(&mut raw.con);
        assert_eq!(scripts, 1);
        assert!(calls < BOUND, "{calls} calls in one script");
    };
    calls(&mut raw, &|raw| assert_eq!(raw.count_down("a"), 0));
    // Whoever hears of it asks, and so the next hundred hear of it, until nobody is left.
    for _ in 0..100 {
        let message = subscriber.get_message().unwrap();
        heard.insert(message.get_channel_name().to_owned());
    }
    assert_eq!(heard.len(), 100);
    for told in [200, 300] {
        calls(&mut raw, &|raw| {
            raw.try_wait(60_000, "inbox:1").unwrap();
        });
        while heard.len() < told {
            let message = subscriber.get_message().unwrap();
            heard.insert(message.get_channel_name().to_owned());
        }
    }
    assert_eq!(heard, inboxes.into_iter().collect());
    calls(&mut raw, &|raw| {
        raw.try_wait(60_000, "inbox:1").unwrap();
    });
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn a_hundred_and_twenty_gates_go_on_together() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let latches: Vec<_> = (0..120).map(|_| server.gate().latch("raw", 1)).collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = latches.iter().map(|latch| waiter(scope, latch)).collect();
        raw.await_waiters(120);
        let start = Instant::now();
        raw.count_down("a");
        for waiting in waiters {
            let woken = waiting.join().unwrap().unwrap() - start;
            assert!(woken < TOLD, "{woken:?}");
        }
    });
}

#[test]
fn whose_patience_is_over_is_not_told_and_leaves() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "alive");
    for n in 0..250 {
        raw.wait_closed(1_000, &format!("gone:{n}"));
    }
    let waiters = raw.key(1);
    let ended = |raw: &mut Raw| {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut raw.con).unwrap();
        let now = seconds * 1_000 + micros / 1_000;
        let gone: u64 = raw.con.zcount(&waiters, "-inf", now).unwrap();
        gone == raw.waiting()
    };
    eventually("their patience ends", || ended(&mut raw).then_some(()));
    assert_eq!(raw.waiting(), 250);
    support::reset_counts(&mut raw.con);
    raw.wait_closed(60_000, &inbox.channel);
    assert!(support::calls_in_scripts(&mut raw.con).0 < 12);
    assert_eq!(raw.waiting(), 151);
    support::reset_counts(&mut raw.con);
    raw.count_down("a");
    assert_eq!(support::command_counts(&mut raw.con)["publish"], 1, "the dead are told");
    assert_eq!(inbox.next()[1..4], ["0", "0", "0"]);
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn an_inbox_is_one_entry_and_its_patience_never_shortened() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let until = |raw: &mut Raw| -> f64 {
        let key = raw.key(1);
        raw.con.zscore(key, "x").unwrap()
    };
    raw.wait_closed(60_000, "x");
    let long = until(&mut raw);
    raw.wait_closed(5, "x");
    assert_eq!((raw.waiting(), until(&mut raw)), (1, long));
    raw.wait_closed(90_000, "x");
    assert!(until(&mut raw) > long);
    // Whoever gives no inbox, or does not wait, is not noted, and asks again within a second.
    for (wait_ms, inbox) in [(60_000, ""), (0, "y")] {
        assert_eq!(raw.wait_closed(wait_ms, inbox), (1, 1_000));
    }
    assert_eq!(raw.waiting(), 1);
}

#[test]
fn a_node_of_a_cluster_takes_it() {
    let server = own!(Server::cluster_node());
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(latch.count_down().unwrap(), 1);
        let start = Instant::now();
        assert_eq!(latch.count_down().unwrap(), 0);
        assert!(waiting.join().unwrap().unwrap() - start < TOLD);
    });
}

#[test]
fn an_evicted_latch_starts_afresh_and_who_waits_waits_on() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let key = raw.key(0);
        let _: () = raw.con.del(key).unwrap();
        assert_eq!(raw.count_down("b"), 1, "one of two has counted");
        assert_eq!(raw.count_down_again("b"), 1);
        assert!(!waiting.is_finished());
        assert_eq!(raw.count_down("a"), 0);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_deleted_latch_starts_afresh_with_the_count_declared_next() {
    let server = Server::any();
    let gate = server.gate();
    let (two, five) = (gate.latch("raw", 2), gate.latch("raw", 5));
    assert!(!two.delete().unwrap(), "there was none");
    assert_eq!(two.count_down_as("a").unwrap(), 1);
    assert!(two.delete().unwrap());
    assert!(!two.delete().unwrap(), "deleted already");
    assert_eq!(five.count().unwrap(), 5, "of the deleted one something counts");
    assert_eq!(five.count_down_as("a").unwrap(), 4);
    assert_eq!(two.count().unwrap(), 4);
    assert!(five.delete().unwrap());
    assert_eq!(gate.latch("raw", 1).count_down().unwrap(), 0);
    assert!(two.delete().unwrap(), "an open one, too");
    let late = two.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(late, WaitError::TimedOut(_)), "{late:?}");
}

#[test]
fn who_waits_for_a_latch_that_is_deleted_asks_at_once_and_waits_for_the_new_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let start = Instant::now();
        assert!(latch.delete().unwrap());
        // Nobody else asks: it is the waiter that starts it afresh.
        eventually("the waiter asks", || {
            let answer = latch::count(&mut raw.con, &raw.keys).unwrap();
            matches!(answer, CountAnswer::Closed { left: 2, .. }).then_some(())
        });
        assert!(start.elapsed() < TOLD, "{:?}", start.elapsed());
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        assert!(!waiting.is_finished(), "opened early");
        let start = Instant::now();
        assert_eq!(raw.count_down("b"), 0);
        let woken = waiting.join().unwrap().unwrap() - start;
        assert!(woken < TOLD, "{woken:?}");
    });
}

#[test]
fn ids_that_were_tampered_with_never_open_it_early() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let key = raw.key(0);
    raw.count_down("a");
    let _: () = raw.con.hset(&key, "stranger", "").unwrap();
    assert_eq!(raw.wait_closed(0, "").0, 2);
    let _: () = raw.con.hset(&key, "stranger-2", "").unwrap();
    assert_eq!(raw.count_down("b"), 1);
    // Whoever is not known any more counts again.
    let gone = ["a", "stranger", "stranger-2"];
    let _: () = raw.con.hdel(&key, &gone[..]).unwrap();
    assert_eq!(raw.wait_closed(0, "").0, 2);
    assert_eq!(raw.count_down("a"), 1);
    assert_eq!(raw.count_down("c"), 0);
}

#[test]
fn what_is_not_ours_in_the_hash_counts_for_nothing() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let key = raw.key(0);
    for state in ["of somebody else", "1 1 x", "1 1", "0 0 0"] {
        let fields = [("the state", state), ("a", ""), ("b", "")];
        let _: () = raw.con.hset_multiple(&key, &fields).unwrap();
        let answer = latch::count(&mut raw.con, &raw.keys).unwrap();
        assert!(matches!(answer, CountAnswer::None { .. }), "{answer:?}");
        assert_eq!(raw.count_down("a"), 1, "{state}");
        assert_eq!(raw.count_down("b"), 0, "{state}");
        assert!(raw.ttls()[0] > 0);
        let _: () = raw.con.del(&key).unwrap();
    }
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 2);
    let mut raw = Raw::new(&server, 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        raw.count_down("a");
        server.kill();
        server.start_again();
        // The server forgot everything. Who counted with an id of its own may do so again.
        raw.con = server.connection();
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let start = Instant::now();
        assert_eq!(raw.count_down("b"), 0);
        assert!(waiting.join().unwrap().unwrap() - start < RECHECK);
    });
}

#[test]
fn a_wait_outlives_an_outage_in_which_it_asks() {
    let (mut server, deaf) = own!(with_deaf_gate());
    let latch = deaf.latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        // It asks once a second: whoever asks again has had its answer.
        let mut con = server.connection();
        eventually("it asks again", || {
            let asked = command_counts(&mut con).get("evalsha").copied();
            (asked >= Some(3)).then_some(())
        });
        server.kill();
        // Longer than until it asks next.
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!waiting.is_finished());
        server.start_again();
        Raw::new(&server, 1).count_down("a");
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_that_stays_away_is_told_as_such() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).outage(Duration::from_millis(300)).open().unwrap();
    let latch = gate.latch("raw", 1);
    let patient = server.gate().latch("raw", 1);
    let mut raw = Raw::new(&server, 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait());
        raw.await_waiters(1);
        let start = Instant::now();
        server.kill();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, WaitError::Failed(_) | WaitError::Unknown(_)), "{error}");
        assert!(start.elapsed() < RECHECK);
    });
    // Who was never answered does not wait for the server.
    let start = Instant::now();
    assert!(patient.wait_timeout(MINUTE).is_err());
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_server_that_stalls_as_the_time_ends_has_timed_the_wait_out() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 2);
    let mut raw = Raw::new(&server, 2);
    std::thread::scope(|scope| {
        let start = Instant::now();
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_millis(700)));
        raw.await_waiters(1);
        server.pause();
        let outcome = waiting.join().unwrap();
        server.resume();
        assert!(matches!(outcome, Err(WaitError::TimedOut(StillClosed { left: 2, .. }))), "{outcome:?}");
        assert!(start.elapsed() < Duration::from_millis(1_500));
    });
}

#[test]
fn a_wait_that_timed_out_tells_the_last_count_that_was_known() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 3);
    let mut raw = Raw::new(&server, 3);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_secs(3)));
        raw.await_waiters(1);
        for left in [2, 1] {
            assert_eq!(raw.count_down(&format!("id-{left}")), left);
            let asked = |raw: &mut Raw| command_counts(&mut raw.con)["evalsha"];
            let before = asked(&mut raw);
            raw.call_waiters();
            eventually("it asks", || (asked(&mut raw) > before).then_some(()));
            asked(&mut raw); // by now it was answered, too
        }
        server.pause();
        let outcome = waiting.join().unwrap();
        server.resume();
        assert!(matches!(outcome, Err(WaitError::TimedOut(StillClosed { left: 1, .. }))), "{outcome:?}");
    });
}

#[test]
fn one_subscriber_connection_for_latches_and_semaphores() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let (latch, semaphore) = (gate.latch("raw", 1), gate.semaphore("raw", 1));
    let holder = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..20).map(|_| waiter(scope, &latch)).collect();
        let acquiring = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(drop));
        raw.await_waiters(1);
        eventually("somebody stands in line", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let subscribers: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
        assert_eq!(subscribers.lines().count(), 1);
        let start = Instant::now();
        raw.count_down("a");
        for waiting in waiters {
            assert!(waiting.join().unwrap().unwrap() - start < TOLD);
        }
        holder.release().unwrap();
        acquiring.join().unwrap().unwrap();
    });
}

#[test]
fn a_forked_child_neither_counts_nor_waits() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 1);
    assert!(latch.wait_timeout(Duration::from_millis(50)).is_err());
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let forked =
                |error: Error| matches!(error, Error::Failed(failure) if failure.kind() == FailureKind::Forked);
            let refused = latch.count_down().is_err_and(|error| forked(error.into()))
                && latch.count().is_err_and(|error| forked(error.into()))
                && latch.wait().is_err_and(|error| forked(error.into()));
            std::process::exit(if refused { 0 } else { 1 });
        }
        fork::Fork::Parent(child) => {
            assert_eq!(fork::waitpid(child).unwrap(), 0);
            assert_eq!(latch.count().unwrap(), 1);
        }
    }
}
