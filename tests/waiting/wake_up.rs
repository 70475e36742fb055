//! Promise: no lost wake-up. The script that frees a permit also grants it to the next waiter, and notifies only that
//! waiter. Hints ask the head to call again earlier.

use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::scripts::semaphore::{Answer, Ask, LookupAnswer};

#[test]
fn a_grant_message_has_the_format_of_the_contract() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let mut inbox = Listener::new(&server, "form");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(2), ..raw.ask("holder") });
    let ask = Ask { permits: Some(2), lease_ms: 5_000, wait_ms: 6_000, inbox: &channel, ..raw.ask("waiter") };
    raw.queue(ask);
    raw.assert_released("holder");
    let LookupAnswer::Held(grant) = raw.lookup("waiter") else { panic!() };
    let words = inbox.next_grant();
    let numbers: Vec<u64> = words[1..].iter().map(|word| word.parse().unwrap()).collect();
    assert_eq!(words[0], "waiter");
    assert_eq!(numbers[..3], [2, grant.fence, grant.expires_at.unwrap()]);
    assert_eq!(numbers[2] - numbers[3], 5_000, "the lease counts from the grant");
}

#[test]
fn only_the_granted_waiter_is_notified() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut first = Listener::new(&server, "first");
    let mut second = Listener::new(&server, "second");
    let channels = [first.channel.clone(), second.channel.clone()];
    raw.grant(Ask { lease_ms: 600_000, ..raw.ask("holder") });
    for (id, inbox) in ["w1", "w2"].into_iter().zip(&channels) {
        raw.queue(Ask { lease_ms: 600_000, wait_ms: 60_000, inbox, ..raw.ask(id) });
    }
    raw.assert_released("holder");
    assert_eq!(first.next()[0], "w1");
    assert!(first.is_silent(&server));
    assert!(second.is_silent(&server));
}

#[test]
fn raising_the_limit_grants_at_once_to_all_that_fit() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "grow");
    let channel = inbox.channel.clone();
    raw.grant(Ask { lease_ms: 600_000, ..raw.ask("holder") });
    for (id, permits) in [("w1", 1), ("w2", 1), ("w3", 1), ("w4", 1)] {
        let ask = raw.ask(id);
        raw.queue(Ask { permits: Some(permits), wait_ms: 600_000, lease_ms: 600_000, inbox: &channel, ..ask });
    }
    raw.resize(4, None);
    for id in ["w1", "w2", "w3"] {
        assert_eq!(inbox.next_grant()[0], id);
    }
    assert!(inbox.is_silent(&server));
    assert_eq!(raw.in_use(), 4);
}

#[test]
fn an_expired_lease_is_granted_to_the_waiter_by_the_next_script() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "ended");
    let channel = inbox.channel.clone();
    let end = raw.grant(Ask { lease_ms: 50, ..raw.ask("holder") }).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("waiter") });
    raw.wait_until(end);
    raw.assert_denied(raw.ask("passing-by"));
    assert_eq!(inbox.next_grant()[0], "waiter");
}

#[test]
fn a_waiter_without_a_subscriber_is_skipped_and_the_next_is_granted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "alive");
    let channel = inbox.channel.clone();
    raw.grant(raw.ask("holder"));
    let dead = format!("{}:inbox:dead", server.prefix);
    raw.queue(Ask { wait_ms: 60_000, inbox: &dead, ..raw.ask("dead") });
    raw.queue(Ask { wait_ms: 60_000, inbox: &channel, ..raw.ask("alive") });
    // A monitor that is subscribed to every channel does not count as a subscriber.
    let mut monitor = server.connection();
    monitor.as_pubsub().psubscribe("*").unwrap();
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "alive");
    assert!(matches!(raw.lookup("dead"), LookupAnswer::Gone { .. }));
}

#[test]
fn a_new_head_is_notified_of_the_next_lease_end() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "hint");
    let channel = inbox.channel.clone();
    let end = raw.grant(raw.ask("holder")).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("head") });
    // Second in line behind one running lease, it would ask again after a third of its wait.
    let ask = Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("second") };
    let answer = raw.acquire(ask);
    assert!(matches!(answer, Answer::Queued { position: 2, retry_after: 200_000, .. }), "{answer:?}");
    raw.release("head");
    assert_eq!(inbox.next()[..4], ["head", "0", "0", "-1"]);
    assert_eq!(inbox.next()[..4], ["second", "0", "0", &end.to_string()]);
}

#[test]
fn a_shortened_lease_sends_the_head_a_hint_once() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let mut inbox = Listener::new(&server, "shorter");
    let channel = inbox.channel.clone();
    raw.grant(Ask { lease_ms: 600_000, ..raw.ask("holder") });
    raw.queue(Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("head") });
    let end = raw.refresh("holder", 1_000).unwrap().expires_at.unwrap();
    assert_eq!(inbox.next()[..4], ["head", "0", "0", &end.to_string()]);
    raw.refresh("holder", 1_000);
    assert!(inbox.is_silent(&server), "notified twice");
}

#[test]
fn a_waiter_for_more_than_a_lowered_limit_is_notified_and_refused() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    let mut inbox = Listener::new(&server, "lowered");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(3), ..raw.ask("holder") });
    let big = Ask { permits: Some(4), wait_ms: 6_000, inbox: &channel, ..raw.ask("big") };
    // A waiter ahead of it that can stay.
    raw.queue(Ask { permits: Some(3), wait_ms: 6_000, ..raw.ask("three") });
    raw.queue(big);
    raw.queue(Ask { permits: Some(2), wait_ms: 6_000, inbox: &channel, ..raw.ask("small") });
    raw.resize(3, None);
    assert_eq!(inbox.next()[..4], ["big", "0", "0", "0"]);
    assert!(matches!(raw.lookup("big"), LookupAnswer::Gone { .. }));
    assert!(matches!(raw.acquire(big), Answer::AboveLimit { limit: 3, .. }));
    raw.release("three");
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "small");
}

#[test]
fn retry_after_is_the_end_of_the_kth_lease_and_at_most_a_third_of_the_wait() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let a = raw.grant(Ask { lease_ms: 20_000, ..raw.ask("a") }).expires_at.unwrap();
    let b = raw.grant(Ask { lease_ms: 50_000, ..raw.ask("b") }).expires_at.unwrap();
    let mut retry = |id: &str, wait_ms: u64| match raw.acquire(Ask { wait_ms, inbox: "x", ..raw.ask(id) }) {
        Answer::Queued { retry_after, now, .. } => now + retry_after,
        other => panic!("{other:?}"),
    };
    assert_eq!(retry("w1", 600_000), a);
    assert_eq!(retry("w2", 600_000), b);
    let now = Raw::new(&server, 2).server_ms();
    let third = retry("w3", 600_000);
    assert!((now + 200_000..now + 201_000).contains(&third));
    let soon = retry("w1", 3_000);
    assert!((now + 1_000..now + 2_000).contains(&soon));
    let Answer::Denied { next_expiry: Some(after), now, .. } = raw.acquire(raw.ask("x")) else { panic!() };
    assert_eq!(now + after, a);
}

#[test]
fn a_denial_behind_a_permanent_lease_has_no_next_expiry() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 0, ..raw.ask("permanent") });
    let answer = raw.acquire(raw.ask("other"));
    assert!(matches!(answer, Answer::Denied { next_expiry: None, .. }), "{answer:?}");
}

#[test]
fn a_new_head_is_notified_after_every_way_the_old_head_can_leave() {
    type Leave = fn(&mut Raw);
    let leaves: [Leave; 2] = [|raw| drop(raw.keep("head", 0)), |raw| raw.assert_denied(raw.ask("head"))];
    let server = Server::any();
    for (n, leave) in leaves.into_iter().enumerate() {
        let mut raw = Raw::named(&server, &format!("left-{n}"), 1);
        let mut inbox = Listener::new(&server, &format!("left-{n}"));
        let channel = inbox.channel.clone();
        let end = raw.grant(raw.ask("holder")).expires_at.unwrap();
        raw.queue(Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("head") });
        raw.queue(Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("second") });
        leave(&mut raw);
        // The waiter ahead may receive a message that its place was revoked.
        let mut received = inbox.next();
        if received[0] == "head" {
            assert_eq!(received[..4], ["head", "0", "0", "-1"]);
            received = inbox.next();
        }
        assert_eq!(received[..4], ["second", "0", "0", &end.to_string()]);
    }
}

#[test]
fn a_waiter_past_its_deadline_delays_no_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(raw.ask("holder")).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 30, inbox: "x", ..raw.ask("gone") });
    let over = raw.inspect().waiters[0].patience_until;
    raw.wait_until(over);
    let answer = raw.acquire(Ask { wait_ms: 600_000, inbox: "x", ..raw.ask("next") });
    let Answer::Queued { position, retry_after, now, .. } = answer else { panic!() };
    assert_eq!((position, now + retry_after), (1, end));
}

#[test]
fn a_waiter_behind_dead_ones_is_asked_to_return_at_the_next_lease_end() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(raw.ask("holder")).expires_at.unwrap();
    for id in ["dead-1", "dead-2"] {
        raw.queue(Ask { wait_ms: 600_000, inbox: "nobody:listens", ..raw.ask(id) });
    }
    let ask = Ask { wait_ms: 600_000, inbox: "x", ..raw.ask("alive") };
    raw.queue(ask);
    let Answer::Queued { position, retry_after, now, .. } = raw.acquire(ask) else { panic!() };
    assert_eq!((position, now + retry_after), (3, end), "no waiter would ask when the lease ends");
}

#[test]
fn a_far_waiter_for_more_than_a_lowered_limit_is_notified_at_the_head() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    let mut inbox = Listener::new(&server, "far-back");
    let channel = inbox.channel.clone();
    raw.grant(Ask { permits: Some(5), ..raw.ask("holder") });
    for n in 0..100 {
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask(&format!("w{n}")) });
    }
    // Further back than one script call checks.
    let ask = Ask { wait_ms: 600_000, inbox: &channel, ..raw.ask("") };
    raw.queue(Ask { id: "big", permits: Some(4), ..ask });
    raw.queue(Ask { id: "small", ..ask });
    raw.resize(3, None);
    for n in 0..100 {
        raw.release(&format!("w{n}"));
    }
    assert_eq!(inbox.next()[..4], ["big", "0", "0", "0"]);
    raw.assert_released("holder");
    assert_eq!(inbox.next_grant()[0], "small");
}

#[test]
fn a_waiter_behind_live_ones_is_not_asked_to_return_at_the_next_lease_end() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let inbox = Listener::new(&server, "living");
    raw.grant(raw.ask("holder"));
    for id in ["dead", "living"] {
        let inbox = if id == "living" { &*inbox.channel } else { "nobody:listens" };
        raw.queue(Ask { wait_ms: 600_000, inbox, ..raw.ask(id) });
    }
    let ask = Ask { wait_ms: 600_000, inbox: "x", ..raw.ask("third") };
    raw.queue(ask);
    let answer = raw.acquire(ask);
    assert!(matches!(answer, Answer::Queued { position: 3, retry_after: 200_000, .. }), "{answer:?}");
}
