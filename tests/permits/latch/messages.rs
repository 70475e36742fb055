//! Promise: the waiters of a latch are notified when it opens. Without a message they ask again within 5 s.

use super::{MINUTE, RECHECK, REPORTED, Raw, lose_message, waiter, with_deaf_gate};
use crate::own;
use crate::support::{self, Server, command_counts, eventually, reset_counts};

use luagate::Gate;
use luagate::errors::{FailureKind, WaitError};
use luagate::scripts::LatchKeys;
use std::time::Instant;

#[test]
fn a_waiter_is_notified_and_asks_once() {
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
        assert!(woken < REPORTED, "{woken:?}");
        assert_eq!(support::calls_in_scripts(&mut raw.con).1, 2);
    });
}

#[test]
fn a_lost_message_delays_a_waiter_by_at_most_its_recheck() {
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
fn a_lost_subscription_is_reestablished() {
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
            assert!(woken < REPORTED, "{woken:?}");
        });
    }
}

#[test]
fn a_user_without_channel_permissions_can_count_and_gets_a_permission_error_for_waits() {
    let user = "--user mute on >pw ~* resetchannels +@all";
    let server = own!(Server::private_tcp(&user.split(' ').collect::<Vec<_>>()));
    let mute = Gate::builder(&server.url.replace("redis://", "redis://mute:pw@"))
        .prefix(&server.prefix)
        .open()
        .unwrap();
    let mut raw = Raw::new(&server, 2);
    let mute_latch = mute.latch("raw", 2);
    let latch = server.gate().latch("raw", 2);
    std::thread::scope(|scope| {
        let received = waiter(scope, &latch);
        raw.await_waiters(1);
        raw.count_down("a");
        let Err(WaitError::Failed(failure)) = mute_latch.wait() else { panic!() };
        assert_eq!(failure.kind(), FailureKind::Permission, "{failure}");
        let start = Instant::now();
        // The script may not publish, but the latch opens.
        assert_eq!(mute_latch.count_down().unwrap(), 0);
        let received = received.join().unwrap().unwrap() - start;
        assert!(received < RECHECK, "{received:?}");
    });
    raw.assert_open();
}

#[test]
fn a_waiter_without_messages_asks_every_second() {
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
        assert!(opened < REPORTED, "{opened:?}");
    });
}

#[test]
fn latches_and_semaphores_share_one_subscriber_connection() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let gate = server.gate();
    let (latch, semaphore) = (gate.latch("raw", 1), gate.semaphore("raw", 1));
    let holder = semaphore.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..20).map(|_| waiter(scope, &latch)).collect();
        let acquiring = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(drop));
        raw.await_waiters(1);
        eventually("a waiter is in line", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let subscribers: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut raw.con).unwrap();
        assert_eq!(subscribers.lines().count(), 1);
        let start = Instant::now();
        raw.count_down("a");
        for waiting in waiters {
            assert!(waiting.join().unwrap().unwrap() - start < REPORTED);
        }
        holder.release().unwrap();
        acquiring.join().unwrap().unwrap();
    });
}
