//! Promise: the fences of one semaphore strictly increase from grant to grant, also after its keys were lost.

use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::Ask;
use redis::Commands;

#[test]
fn fences_increase_from_grant_to_grant_also_by_message() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "fences");
    let channel = inbox.channel.clone();
    let mut last = raw.grant(raw.ask("h0")).fence;
    for n in 1..50 {
        let (holder, next) = (format!("h{}", n - 1), format!("h{n}"));
        let ticket = raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask(&next) });
        assert!(ticket > last, "the ticket is not above all earlier fences");
        raw.assert_released(&holder);
        let fence: u64 = inbox.next_grant()[2].parse().unwrap();
        assert!(fence > ticket);
        last = fence;
    }
}

#[test]
fn fences_increase_after_the_keys_were_deleted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut last = 0;
    for _ in 0..20 {
        let fence = raw.grant(raw.ask("holder")).fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        let keys = raw.key_names().to_vec();
        let _: () = raw.con.del(keys).unwrap();
    }
}

#[test]
fn a_fence_is_the_server_time_in_microseconds() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let before = raw.server_ms() * 1_000;
    let fence = raw.grant(raw.ask("holder")).fence;
    let after = (raw.server_ms() + 1) * 1_000;
    assert!((before..after).contains(&fence), "{before} {fence} {after}");
}

#[test]
fn a_grant_for_a_ticket_ahead_of_a_stale_replica_has_a_higher_fence() {
    // A stale replica was promoted: it lacks the last tickets, which are above its own numbers.
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "future");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    let ahead = (raw.server_ms() + 59_000) * 1_000; // the scripts accept a minute
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ticket: ahead, ..raw.ask("waiter") });
    raw.assert_released("holder");
    let fence: u64 = inbox.next_grant()[2].parse().unwrap();
    assert!(fence > ahead, "the client would take this grant for one of an earlier wait");
}
