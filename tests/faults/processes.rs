//! Promise: a crashed or stopped holder or waiter delays the others by no more than its lease. A holder that
//! was stopped beyond its lease detects this at its first check and writes nothing afterwards.

use crate::own;
use crate::support::history::Rules;
use crate::support::workers::{self, Workers};
use crate::support::{Server, eventually, pause, process, signal};

use luagate::{Gate, Lease};
use redis::Script;
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::{Duration, Instant};

/// The process of a holder or of a waiter, when there is one.
fn somebody(workers: &Workers, server: &Server, holding: bool) -> u32 {
    let semaphore = server.gate().semaphore(workers::NAME, workers::LIMIT);
    eventually("there is one", || {
        let state = semaphore.inspect().unwrap();
        let holders = state.holders.iter().map(|holder| &holder.id);
        let waiters = state.waiters.iter().map(|waiter| &waiter.id);
        let ids: Vec<_> = if holding { holders.collect() } else { waiters.collect() };
        ids.into_iter().find_map(|id| workers.process_of(id))
    })
}

#[test]
fn workers_continue_while_holders_and_waiters_are_killed() {
    let server = Server::any();
    let mut workers = Workers::new(&server, &server.url, 6);
    for round in 0..10 {
        let victim = somebody(&workers, &server, round % 2 == 0);
        workers.kill(victim);
        workers.join();
        workers.continue_for(10);
    }
    workers.finish(&server, &Rules::new(workers::LIMIT));
}

#[test]
fn workers_continue_while_holders_and_waiters_are_stopped_beyond_their_lease() {
    let server = Server::any();
    let workers = Workers::new(&server, &server.url, 6);
    for round in 0..3 {
        let victim = somebody(&workers, &server, round % 2 == 0);
        pause(victim);
        let start = std::time::Instant::now();
        eventually("the lease ends", || {
            (start.elapsed() > workers::LEASE + Duration::from_millis(100)).then_some(())
        });
        workers.continue_for(10);
        signal("-CONT", victim);
        workers.continue_for(10);
    }
    // If a process is stopped while it reads a reply, it calls again and finds its own grant: signal(7) says
    // that the read is interrupted.
    let rules = Rules { repeated: true, ..Rules::new(workers::LIMIT) };
    workers.finish(&server, &rules);
}

const LEASE: Duration = Duration::from_millis(800);

/// A process that is killed when the test ends, also if it is stopped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes to a store that refuses fences lower than the highest one so far. The store does not use the lock.
fn write(con: &mut redis::Connection, store: &str, fence: u64, value: &str) -> bool {
    let script = Script::new(
        "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return 0 end
        redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
        return 1",
    );
    script.key(store).arg(fence).arg(value).invoke(con).unwrap()
}

/// Locks and prints so. Then the test stops it. At the next line of its input it continues.
pub fn sleep_over_the_lease(arguments: &[String]) {
    let [url, prefix, store, renewed] = arguments else { panic!("{arguments:?}") };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let mut con = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let mut mutex = gate.mutex("account").with(|lock| lock.lease(Lease::fixed(LEASE)));
    if renewed == "true" {
        mutex = mutex.with(|lock| lock.lease(Lease::renewed(LEASE)));
    }
    let guard = mutex.lock().unwrap();
    println!("locked {}", write(&mut con, store, guard.fence(), "first"));
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let is_lost = guard.is_lost();
    let wrote = write(&mut con, store, guard.fence(), "late");
    println!("woke {is_lost} {wrote} {:?}", guard.release().unwrap());
}

/// Reads the next line of a process, which must begin with this word. Returns the words after it.
#[track_caller]
fn hear(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Vec<String> {
    let line = lines.map(Result::unwrap).find(|line| line.starts_with(word));
    let line = line.unwrap_or_else(|| panic!("the process ended without `{word}`"));
    line.split(' ').skip(1).map(str::to_owned).collect()
}

#[test]
fn a_holder_stopped_beyond_its_lease_detects_it_at_its_first_check_and_writes_nothing() {
    let server = Server::any();
    let gate = server.gate();
    let mut con = server.connection();
    for (round, renewed) in [true, false, true, false].into_iter().enumerate() {
        let store = format!("{}:store-{round}", server.prefix);
        let arguments = [&server.url, &server.prefix, &store, &renewed.to_string()];
        let mut sleeper = Ends(process("sleeper", &arguments.map(|a| a.as_str())).spawn().unwrap());
        let mut lines = BufReader::new(sleeper.0.stdout.take().unwrap()).lines();
        assert_eq!(hear(&mut lines, "locked"), ["true"]);
        pause(sleeper.0.id());
        let guard = gate.mutex("account").lock().unwrap();
        assert!(write(&mut con, &store, guard.fence(), "second"));
        sleeper.0.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        signal("-CONT", sleeper.0.id());
        let [is_lost, wrote, released] = &hear(&mut lines, "woke")[..] else { panic!() };
        assert_eq!((&**is_lost, &**wrote, &**released), ("true", "false", "Gone"));
        assert!(sleeper.0.wait().unwrap().success());
        let value: String = redis::Commands::hget(&mut con, &store, "value").unwrap();
        assert_eq!(value, "second");
        guard.refresh().unwrap();
        guard.release().unwrap();
    }
}

/// Waits in line, prints when it was granted, and releases at the next line of its input.
pub fn wait_in_line(arguments: &[String]) {
    let [url, prefix] = arguments else { panic!("{arguments:?}") };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let guard = gate.mutex("account").lock().unwrap();
    println!("granted");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    guard.release().unwrap();
}

/// Locks with a lease of one second, with this many more waiters in line. Ends when it is killed.
pub fn hold_and_wait(arguments: &[String]) {
    let [url, prefix, waiters] = arguments else { panic!("{arguments:?}") };
    let gate = Gate::builder(url).prefix(prefix).open().unwrap();
    let mutex = gate.mutex("account").with(|lock| lock.lease(Lease::renewed(Duration::from_secs(1))));
    std::thread::scope(|scope| {
        for _ in 0..=waiters.parse().unwrap() {
            scope.spawn(|| {
                let _held = mutex.lock().unwrap();
                std::io::stdin().read_line(&mut String::new()).unwrap();
            });
        }
    });
}

#[test]
fn a_waiter_behind_the_waiters_of_a_killed_holder_is_granted_when_the_lease_ends() {
    let server = Server::any();
    let gate = server.gate();
    for (waiters, lease) in [(1_u64, 1), (5, 30), (20, 1), (20, 30)] {
        let mutex = gate.mutex("account").with(|lock| lock.lease(Lease::fixed(Duration::from_secs(lease))));
        let arguments = [server.url.as_str(), &server.prefix, &waiters.to_string()];
        let mut crowd = Ends(process("crowd", &arguments).spawn().unwrap());
        let waits = |count| {
            let seen = mutex.inspect().unwrap();
            (seen.in_use == 1 && seen.waiter_count == count).then_some(())
        };
        eventually("it holds and waits", || waits(waiters));
        std::thread::scope(|scope| {
            let behind = scope.spawn(|| (mutex.lock().unwrap(), Instant::now()));
            eventually("another one waits behind it", || waits(waiters + 1));
            let mut before = Duration::MAX;
            eventually("the other one asks again, when a lease would have ended that was renewed", || {
                let left = mutex.inspect().unwrap().waiters.last().unwrap().patience;
                let has_asked = left > before;
                before = left;
                has_asked.then_some(())
            });
            crowd.0.kill().unwrap();
            crowd.0.wait().unwrap();
            let (killed, left) = (Instant::now(), mutex.inspect().unwrap().holders[0].remaining.unwrap());
            let (held, granted) = behind.join().unwrap();
            // With one call in five seconds, it would come four seconds later.
            let late = granted.saturating_duration_since(killed + left);
            assert!(
                late < Duration::from_secs(2),
                "{waiters} dead waiters, a lease of {lease} s: {late:?} too late"
            );
            held.release().unwrap();
        });
    }
}

/// The ids of the connections that are subscribed to their own channel.
fn subscribers(con: &mut redis::Connection) -> Vec<String> {
    let mut list = redis::cmd("CLIENT");
    let text: String = list.arg("LIST").arg("TYPE").arg("pubsub").query(con).unwrap();
    let number = |line: &str| line.split(' ').next().map(str::to_owned);
    text.lines().filter_map(number).collect()
}

/// Whether a process runs again, with all its threads. Always true on systems without `/proc`.
fn runs(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state != Some('T')
    })
}

#[test]
fn a_briefly_stopped_waiter_keeps_its_subscription_and_its_place() {
    let server = own!(Server::private(&[]));
    let mutex = server.gate().mutex("account");
    let mut con = server.connection();
    let guard = mutex.lock().unwrap();
    let mut waiter = process("waiter", &[&server.url, &server.prefix]).spawn().unwrap();
    let before = eventually("it listens", || {
        let before = subscribers(&mut con);
        (before.len() == 1).then_some(before)
    });
    eventually("it waits", || (mutex.inspect().unwrap().waiter_count == 1).then_some(()));
    for _ in 0..5 {
        signal("-STOP", waiter.id());
        signal("-CONT", waiter.id());
        eventually("the process runs again", || runs(waiter.id()).then_some(()));
    }
    guard.release().unwrap();
    let mut lines = BufReader::new(waiter.stdout.take().unwrap()).lines();
    hear(&mut lines, "granted");
    assert_eq!(subscribers(&mut con), before);
    waiter.stdin.take().unwrap().write_all(b"end\n").unwrap();
    assert!(waiter.wait().unwrap().success());
}
