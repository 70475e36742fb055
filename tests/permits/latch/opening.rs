//! Promise: a latch opens for all current and later waiters, in every thread and process, and not before the
//! last count.

use super::{MINUTE, REPORTED, Raw, nanos, waiter};
use crate::own;
use crate::support::{Server, process};

use luagate::Error;
use luagate::errors::{StillClosed, WaitError};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

#[test]
fn the_last_count_opens_a_latch_for_every_thread_of_every_process() {
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
        let waiters: Vec<_> =
            (0..20).map(|_| scope.spawn(|| latch.wait_timeout(MINUTE).map(|()| nanos()))).collect();
        raw.await_waiters(5);
        let counters: Vec<_> = (0..9).map(|_| scope.spawn(|| latch.count_down())).collect();
        for counter in counters {
            assert!(counter.join().unwrap().unwrap() > 0);
        }
        assert_eq!(latch.left().unwrap(), 1);
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
        assert!(at > before_last, "a wait ended before the last count");
        let late = Duration::from_nanos((at - before_last).try_into().unwrap());
        assert!(late < REPORTED, "{late:?} after the last count");
    }
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn a_wait_before_the_first_count_blocks() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 2);
    assert_eq!(latch.left().unwrap(), 2);
    assert!(server.all_keys().is_empty(), "reading the count writes nothing");
    let closed = latch.wait_timeout(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(closed, WaitError::StillClosed(StillClosed { left: 2, count: 2, .. })), "{closed:?}");
    assert!(matches!(Error::from(closed), Error::StillClosed(_)));
}

#[test]
fn an_open_latch_lets_later_waits_return_at_once() {
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
    assert_eq!(latch.left().unwrap(), 0);
    let subscribers: String =
        redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
    assert_eq!(subscribers.trim(), "", "a subscription was opened for an open latch");
}

#[test]
fn a_hundred_and_twenty_gates_are_woken_together() {
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
            assert!(woken < REPORTED, "{woken:?}");
        }
    });
}

#[test]
fn a_latch_works_on_a_cluster_node() {
    let server = own!(Server::cluster_node());
    let mut raw = Raw::new(&server, 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        assert_eq!(latch.count_down().unwrap(), 1);
        let start = Instant::now();
        assert_eq!(latch.count_down().unwrap(), 0);
        assert!(waiting.join().unwrap().unwrap() - start < REPORTED);
    });
}
