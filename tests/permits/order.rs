//! Promise: first come, first served. The waiter with the smallest ticket is granted first. Small requests do not
//! overtake a big one at the head, and new callers do not overtake the line.

use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::{Answer, Ask, LookupAnswer};

#[test]
fn waiters_are_granted_in_the_order_of_their_tickets() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "in-order");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("first"));
    let tickets: Vec<u64> = (0..20)
        .map(|n| {
            let id = format!("waiter-{n}");
            raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask(&id) })
        })
        .collect();
    assert!(tickets.windows(2).all(|t| t[0] < t[1]), "{tickets:?}");
    let mut holder = "first".to_owned();
    for n in 0..20 {
        raw.assert_released(&holder);
        let message = inbox.next_grant();
        assert_eq!(message[0], format!("waiter-{n}"));
        holder = message[0].clone();
        assert!(raw.holds(&holder), "{holder} received a message for a permit that it does not hold");
    }
}

#[test]
fn a_big_request_at_the_head_holds_back_small_ones() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let inbox = Listener::new(&server, "big");
    let inbox = &*inbox.channel.clone();
    raw.grant(raw.ask("a"));
    raw.grant(raw.ask("b"));
    let ask = Ask { permits: Some(3), wait_ms: 60_000, inbox, ..raw.ask("big") };
    raw.queue(ask);
    // One permit is free, and each of these requests would fit.
    raw.queue(Ask { wait_ms: 60_000, inbox, ..raw.ask("small") });
    raw.assert_denied(raw.ask("no-wait"));
    raw.assert_denied(Ask { permits: None, ..raw.ask("all-that-is-free") });
    raw.assert_released("a");
    assert!(!raw.holds("small") && !raw.holds("big"));
}

#[test]
fn a_big_request_is_granted_before_a_later_small_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let mut inbox = Listener::new(&server, "big-then-small");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("a"));
    raw.queue(Ask { permits: Some(3), wait_ms: 60_000, inbox: &channel, ..raw.ask("big") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("small") });
    raw.assert_released("a");
    assert_eq!(inbox.next_grant()[..2], ["big", "3"]);
    raw.assert_released("big");
    assert_eq!(inbox.next_grant()[..2], ["small", "1"]);
}

#[test]
fn a_ticket_restores_the_old_place() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "ticket");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    let in_line = |id| Ask { wait_ms: 60_000, inbox: &channel, ..Raw::new(&server, 1).ask(id) };
    let ticket = raw.queue(in_line("early"));
    raw.queue(in_line("late"));
    raw.release("early"); // as if the server had lost it
    let answer = raw.acquire(Ask { ticket, ..in_line("early") });
    assert!(matches!(answer, Answer::Queued { position: 1, ticket: t, .. } if t == ticket), "{answer:?}");
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "early");
}

#[test]
fn a_ticket_that_is_first_is_granted_in_the_same_call() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let ticket = raw.queue(Ask { wait_ms: 60_000, ..raw.ask("early") });
    // The head has no inbox, so the permit is reserved for it. Nothing else is granted meanwhile.
    raw.queue(Ask { wait_ms: 60_000, ..raw.ask("late") });
    raw.release("early");
    raw.assert_released("holder");
    let ask = Ask { wait_ms: 60_000, ticket, ..raw.ask("early") };
    raw.grant(ask);
    assert!(matches!(raw.lookup("late"), LookupAnswer::Queued { position: 1, .. }));
}

#[test]
fn a_call_without_waiting_gives_up_its_place() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 60_000, ..raw.ask("waiter") });
    raw.assert_denied(raw.ask("waiter"));
    assert!(matches!(raw.lookup("waiter"), LookupAnswer::Gone { .. }));
}

#[test]
fn waiters_behind_a_leaving_head_are_granted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let mut inbox = Listener::new(&server, "leaves");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("a"));
    raw.queue(Ask { permits: Some(3), wait_ms: 60_000, inbox: &channel, ..raw.ask("big") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("small") });
    raw.assert_denied(Ask { permits: Some(3), ..raw.ask("big") });
    assert_eq!(inbox.next_grant()[0], "small");
}

#[test]
fn permits_are_reserved_for_a_head_without_inbox_until_its_deadline() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 300, ..raw.ask("silent") });
    raw.assert_released("holder");
    let Answer::Denied { next_expiry: Some(next_expiry), now, .. } = raw.acquire(raw.ask("eager")) else {
        panic!("overtook the head")
    };
    assert!((1..=300).contains(&next_expiry), "{next_expiry}");
    raw.wait_until(now + next_expiry);
    raw.grant(raw.ask("eager"));
}

#[test]
fn a_waiter_behind_a_head_without_inbox_is_granted_when_the_head_asks() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "behind");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(2), ..raw.ask("holder") });
    let silent = Ask { wait_ms: 60_000, ..raw.ask("silent") };
    raw.queue(silent);
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("behind") });
    raw.assert_released("holder");
    raw.grant(silent);
    assert_eq!(inbox.next_grant()[0], "behind");
}
