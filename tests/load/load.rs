//! Promise: twenty processes with a thousand threads and two thousand semaphores leave nothing behind: no key
//! without a TTL, and no growing number of file descriptors or threads, or memory. Each process has two
//! connections. Takes 18 seconds, or ten minutes with `LUAGATE_PROVE=long`.

use crate::all_processors;
use crate::own;
use crate::support::load::{Counts, LEASE, NAMES, any, limit, name};
use crate::support::random::Random;
use crate::support::raw::Raw;
use crate::support::usage::{Usage, median};
use crate::support::{SOON, Server, eventually, process, within};

use redis::{Commands, Connection};
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

const PROCESSES: u64 = 20;

/// The time to live of a semaphore's keys after its last lease.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// The maximum growth of a process's memory after warm-up. A leak of 2,000 bytes at each hold exceeds it in
/// the short form on an idle machine, one of 40 bytes in the long form on a busy machine.
const MORE_KB: i64 = 1_000;

fn is_long() -> bool {
    std::env::var_os("LUAGATE_PROVE").is_some_and(|form| form == "long")
}

struct Phases {
    /// The time in which memory may grow.
    warm_up: Duration,
    /// The duration of the measurement after warm-up, and of the one at the end.
    look: Duration,
    all: Duration,
}

fn phases() -> Phases {
    // For two minutes a client stores which calls without a reply it gave up.
    let seconds = if is_long() { [150, 30, 600] } else { [6, 4, 18] };
    let [warm_up, look, all] = seconds.map(Duration::from_secs);
    Phases { warm_up, look, all }
}

/// The processes. They are killed at the end of the test.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Processes {
    fn new(server: &Server) -> Processes {
        let member = |seed: u64| {
            let arguments = [&*server.url, &server.prefix, &seed.to_string()];
            process("load", &arguments).spawn().unwrap()
        };
        Processes((0..PROCESSES).map(member).collect())
    }

    fn usage(&self) -> Vec<Usage> {
        let usages = self.0.iter().map(|child| Usage::of(child.id()));
        usages.map(|usage| usage.expect("the process has ended")).collect()
    }

    /// Asks all processes to end, and adds up their counts. Each has checked that its only files are its
    /// connections, and that these and its threads end with its gate.
    fn end(mut self) -> Counts {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        let mut counts = Counts::new();
        for child in &mut self.0 {
            let mut reported = String::new();
            let mut stdout = child.stdout.take().unwrap();
            stdout.read_to_string(&mut reported).unwrap();
            assert!(child.wait().unwrap().success());
            for line in reported.lines().filter_map(|line| line.strip_prefix("count ")) {
                let (what, count) = line.rsplit_once(' ').unwrap();
                *counts.entry(what.to_owned()).or_default() += count.parse::<u64>().unwrap();
            }
        }
        counts
    }
}

/// A number in the server's INFO.
fn reported(con: &mut Connection, what: &str) -> u64 {
    let text: String = redis::cmd("INFO").query(con).unwrap();
    let of = |line: &str| line.strip_prefix(what)?.strip_prefix(':')?.parse().ok();
    text.lines().find_map(of).unwrap()
}

fn clients(con: &mut Connection) -> u64 {
    reported(con, "connected_clients")
}

/// The server time of a script call, in microseconds.
fn time_of_a_call(con: &mut Connection) -> f64 {
    let text: String = redis::cmd("INFO").arg("commandstats").query(con).unwrap();
    let of = |line: &str| {
        let reported = line.strip_prefix("cmdstat_evalsha:")?;
        let reported = reported.split(',').find_map(|reported| reported.strip_prefix("usec_per_call="));
        reported?.parse().ok()
    };
    text.lines().find_map(of).unwrap()
}

/// One measurement of all processes and the server.
struct Look {
    processes: Vec<Usage>,
    clients: u64,
}

/// The medians of several measurements, and of all processes.
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

/// Checks for some semaphores that no more permits are held than the limit.
fn inspect_some(raw: &mut Raw, server: &Server, random: &mut Random) {
    for _ in 0..20 {
        let n = any(random);
        raw.keys = server.keys(&name(n));
        let state = raw.inspect();
        assert!(state.in_use <= limit(n), "{}: {state:?}", name(n));
    }
}

/// Asserts that all permits are released, and that the remaining keys have a TTL and no records of holders or
/// waiters.
fn assert_nothing_is_left(server: &Server, con: &mut Connection) {
    let mut raw = Raw::named(server, "any", 0);
    for n in 0..NAMES {
        raw.keys = server.keys(&name(n));
        let free = within(2 * LEASE, || {
            let state = raw.inspect();
            (state.in_use == 0 && state.waiter_count == 0).then_some(())
        });
        assert!(free.is_some(), "{}: {:?}", name(n), raw.inspect());
        raw.release("nobody"); // any script removes expired leases
        assert_eq!(raw.ttls()[1..], [-2, -2], "{} has holders or a queue", name(n));
    }
    let keys = server.all_keys();
    for key in &keys {
        let records: u64 = con.hlen(key).unwrap();
        assert_eq!(records, 1, "{key} has other records in addition to its state");
        let left: i64 = con.pttl(key).unwrap();
        let most = (LEASE + AFTERWARDS).as_millis() as i64;
        assert!((0..=most).contains(&left), "{key} has a TTL of {left} ms");
    }
    println!("{} keys are left, all with a TTL", keys.len());
    if is_long() {
        let gone = within(LEASE + AFTERWARDS + SOON, || server.all_keys().is_empty().then_some(()));
        assert!(gone.is_some(), "{:?}", server.all_keys());
    }
}

/// The connections of all processes. Each process has one for the calls of its threads, one for the messages
/// to them, and one for its ledger. This test has another one.
const CONNECTIONS: u64 = 3 * PROCESSES + 1;

/// Measures all processes from `start` to the end, and checks held permits and keys. Returns the results
/// after warm-up and at the end.
fn watch(server: &Server, con: &mut Connection, processes: &Processes, start: Instant) -> (Middle, Middle) {
    let phases = phases();
    let mut raw = Raw::named(server, "any", 0);
    let mut random = Random::new(1);
    let (mut early, mut late) = (Vec::new(), Vec::new());
    while start.elapsed() < phases.all {
        inspect_some(&mut raw, server, &mut random);
        let now = start.elapsed();
        let is_early = (phases.warm_up..phases.warm_up + phases.look).contains(&now);
        if is_early || now >= phases.all - phases.look {
            let looks = if is_early { &mut early } else { &mut late };
            looks.push(Look { processes: processes.usage(), clients: clients(con) });
        }
        let keys: u64 = redis::cmd("DBSIZE").query(con).unwrap();
        assert!(keys <= 3 * NAMES + 1, "{keys} keys, with the ledger");
        std::thread::sleep(Duration::from_millis(200));
    }
    (Middle::of(&early), Middle::of(&late))
}

/// Asserts that many permits were granted and nothing failed.
fn assert_counts(counts: &Counts, seconds: u64) {
    println!("in {seconds} s: {counts:?}");
    let granted = counts.get("granted").copied().unwrap_or(0);
    println!("{} grants a second", granted / seconds);
    assert!(granted > NAMES, "{granted} granted");
    assert!(!counts.contains_key("lost"), "a permit was lost during its lease");
    let others = "UnexpectedReply"; // for example the reply of another call
    assert!(!counts.contains_key(others));
}

fn assert_nothing_grew(early: &Middle, late: &Middle) {
    println!("of a process: {:?}, at the end {:?}", early.process, late.process);
    println!("clients: {}, at the end {}", early.clients, late.clients);
    let (early, late) = (&early.process, &late.process);
    assert!(late.threads <= early.threads + 1); // the background thread, if it had no work before
    assert!(late.memory_kb as i64 - early.memory_kb as i64 <= MORE_KB);
}

#[test]
fn a_thousand_threads_leave_nothing_behind() {
    let _processors = all_processors();
    let server = own!(Server::private_tcp(&[]));
    let mut con = server.connection();
    let processes = Processes::new(&server);
    let opened = within(30 * SOON, || (clients(&mut con) >= CONNECTIONS).then_some(()));
    assert!(opened.is_some(), "{} clients", clients(&mut con));

    let start = Instant::now();
    let (early, late) = watch(&server, &mut con, &processes, start);
    let seconds = start.elapsed().as_secs();
    println!(
        "server: {} kB, {} us a call",
        reported(&mut con, "used_memory") / 1024,
        time_of_a_call(&mut con)
    );
    let scripts = reported(&mut con, "number_of_cached_scripts");
    assert!(scripts < 10, "{scripts} scripts");
    assert_counts(&processes.end(), seconds);
    assert_nothing_grew(&early, &late);
    let most = CONNECTIONS + 1; // one more looks
    assert!(late.clients <= most, "{} clients instead of {most}", late.clients);

    eventually("all connections close", || (clients(&mut con) == 1).then_some(()));
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut con).unwrap();
    assert!(channels.is_empty(), "{channels:?}");
    assert_nothing_is_left(&server, &mut con);
}
