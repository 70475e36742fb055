//! Promise: calls of many threads share connections and packets. Each call has its own outcome, as on its own
//! connection.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{self, Server, eventually};

use luagate::errors::{FailureKind, TryAcquireError};
use luagate::{Gate, Lease, Permit, Semaphore};
use redis::Connection;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

/// The number of calls that share one packet.
const OTHERS: usize = 5;

type Outcome = Result<Permit, TryAcquireError>;

/// A value from the server's INFO.
fn stat(con: &mut Connection, section: &str, name: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg(section).query(con).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    let digits = value.unwrap_or_default().split(',').next().unwrap();
    digits.parse().unwrap_or_default()
}

/// The number of scripts that the server has run.
fn scripts(con: &mut Connection) -> u64 {
    stat(con, "commandstats", "cmdstat_evalsha:calls=")
}

/// A gate with one connection, through a proxy, to a server that has the scripts loaded.
fn behind(proxy: &Proxy, server: &Server, read_timeout: Duration) -> Gate {
    let gate = Gate::builder(&proxy.url).prefix(&server.prefix).read_timeout(read_timeout).open().unwrap();
    let permit = gate.semaphore("first", 1).try_acquire().unwrap();
    permit.release().unwrap();
    gate
}

/// Blocks the only connection with a call that waits for its reply, runs `then`, and starts further calls
/// meanwhile. These share one packet. Returns the first permit and the outcomes of the others.
fn ask_together<'s>(
    scope: &'s Scope<'s, '_>,
    (server, proxy): (&Server, &Proxy),
    semaphore: &'s Semaphore,
    then: impl FnOnce(),
) -> (Permit, Vec<Outcome>) {
    let directly = server.gate().semaphore(semaphore.name(), 100);
    proxy.delay_replies([Duration::from_millis(200)]);
    let first = scope.spawn(|| semaphore.try_acquire().unwrap());
    eventually("the server has run the first call", || {
        (directly.inspect().unwrap().in_use == 1).then_some(())
    });
    then();
    let others: Vec<ScopedJoinHandle<Outcome>> =
        (0..OTHERS).map(|_| scope.spawn(|| semaphore.try_acquire())).collect();
    let others = others.into_iter().map(|other| other.join().unwrap());
    let others = others.collect();
    (first.join().unwrap(), others)
}

#[test]
fn many_calls_share_few_packets_and_each_gets_its_own_reply() {
    let server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).open().unwrap();
    let semaphore = gate.semaphore("together", 1_000).lease(Lease::fixed(LONG));
    let mut con = server.connection();
    let reads = stat(&mut con, "stats", "total_reads_processed:");
    let before = scripts(&mut con);
    std::thread::scope(|scope| {
        for permits in 1..=16 {
            let semaphore = &semaphore;
            scope.spawn(move || {
                for _ in 0..50 {
                    let permit = eventually("an answer in time", || semaphore.try_acquire_many(permits).ok());
                    assert_eq!(permit.permits(), permits);
                    assert_eq!(permit.release().unwrap(), luagate::Released::Released);
                }
            });
        }
    });
    let scripts = scripts(&mut con) - before;
    assert!(scripts >= 1_600, "{scripts} scripts");
    let reads = stat(&mut con, "stats", "total_reads_processed:") - reads;
    assert!(reads < scripts / 2, "{reads} reads for {scripts} scripts");
    assert_eq!(semaphore.available_permits().unwrap(), 1_000);
}

#[test]
fn calls_on_a_broken_connection_are_retried_and_none_is_granted_twice() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = behind(&proxy, &server, Duration::from_secs(5));
    let semaphore = gate.semaphore("broken", 100).lease(Lease::fixed(LONG));
    std::thread::scope(|scope| {
        let break_next = || proxy.lose_replies(1);
        let (first, others) = ask_together(scope, (&server, &proxy), &semaphore, break_next);
        assert!(proxy.is_done());
        let others: Vec<Permit> = others.into_iter().map(Result::unwrap).collect();
        assert_eq!(semaphore.inspect().unwrap().in_use, 1 + OTHERS as u32);
        drop((first, others));
    });
    eventually("all permits are released", || (semaphore.inspect().unwrap().in_use == 0).then_some(()));
}

#[test]
fn late_replies_are_not_used_for_other_calls() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = behind(&proxy, &server, Duration::from_secs(1));
    let semaphore = gate.semaphore("late", 100).lease(Lease::fixed(LONG));
    std::thread::scope(|scope| {
        let delay_next = || proxy.delay_replies([Duration::from_secs(2)]);
        let (first, others) = ask_together(scope, (&server, &proxy), &semaphore, delay_next);
        for other in others {
            match other {
                Err(TryAcquireError::Unknown(f)) if f.kind() == FailureKind::TimedOut => {}
                other => panic!("{other:?}"),
            }
        }
        // None of them is held, and the connection that waits for their replies returns no wrong ones.
        eventually("their permits are released", || {
            (server.gate().semaphore("late", 100).inspect().unwrap().in_use == 1).then_some(())
        });
        for permits in 1..=20 {
            let permit = semaphore.try_acquire_many(permits).unwrap();
            assert_eq!(permit.permits(), permits);
            permit.release().unwrap();
        }
        first.release().unwrap();
    });
}

#[test]
fn delayed_calls_leave_nothing_held_after_their_releases() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let gate = behind(&proxy, &server, Duration::from_secs(1));
    let semaphore = gate.semaphore("held", 100).lease(Lease::fixed(LONG));
    let mut con = server.connection();
    std::thread::scope(|scope| {
        let mut before = 0;
        let hold = || {
            proxy.hold();
            before = scripts(&mut con);
        };
        let (first, others) = ask_together(scope, (&server, &proxy), &semaphore, hold);
        assert!(others.iter().all(Result::is_err), "{others:?}");
        let count = OTHERS as u64;
        support::within(Duration::from_secs(30), || (scripts(&mut con) >= before + count).then_some(()))
            .expect("the release of each is also sent on another connection");
        let released = scripts(&mut con);
        proxy.let_go();
        eventually("the server has run the delayed calls", || {
            (scripts(&mut con) >= released + count).then_some(())
        });
        let directly = server.gate().semaphore("held", 100);
        eventually("and released", || (directly.inspect().unwrap().in_use == 1).then_some(()));
        first.release().unwrap();
    });
}
