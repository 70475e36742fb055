//! Promise: losses, renewals, replaced connections and a server that can evict are events, each at its level.

use crate::own;
use crate::recorder::{self, Reported, events, record};
use crate::support::{Server, eventually, kill_connections};
use crate::{MOMENT, gate, is_in_line};
use luagate::Lease;

use std::time::Duration;
use tracing::Level;

#[test]
fn a_lost_permit_is_a_warning() {
    let server = Server::any();
    let gate = gate(&server);
    let short = gate.mutex("shortly").with(|lock| lock.lease(Lease::fixed(MOMENT))).lock().unwrap();
    let fence = short.fence().to_string();
    eventually("the lease ends", || short.is_lost().then_some(()));
    assert!(short.refresh().is_err());
    drop(short);
    let reported = eventually("the event", || Some(events(&fence)).filter(|events| !events.is_empty()));
    let [reported] = reported.as_slice() else {
        panic!("{reported:?}");
    };
    assert_eq!(reported.level, Level::WARN);
    assert_eq!((reported.field("kind"), reported.field("name")), ("mutex", "shortly"));
    assert_eq!(reported.field("message"), "permit lost");
}

fn at<'a>(reported: &'a [Reported], message: &str) -> Vec<&'a Reported> {
    let has_it = |reported: &&Reported| reported.field("message").contains(message);
    reported.iter().filter(has_it).collect()
}

#[test]
fn renewals_and_failed_renewals_are_events() {
    record();
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("looked-after", 9).lease(Lease::renewed(Duration::from_secs(3)));
    let permit = semaphore.try_acquire().unwrap();
    let fence = permit.fence().to_string();
    let renewed = eventually("it is renewed", || {
        let reported = events(&fence);
        at(&reported, "renewed").first().map(|reported| (*reported).clone())
    });
    assert_eq!(renewed.level, Level::DEBUG);
    assert_eq!(renewed.field("name"), "looked-after");

    server.kill();
    eventually("the permit is lost", || permit.is_lost().then_some(()));
    let reported = eventually("the failed renewal", || {
        let reported = events("looked-after");
        (!at(&reported, "retried").is_empty()).then_some(reported)
    });
    let failed = at(&reported, "retried");
    assert_eq!(failed[0].level, Level::INFO);
    assert_eq!(failed[0].field("permits"), "1");
    assert!(!failed[0].field("error").is_empty());
    drop(permit);
}

#[test]
fn the_remaining_time_can_be_read_while_a_subscriber_handles_the_renewal_event() {
    let server = Server::any();
    let lease = Duration::from_secs(2);
    let semaphore = gate(&server).semaphore(recorder::SLOW, 1).lease(Lease::renewed(lease));
    let permit = semaphore.acquire().unwrap();
    let waits = recorder::SLOW_EVENTS.lock().unwrap();
    let (sender, reported) = std::sync::mpsc::channel();
    let looking = std::thread::spawn(move || {
        let left_below = |most| permit.remaining().filter(|left| *left < most);
        let aged = eventually("it ages", || left_below(lease * 3 / 4));
        let renewed = || permit.remaining().filter(|left| *left > aged);
        let _ = sender.send(eventually("it is renewed", renewed));
    });
    let renewed = reported.recv_timeout(Duration::from_secs(10));
    drop(waits);
    renewed.expect("`remaining` does not block");
    looking.join().unwrap();
}

#[test]
fn a_reconnect_is_an_event_with_its_server() {
    record();
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("again", 1);
    let permit = semaphore.acquire().unwrap();
    let waiting = semaphore.clone();
    let waiter = std::thread::spawn(move || drop(waiting.acquire().unwrap()));
    is_in_line(&semaphore);
    let mut con = server.connection();
    assert_eq!(kill_connections(&mut con, "pubsub"), 1);
    eventually("the subscription was re-established", || (gate.counters().reconnects == 1).then_some(()));
    kill_connections(&mut con, "normal");
    permit.release().unwrap();
    waiter.join().unwrap();
    let address = server.url.rsplit("//").next().unwrap();
    let reported = eventually("the events", || {
        let reported = events(address);
        (reported.len() as u64 >= gate.counters().reconnects).then_some(reported)
    });
    // An async gate receives messages on the connection for its calls.
    let subscribed = Some("a subscription was re-established");
    for message in subscribed.into_iter().chain(["a connection was replaced"]) {
        let reported = at(&reported, message);
        assert_eq!(reported.first().map(|reported| reported.level), Some(Level::INFO), "{message}");
    }
    assert_eq!(reported.len() as u64, gate.counters().reconnects, "{reported:?}");
}

#[test]
fn a_callback_that_panics_is_an_error() {
    let server = Server::any();
    let lost = gate(&server)
        .semaphore("panics", 1)
        .lease(Lease::fixed(MOMENT))
        .on_lost(|_| panic!("a callback panics"));
    let _permit = lost.acquire().unwrap();
    let reported = eventually("the event", || events("code of the program panicked").first().cloned());
    assert_eq!((reported.level, reported.field("thread")), (Level::ERROR, "luagate-on-lost"));
}

#[test]
fn while_a_subscriber_blocks_leases_are_renewed_and_calls_are_answered() {
    let server = Server::any();
    let gate = gate(&server);
    let waits = recorder::SLOW_EVENTS.lock().unwrap();
    let semaphore = gate.semaphore(recorder::SLOW, 1).lease(Lease::renewed(Duration::from_millis(1_500)));
    let permit = semaphore.acquire().unwrap();
    eventually("it is renewed three times", || (gate.counters().renewed >= 3).then_some(()));
    drop(waits);
    assert!(!permit.is_lost());
}
