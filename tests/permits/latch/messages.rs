//! Promise: the waiters of a latch are notified when it opens. Without a message they ask again within 5 s.

use super::{MINUTE, RECHECK, REPORTED, Raw, lose_message, waiter, with_deaf_gate};
use crate::own;
use crate::support::raw::Listener;
use crate::support::{self, Server, command_counts, eventually, reset_counts};

use luagate::Gate;
use luagate::errors::{FailureKind, WaitError};
use luagate::scripts::LatchKeys;
use luagate::scripts::latch::CountDownAnswer;
use redis::Commands;
use std::collections::BTreeSet;
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
fn a_message_has_the_format_of_a_hint() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "hint");
    assert_eq!(raw.wait_closed(15_000, &inbox.channel), (2, 5_000));
    raw.count_down("a");
    assert!(inbox.is_silent(&server), "notified before it was open");
    let CountDownAnswer::Counted { left: 0, now, .. } = raw.try_count_down("b").unwrap() else { panic!() };
    let latch = raw.key(0);
    assert_eq!(inbox.next(), [&latch, "0", "0", "0", &now.to_string()]);
    raw.assert_open();
    assert!(inbox.is_silent(&server), "notified twice");
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
    let mute =
        Gate::builder(&server.url.replace("redis://", "redis://mute:pw@")).prefix(&server.prefix).open().unwrap();
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
fn three_hundred_clients_are_notified_by_bounded_scripts() {
    const BOUND: u64 = 112; // a hundred messages, and the calls before and after
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
    let mut received = BTreeSet::new();
    let calls = |raw: &mut Raw, run: &dyn Fn(&mut Raw)| {
        support::reset_counts(&mut raw.con);
        run(raw);
        let (calls, scripts) = support::calls_in_scripts(&mut raw.con);
        assert_eq!(scripts, 1);
        assert!(calls < BOUND, "{calls} calls in one script");
    };
    calls(&mut raw, &|raw| assert_eq!(raw.count_down("a"), 0));
    // Each notified client asks, and this call notifies the next hundred, until all are notified.
    for _ in 0..100 {
        let message = subscriber.get_message().unwrap();
        received.insert(message.get_channel_name().to_owned());
    }
    assert_eq!(received.len(), 100);
    for reported in [200, 300] {
        calls(&mut raw, &|raw| {
            raw.try_wait(60_000, "inbox:1").unwrap();
        });
        while received.len() < reported {
            let message = subscriber.get_message().unwrap();
            received.insert(message.get_channel_name().to_owned());
        }
    }
    assert_eq!(received, inboxes.into_iter().collect());
    calls(&mut raw, &|raw| {
        raw.try_wait(60_000, "inbox:1").unwrap();
    });
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn waiters_past_their_deadline_are_dropped_without_a_message() {
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
    eventually("the waiters' deadlines pass", || ended(&mut raw).then_some(()));
    assert_eq!(raw.waiting(), 250);
    support::reset_counts(&mut raw.con);
    raw.wait_closed(60_000, &inbox.channel);
    assert!(support::calls_in_scripts(&mut raw.con).0 < 12);
    assert_eq!(raw.waiting(), 151);
    support::reset_counts(&mut raw.con);
    raw.count_down("a");
    assert_eq!(support::command_counts(&mut raw.con)["publish"], 1, "a dropped waiter was notified");
    assert_eq!(inbox.next()[1..4], ["0", "0", "0"]);
    assert_eq!(raw.waiting(), 0);
}

#[test]
fn an_inbox_has_one_entry_and_its_deadline_is_never_shortened() {
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
    // A caller without an inbox or without a wait is not registered, and asks again within a second.
    for (wait_ms, inbox) in [(60_000, ""), (0, "y")] {
        assert_eq!(raw.wait_closed(wait_ms, inbox), (1, 1_000));
    }
    assert_eq!(raw.waiting(), 1);
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
