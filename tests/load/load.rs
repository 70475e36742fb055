//! Promise: a thousand connections of twenty processes, which use two thousand semaphores, leave nothing behind: no key without
//! an end, and no file descriptor, thread or memory that grows. Half a minute, and with `LUAGATE_PROVE=long` ten.

use crate::all_processors;
use crate::own;
use crate::support::dice::Dice;
use crate::support::load::{CONNECTIONS, Counts, LEASE, NAMES, any, limit, name};
use crate::support::raw::Raw;
use crate::support::usage::{Usage, median};
use crate::support::{self, SOON, Server, eventually, process, within};

use redis::{Commands, Connection};
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

const PROCESSES: u64 = 20;

/// How long the keys of a semaphore live after its last lease.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// How much more memory a process may have at the end than after warm-up. A leak of 1,000 bytes at each stay is more in the
/// short form on a machine with nothing else to do, one of 40 bytes in the long form on a busy one.
const MORE_KB: i64 = 1_000;

fn is_long() -> bool {
    std::env::var_os("LUAGATE_PROVE").is_some_and(|form| form == "long")
}

struct Phases {
    /// Until when memory may grow.
    warm_up: Duration,
    /// For how long is looked after that, and at the end.
    look: Duration,
    all: Duration,
}

fn phases() -> Phases {
    // A client remembers for two minutes what it gave up without an answer.
    let seconds = if is_long() { [150, 30, 600] } else { [8, 6, 30] };
    let [warm_up, look, all] = seconds.map(Duration::from_secs);
    Phases { warm_up, look, all }
}

/// The processes, which end with the test.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Crowd {
    fn new(server: &Server) -> Crowd {
        let member = |seed: u64| {
            let arguments = [&*server.url, &server.prefix, &seed.to_string()];
            process("load", &arguments).spawn().unwrap()
        };
        Crowd((0..PROCESSES).map(member).collect())
    }

    fn usage(&self) -> Vec<Usage> {
        let usages = self.0.iter().map(|child| Usage::of(child.id()));
        usages.map(|usage| usage.expect("it has ended")).collect()
    }

    /// Tells all to end, and adds up what they counted. Each has found that it has no file but its connections, and that these
    /// and its threads are gone with its gate.
    fn end(mut self) -> Counts {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        let mut counts = Counts::new();
        for child in &mut self.0 {
            let mut told = String::new();
            let mut stdout = child.stdout.take().unwrap();
            stdout.read_to_string(&mut told).unwrap();
            assert!(child.wait().unwrap().success());
            for line in told.lines().filter_map(|line| line.strip_prefix("count ")) {
                let (what, count) = line.rsplit_once(' ').unwrap();
                *counts.entry(what.to_owned()).or_default() += count.parse::<u64>().unwrap();
            }
        }
        counts
    }
}

/// A connection with patience: a thousand others are served too.
fn patient(server: &Server) -> Connection {
    let con = server.connection();
    con.set_read_timeout(Some(6 * SOON)).unwrap();
    con
}

/// A number that the server tells of itself.
fn told(con: &mut Connection, what: &str) -> u64 {
    let text: String = redis::cmd("INFO").query(con).unwrap();
    let of = |line: &str| line.strip_prefix(what)?.strip_prefix(':')?.parse().ok();
    text.lines().find_map(of).unwrap()
}

fn clients(con: &mut Connection) -> u64 {
    told(con, "connected_clients")
}

/// How long a call of a script takes the server, in microseconds.
fn time_of_a_call(con: &mut Connection) -> f64 {
    let text: String = redis::cmd("INFO").arg("commandstats").query(con).unwrap();
    let of = |line: &str| {
        let told = line.strip_prefix("cmdstat_evalsha:")?;
        let told = told.split(',').find_map(|told| told.strip_prefix("usec_per_call="));
        told?.parse().ok()
    };
    text.lines().find_map(of).unwrap()
}

/// One look at everybody.
struct Look {
    processes: Vec<Usage>,
    clients: u64,
}

/// The medians of several looks, in the middle of all processes.
struct Middle {
    process: Usage,
    clients: u64,
}

impl Middle {
    fn of(looks: &[Look]) -> Middle {
        let of_one = |n: usize| {
            let same: Vec<Usage> = looks.iter().map(|look| look.processes[n]).collect();
            Usage::median(&same)
        };
        let each: Vec<Usage> = (0..PROCESSES as usize).map(of_one).collect();
        Middle { process: Usage::median(&each), clients: median(looks.iter().map(|look| look.clients)) }
    }
}

/// Looks whether there are too many inside.
fn inspect_some(raw: &mut Raw, server: &Server, dice: &mut Dice) {
    for _ in 0..20 {
        let n = any(dice);
        raw.keys = server.keys(&name(n));
        let state = raw.inspect();
        assert!(state.in_use <= limit(n), "{}: {state:?}", name(n));
    }
}

/// All is given back; what is left has an end, and nothing of anybody in it.
fn assert_nothing_is_left(server: &Server, con: &mut Connection) {
    let mut raw = Raw::named(server, "any", 0);
    for n in 0..NAMES {
        raw.keys = server.keys(&name(n));
        let free = within(2 * LEASE, || {
            let state = raw.inspect();
            (state.in_use == 0 && state.waiter_count == 0).then_some(())
        });
        assert!(free.is_some(), "{}: {:?}", name(n), raw.inspect());
        raw.release("nobody"); // any script takes away what has ended
        assert_eq!(raw.ttls()[1..], [-2, -2], "{} has holders or a queue", name(n));
    }
    let keys = server.all_keys();
    for key in &keys {
        let records: u64 = con.hlen(key).unwrap();
        assert_eq!(records, 1, "{key} has records of somebody beside its state");
        let left: i64 = con.pttl(key).unwrap();
        let most = (LEASE + AFTERWARDS).as_millis() as i64;
        assert!((0..=most).contains(&left), "{key} lives for {left} ms");
    }
    println!("{} keys are left, which end by themselves", keys.len());
    if is_long() {
        let gone = within(LEASE + AFTERWARDS + SOON, || server.all_keys().is_empty().then_some(()));
        assert!(gone.is_some(), "{:?}", server.all_keys());
    }
}

/// How many clients the server may have.
fn most_clients(con: &mut Connection) -> u64 {
    let mut most = redis::cmd("CONFIG");
    let (_, most): (String, u64) = most.arg("GET").arg("maxclients").query(con).unwrap();
    most
}

/// While the server keeps all waiting, each thread comes to have a connection. Each process has one more for its ledger,
/// and its subscriber.
fn until_all_are_connected(con: &mut Connection, alone: u64) {
    let opened = within(6 * SOON, || {
        let mut pause = redis::cmd("CLIENT");
        pause.arg("PAUSE").arg(1_000).exec(con).unwrap();
        (clients(con) >= alone + PROCESSES * (CONNECTIONS + 2)).then_some(())
    });
    assert!(opened.is_some(), "{} clients", clients(con));
}

/// Looks at everybody from `start` until the end, and whether too much is inside or kept. Tells what was seen after warm-up,
/// and at the end.
fn watch(server: &Server, con: &mut Connection, crowd: &Crowd, start: Instant) -> (Middle, Middle) {
    let phases = phases();
    let mut raw = Raw::named(server, "any", 0);
    raw.con = patient(server);
    let mut dice = Dice::new(1);
    let (mut early, mut late) = (Vec::new(), Vec::new());
    while start.elapsed() < phases.all {
        inspect_some(&mut raw, server, &mut dice);
        let now = start.elapsed();
        let is_early = (phases.warm_up..phases.warm_up + phases.look).contains(&now);
        if is_early || now >= phases.all - phases.look {
            let looks = if is_early { &mut early } else { &mut late };
            looks.push(Look { processes: crowd.usage(), clients: clients(con) });
        }
        let keys: u64 = redis::cmd("DBSIZE").query(con).unwrap();
        assert!(keys <= 3 * NAMES + 1, "{keys} keys, with the ledger");
        std::thread::sleep(Duration::from_millis(200));
    }
    (Middle::of(&early), Middle::of(&late))
}

/// Many were granted, and nothing went wrong.
fn assert_counts(counts: &Counts, seconds: u64) {
    println!("in {seconds} s: {counts:?}");
    let granted = counts.get("granted").copied().unwrap_or(0);
    println!("{} grants a second", granted / seconds);
    assert!(granted > NAMES, "{granted} granted");
    assert!(!counts.contains_key("lost"), "a permit whose lease runs");
    let others = "UnexpectedReply"; // of another call, say
    assert!(!counts.contains_key(others));
}

fn assert_nothing_grew(early: &Middle, late: &Middle) {
    println!("of a process: {:?}, at the end {:?}", early.process, late.process);
    println!("clients: {}, at the end {}", early.clients, late.clients);
    let (early, late) = (&early.process, &late.process);
    assert!(late.threads <= early.threads + 1); // the background, if it had nothing to do before
    assert!(late.memory_kb as i64 - early.memory_kb as i64 <= MORE_KB);
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let _processors = all_processors();
    let server = own!(Server::private_tcp(&[]));
    let mut con = patient(&server);
    if most_clients(&mut con) < 2 * PROCESSES * CONNECTIONS {
        return support::skip_since("needs a server of 2,000 clients: raise `ulimit -n`");
    }
    let alone = clients(&mut con);
    let crowd = Crowd::new(&server);
    until_all_are_connected(&mut con, alone);

    let start = Instant::now();
    let (early, late) = watch(&server, &mut con, &crowd, start);
    let seconds = start.elapsed().as_secs();
    println!("server: {} kB, {} us a call", told(&mut con, "used_memory") / 1024, time_of_a_call(&mut con));
    let scripts = told(&mut con, "number_of_cached_scripts");
    assert!(scripts < 10, "{scripts} scripts");
    assert_counts(&crowd.end(), seconds);
    assert_nothing_grew(&early, &late);

    eventually("all connections close", || (clients(&mut con) <= alone + 1).then_some(()));
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut con).unwrap();
    assert!(channels.is_empty(), "{channels:?}");
    assert_nothing_is_left(&server, &mut con);
}
