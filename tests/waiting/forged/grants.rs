//! Promise: a client accepts a grant message only if it is signed for exactly this wait.

use super::{LONG, channel_of, forgeries, let_it_read, publish, sha1, wait_for_permit, waiter_of};
use crate::fuzz;
use crate::support::Server;
use crate::support::raw::{Listener, Raw};

use luagate::Permit;
use luagate::scripts::semaphore::{Ask, LookupAnswer};
use proptest::prelude::*;
use redis::Commands;

/// The secret of a wait. Only its client and the keys of the semaphore contain it.
fn secret_of(raw: &mut Raw, id: &str, channel: &str) -> String {
    let [meta, ..] = raw.key_names();
    let record: Vec<u8> = raw.con.hget(meta, id).unwrap();
    let record = String::from_utf8_lossy(&record);
    let (_, secret) = record.split_once(&format!("{channel}#")).unwrap();
    secret.to_owned()
}

/// Asserts that the server granted the permit that the client returned.
fn assert_known(raw: &mut Raw, id: &str, permit: &Permit) {
    let LookupAnswer::Held(grant) = raw.lookup(id) else {
        panic!("the server did not grant {permit:?}");
    };
    assert_eq!((permit.fence(), permit.permits()), (grant.fence, 1));
}

#[test]
fn a_forged_grant_is_not_accepted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let ticket = raw.inspect().waiters[0].ticket;
    let channel = channel_of(&server);
    let mut stranger = server.connection();
    for payload in forgeries(&id, ticket, raw.server_ms()) {
        publish(&mut stranger, &channel, &payload);
    }
    for n in 0..5_000 {
        let payload = format!("unknown-{n} 1 {} -1 {}", ticket + 1, ticket / 1_000);
        publish(&mut stranger, &channel, payload.as_bytes());
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it accepted {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

/// Words like those of a message; some are not valid.
fn payload(id: String) -> BoxedStrategy<Vec<u8>> {
    let number = fuzz::integer().prop_map(|number| number.to_string());
    let hex = "[0-9a-f]{40}".boxed();
    let likely = proptest::sample::select(vec!["1", "-1", "4503599627370496"]).prop_map(str::to_owned);
    let word = prop_oneof![6 => likely, 4 => number, 2 => hex, 1 => Just(id.clone()), 1 => fuzz::text()];
    let words = proptest::collection::vec(word, 3..7);
    prop_oneof![
        5 => words.prop_map(move |words| format!("{id} {}", words.join(" ")).into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
    .boxed()
}

#[test]
fn random_messages_are_not_accepted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let stranger = std::cell::RefCell::new(server.connection());
    proptest!(fuzz::cases(2_000), |(payload in payload(id.clone()))| {
        publish(&mut stranger.borrow_mut(), &channel, &payload);
    });
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it accepted {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

#[test]
fn a_genuine_message_for_another_wait_is_not_accepted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    // The attacker starts a wait of the same id on another semaphore, with this channel and its own secret. A
    // script signs that grant.
    let mut elsewhere = Raw::named(&server, "elsewhere", 1);
    let inbox = format!("{channel}#mine");
    elsewhere.grant(elsewhere.ask("holder"));
    elsewhere.queue(Ask { wait_ms: LONG, inbox: &inbox, ..elsewhere.ask(&id) });
    let mut listener = Listener::on(&server, &channel);
    elsewhere.assert_released("holder");
    let words = listener.next();
    assert_eq!((&words[0], words.len()), (&id, 6));
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it accepted {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}

#[test]
fn every_digit_of_a_signature_counts() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let secret = secret_of(&mut raw, &id, &channel);
    let (ticket, now) = (raw.inspect().waiters[0].ticket, raw.server_ms());
    let signed = |fence: u64| {
        let grant = format!("{id} 1 {fence} {} {now}", now + LONG);
        let signature = sha1(&format!("{secret}{grant}"));
        format!("{grant} {signature}").into_bytes()
    };
    let mut stranger = server.connection();
    let wrong = signed(ticket + 1);
    for place in wrong.len() - 40..wrong.len() {
        let mut wrong = wrong.clone();
        wrong[place] = if wrong[place] == b'0' { b'1' } else { b'0' };
        publish(&mut stranger, &channel, &wrong);
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it accepted {:?}", waiting.join());
    // With the correct signature the message is the same as one of a script.
    publish(&mut stranger, &channel, &signed(ticket + 2));
    assert_eq!(waiting.join().unwrap().fence(), ticket + 2);
}

#[test]
fn a_late_message_for_an_abandoned_place_is_not_accepted() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { permits: Some(2), lease_ms: LONG, ..raw.ask("holder") });
    let gate = server.gate();
    let waiting = wait_for_permit(&gate, 1);
    let id = waiter_of(&mut raw);
    let channel = channel_of(&server);
    let secret = secret_of(&mut raw, &id, &channel);
    let (ticket, now) = (raw.inspect().waiters[0].ticket, raw.server_ms());
    let mut late = server.connection();
    // Any grant for an earlier place has a fence below the ticket of this place.
    for fence in [ticket, ticket - 1, 1] {
        let grant = format!("{id} 1 {fence} {} {now}", now + LONG);
        let signature = sha1(&format!("{secret}{grant}"));
        publish(&mut late, &channel, format!("{grant} {signature}").as_bytes());
    }
    let_it_read(&server, &gate);
    assert!(!waiting.is_finished(), "it accepted {:?}", waiting.join());
    raw.assert_released("holder");
    assert_known(&mut raw, &id, &waiting.join().unwrap());
}
