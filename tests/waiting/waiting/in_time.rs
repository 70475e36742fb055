//! Promise: a waiter is granted a permit as soon as one is free. All waits of a gate share one subscription.

use super::{LONG_MS, MINUTE, await_waiters, held};
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::{Server, assert_in_time};

use luagate::errors::AcquireError;
use luagate::scripts::semaphore::{Ask, ReleaseAnswer};
use luagate::{Cancel, Semaphore};
use std::time::{Duration, Instant};

#[test]
fn all_waiting_threads_of_a_gate_share_one_subscriber_connection() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    let holder = semaphore.acquire().unwrap();
    assert_eq!(subscribers(&mut raw), 0, "subscribed before the first wait");
    std::thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..50).map(|_| scope.spawn(|| drop(semaphore.acquire_timeout(MINUTE).unwrap()))).collect();
        await_waiters(&mut raw, 50);
        assert_eq!(subscribers(&mut raw), 1);
        holder.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert_eq!(raw.in_use(), 0);
}

fn subscribers(raw: &mut Raw) -> usize {
    let list: String =
        redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
    list.lines().filter(|line| !line.is_empty()).count()
}

#[test]
fn expired_lease_is_granted_to_the_first_waiter_within_50_ms() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1);
    assert_in_time(Duration::from_millis(50), || {
        let mut raw = Raw::new(&server, 1);
        let end = raw.grant(Ask { lease_ms: 200, ..raw.ask("crashed") }).expires_at.unwrap();
        let permit = semaphore.acquire_timeout(MINUTE).unwrap();
        // A fence is the server's time of the grant, in microseconds.
        let late = permit.fence().checked_sub(end * 1_000).expect("granted before the lease ended");
        permit.release().unwrap();
        Duration::from_micros(late)
    });
}

#[test]
fn expired_lease_is_granted_to_a_new_head_within_50_ms() {
    let server = Server::any();
    let gate = server.gate();
    let inbox = Listener::new(&server, "others");
    let mut round = 0;
    let begin = |round: usize| {
        let name = format!("raw-{round}");
        let mut raw = Raw::named(&server, &name, 1);
        let crashed = Ask { lease_ms: 2_000, ..raw.ask("crashed") };
        let end = raw.grant(crashed).expires_at.unwrap();
        // Behind this number of waiters the client would ask again only after the lease end.
        let others = ["a", "b", "c", "d", "e"];
        for id in others {
            raw.queue(Ask { wait_ms: LONG_MS, inbox: &inbox.channel, ..raw.ask(id) });
        }
        let semaphore = gate.semaphore(&name, 1);
        let waiting = std::thread::spawn(move || semaphore.acquire_timeout(MINUTE).unwrap());
        await_waiters(&mut raw, 6);
        for id in others {
            assert_eq!(raw.release(id), ReleaseAnswer::Cancelled);
        }
        (end, waiting)
    };
    assert_in_time(Duration::from_millis(50), || {
        round += 1;
        let (end, waiting) = begin(round);
        let fence = waiting.join().unwrap().fence();
        let late = fence.checked_sub(end * 1_000);
        Duration::from_micros(late.expect("granted before the lease ended"))
    });
}

#[test]
fn a_cancellable_wait_is_granted_at_once_although_the_wait_that_read_for_it_has_ended() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    assert_in_time(Duration::from_millis(50), || {
        // The first wait of a gate reads the messages for all waits.
        let first = server.gate().semaphore("raw", 1);
        let last = first.clone().cancelled_by(&Cancel::new());
        raw.grant(held(&raw));
        let first = std::thread::spawn(move || first.acquire_timeout(MINUTE).unwrap());
        await_waiters(&mut raw, 1);
        let last = std::thread::spawn(move || {
            let permit = last.acquire_timeout(MINUTE).unwrap();
            let granted = Instant::now();
            permit.release().unwrap();
            granted
        });
        await_waiters(&mut raw, 2);
        raw.assert_released("holder");
        let permit = first.join().unwrap();
        let released = Instant::now();
        permit.release().unwrap();
        last.join().unwrap().duration_since(released)
    });
}

#[test]
fn two_semaphores_can_be_waited_for_with_one_own_id() {
    let server = Server::any();
    let mut first = Raw::named(&server, "first", 1);
    let mut second = Raw::named(&server, "second", 1);
    first.grant(first.ask("holder"));
    second.grant(second.ask("holder"));
    let gate = server.gate();
    let wait = |name: &str| {
        let semaphore: Semaphore = gate.semaphore(name, 1).id("me");
        move || semaphore.acquire_timeout(MINUTE).map(|permit| permit.fence())
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(wait("first"));
        let two = scope.spawn(wait("second"));
        await_waiters(&mut first, 1);
        await_waiters(&mut second, 1);
        assert!(
            matches!(wait("first")(), Err(AcquireError::Invalid(_))),
            "the same id is already in line there"
        );
        second.assert_released("holder");
        assert!(two.join().unwrap().is_ok());
        assert!(!one.is_finished());
        first.assert_released("holder");
        assert!(one.join().unwrap().is_ok());
    });
}
