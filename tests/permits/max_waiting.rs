//! Promise: with `max_waiting` a caller does not join a line of that length. Waiters already in line stay
//! there.

use crate::own;
use crate::support::{SOON, Server, eventually, timed_out};

use luagate::errors::AcquireError;
use luagate::{Error, Semaphore};
use std::thread;
use std::time::{Duration, Instant};

fn waiters(semaphore: &Semaphore) -> u64 {
    semaphore.inspect().unwrap().waiter_count
}

#[test]
fn a_full_line_refuses_at_once_with_the_number_of_waiters() {
    let server = Server::any();
    let gate = server.gate();
    let market = gate.semaphore("market", 1).max_waiting(2);
    let held = market.acquire().unwrap();
    thread::scope(|scope| {
        let waits: Vec<_> = (1..=2)
            .map(|n| {
                let waits = scope.spawn(|| market.acquire_timeout(SOON)?.release().map_err(Error::from));
                eventually("it waits", || (waiters(&market) == n).then_some(()));
                waits
            })
            .collect();
        let begun = Instant::now();
        let Err(AcquireError::LineFull(denied)) = market.acquire_timeout(SOON) else {
            panic!("it joined the line")
        };
        assert!(begun.elapsed() < SOON / 2, "the call waited");
        assert_eq!((denied.waiting, denied.in_use, denied.limit), (2, 1, 1));
        let error = Error::from(market.acquire().unwrap_err());
        assert!(matches!(&error, Error::LineFull(denied) if denied.waiting == 2), "{error}");
        assert!(error.to_string().starts_with("the line is full: market: 1 of 1 permits"), "{error}");
        // A try is only denied. A caller that allows a longer line may wait.
        assert!(market.try_acquire().is_err());
        timed_out(|| market.clone().max_waiting(3).acquire_timeout(Duration::from_millis(20)));
        assert_eq!(waiters(&market), 2);
        held.release().unwrap();
        for wait in waits {
            wait.join().unwrap().unwrap();
        }
    });
    let counters = gate.counters();
    assert_eq!((counters.line_full, counters.denied), (2, 4));
}

#[test]
fn waiters_stay_in_line_when_others_allow_a_shorter_line() {
    let server = Server::any();
    let gate = server.gate();
    let market = gate.semaphore("market", 1);
    let held = market.acquire().unwrap();
    thread::scope(|scope| {
        let waits: Vec<_> = (1..=3)
            .map(|n| {
                let patient = market.clone().max_waiting(3);
                let waits =
                    scope.spawn(move || patient.acquire_timeout(SOON)?.release().map_err(Error::from));
                eventually("it waits", || (waiters(&market) == n).then_some(()));
                waits
            })
            .collect();
        let refused = market.clone().max_waiting(1).acquire_timeout(SOON);
        assert!(matches!(refused, Err(AcquireError::LineFull(_))), "{refused:?}");
        assert_eq!(waiters(&market), 3);
        held.release().unwrap();
        for wait in waits {
            wait.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_waiter_keeps_its_place_when_its_connection_breaks_and_the_line_is_full() {
    let server = own!(Server::private_tcp(&[]));
    let gate = server.gate();
    let market = gate.semaphore("market", 1).max_waiting(1);
    let held = market.acquire().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| market.acquire_timeout(SOON));
        eventually("it waits", || (waiters(&market) == 1).then_some(()));
        let mut con = server.connection();
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec(&mut con).unwrap();
        eventually("the waiter is subscribed again", || (gate.counters().reconnects > 0).then_some(()));
        held.release().unwrap();
        waits.join().unwrap().unwrap().release().unwrap();
    });
    assert_eq!(gate.counters().line_full, 0);
}

#[test]
fn a_maximum_line_of_zero_is_refused() {
    let server = Server::any();
    let gate = server.gate();
    for n in [0, u32::MAX] {
        let Err(AcquireError::Invalid(invalid)) = gate.semaphore("market", 1).max_waiting(n).acquire() else {
            panic!("{n}")
        };
        assert_eq!(invalid.what(), "max_waiting");
        assert!(invalid.to_string().contains("try_acquire"), "{invalid}");
    }
}

#[test]
fn locks_support_max_waiting() {
    let server = Server::any();
    let gate = server.gate();
    let item = gate.mutex("item").with(|lock| lock.max_waiting(1));
    let book = gate.rwlock("book").with(|lock| lock.max_waiting(1));
    let held = (item.lock().unwrap(), book.write().unwrap());
    thread::scope(|scope| {
        let waits = (scope.spawn(|| item.lock()), scope.spawn(|| book.read()));
        let both_wait = || {
            let waiting = item.inspect().unwrap().waiter_count + book.inspect().unwrap().waiter_count;
            (waiting == 2).then_some(())
        };
        eventually("both wait", both_wait);
        assert!(matches!(item.try_lock_for(SOON), Err(AcquireError::LineFull(_))));
        assert!(matches!(book.try_read_for(SOON), Err(AcquireError::LineFull(_))));
        drop(held);
        waits.0.join().unwrap().unwrap().release().unwrap();
        waits.1.join().unwrap().unwrap().release().unwrap();
    });
}
