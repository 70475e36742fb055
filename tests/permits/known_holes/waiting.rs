//! Promise: waiters are granted in order and in time. No dead waiter, lost message or changed limit prevents this.

use super::MINUTE;
use crate::own;
use crate::support::raw::{Listener, Raw};
use crate::support::stop::Stop;
use crate::support::{self, Server, eventually};

use luagate::scripts::semaphore::{self, Ask, LookupAnswer, ReleaseAnswer};
use redis::Commands;
use std::time::{Duration, Instant};

#[test]
fn hole_09_a_lost_message_hangs_a_waiter() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = server.gate().semaphore("raw", 1).id("waiter");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(|permit| permit.fence()));
        eventually("it waits", || matches!(raw.lookup("waiter"), LookupAnswer::Queued { .. }).then_some(()));
        // The server loses the waiter without a message, as after a failover: no message will ever arrive.
        let [meta, _, queue] = raw.keys.clone().names().map(str::to_owned);
        let _: () = raw.con.zrem(queue, "waiter").unwrap();
        let _: () = raw.con.hdel(meta, "waiter").unwrap();
        raw.assert_released("holder");
        let start = Instant::now();
        assert!(waiter.join().unwrap().is_ok());
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    });
}

#[test]
fn hole_16_a_dead_head_blocks_the_queue_and_the_next_one_spins() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 2_500, ..raw.ask("holder") }).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 86_400_000, inbox: "nobody:listens", ..raw.ask("dead") });
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 1);
    let mut con = server.connection();
    support::reset_counts(&mut con);
    let permit = semaphore.acquire_timeout(MINUTE).unwrap();
    let late = permit.fence() / 1_000 - end;
    assert!(late < 1_000, "{late} ms after the lease ended");
    let scripts = support::calls_in_scripts(&mut con).1;
    assert!(scripts <= 8, "{scripts} scripts to wait for 2.5 s");
}

#[test]
fn hole_18_waiters_are_not_woken_when_permits_are_added() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "added");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("waiter") });
    raw.resize(2, None);
    assert_eq!(inbox.next_grant()[0], "waiter");
}

#[test]
fn hole_19_a_request_for_many_is_never_woken_or_starves() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("many", 4);
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        for _ in 0..6 {
            scope.spawn(|| {
                while !stop.is_set() {
                    drop(semaphore.acquire_timeout(MINUTE).unwrap());
                }
            });
        }
        for _ in 0..20 {
            drop(semaphore.acquire_many_timeout(4, MINUTE).unwrap());
        }
    });
}

#[test]
fn hole_24_every_release_wakes_everybody() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 600_000, ..raw.ask("holder") });
    let mut inboxes: Vec<Listener> = (0..5).map(|n| Listener::new(&server, &n.to_string())).collect();
    for (n, inbox) in inboxes.iter().enumerate() {
        let ask = raw.ask("");
        raw.queue(Ask { id: &format!("w{n}"), lease_ms: 600_000, wait_ms: 60_000, inbox: &inbox.channel, ..ask });
    }
    raw.assert_released("holder");
    assert_eq!(inboxes[0].next_grant()[0], "w0");
    assert!(inboxes.iter_mut().all(|inbox| inbox.is_silent(&server)));
}

#[test]
fn hole_31_a_waiting_time_or_a_lease_that_is_ignored() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1);
    let permit = semaphore.clone().lease(Duration::from_secs(7)).acquire_timeout(MINUTE).unwrap();
    let left = permit.remaining().unwrap();
    assert!(left > Duration::from_secs(5) && left < Duration::from_secs(7), "{left:?}");
    let start = Instant::now();
    assert!(semaphore.try_acquire().is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
    let start = Instant::now();
    assert!(semaphore.acquire_timeout(Duration::from_millis(300)).is_err());
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn hole_32_a_message_is_taken_for_a_grant() {
    // A message is published only for a real grant, so a subscriber on another node receives no false grant.
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut monitor = server.connection();
    let mut everything = monitor.as_pubsub();
    everything.psubscribe(format!("{}:inbox:*", server.prefix)).unwrap();
    raw.grant(raw.ask("holder"));
    let dropped = format!("{}:inbox:elsewhere", server.prefix);
    raw.queue(Ask { wait_ms: 60_000, inbox: &dropped, ..raw.ask("elsewhere") });
    raw.assert_released("holder");
    raw.grant(raw.ask("next"));
    let _: () = raw.con.publish(&dropped, "end").unwrap();
    let payload: String = everything.get_message().unwrap().get_payload().unwrap();
    assert_eq!(payload, "end");
}

#[test]
fn hole_34_a_release_without_permission_to_publish_loses_the_permit() {
    for forbidden in ["-publish", "-pubsub"] {
        let server = own!(Server::private_tcp(&["--user", "mute", "on", ">pw", "~*", "&*", "+@all", forbidden,]));
        let mut raw = Raw::new(&server, 1);
        let inbox = Listener::new(&server, "deaf");
        let mute = redis::Client::open(server.url.replace("redis://", "redis://mute:pw@")).unwrap();
        let mut mute = mute.get_connection().unwrap();
        raw.grant(raw.ask("holder"));
        let ask = Ask { wait_ms: 60_000, inbox: &inbox.channel, ..raw.ask("waiter") };
        let ticket = raw.queue(ask);
        let answer = semaphore::release(&mut mute, &raw.keys, "holder", 0, None);
        assert!(matches!(answer, Ok(ReleaseAnswer::Released { .. })), "{forbidden}: {answer:?}");
        assert_eq!(raw.in_use(), 0, "{forbidden}: granted without a message");
        raw.grant(Ask { ticket, ..ask });
    }
}

#[test]
fn hole_35_a_waiter_that_wants_more_than_a_lowered_limit_blocks_the_queue() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    let mut inbox = Listener::new(&server, "behind");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(5), ..raw.ask("holder") });
    raw.queue(Ask { permits: Some(5), wait_ms: 60_000, inbox: &channel, ..raw.ask("big") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("behind") });
    raw.resize(2, None);
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "behind");
}
