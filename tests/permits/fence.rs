//! Promise: the fences of one semaphore strictly increase from grant to grant, whatever became of its keys in between.

use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::Ask;
use redis::Commands;

#[test]
fn from_grant_to_grant_also_by_message() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "fences");
    let channel = inbox.channel.clone();
    let mut last = raw.grant(raw.ask("h0")).fence;
    for n in 1..50 {
        let (holder, next) = (format!("h{}", n - 1), format!("h{n}"));
        let ticket = raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask(&next) });
        assert!(ticket > last, "a ticket is not above the fences given before it");
        raw.assert_released(&holder);
        let fence: u64 = inbox.next_grant()[2].parse().unwrap();
        assert!(fence > ticket);
        last = fence;
    }
}

#[test]
fn after_the_keys_were_deleted() {
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
fn a_ticket_from_a_future_that_was_lost_keeps_its_promise() {
    // A replica that is a little behind was promoted: it does not know the last tickets, which are above its own.
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "future");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    let ahead = (raw.server_ms() + 3_600_000) * 1_000;
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ticket: ahead, ..raw.ask("waiter") });
    raw.assert_released("holder");
    let fence: u64 = inbox.next_grant()[2].parse().unwrap();
    assert!(fence > ahead, "its client would take the grant for one of an earlier wait");
}
