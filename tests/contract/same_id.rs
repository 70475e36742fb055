//! Promise: a call can be repeated with the same id after its reply was lost, and has the same outcome.

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::{AcquireError, TryAcquireError};
use luagate::scripts::semaphore::{Answer, Ask, LookupAnswer, ReleaseAnswer};

#[test]
fn repeating_an_acquire_grants_nothing_twice() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    let first = raw.grant(Ask { permits: Some(2), ..raw.ask("a") });
    let Answer::Held(again, usage) = raw.acquire(Ask { permits: Some(2), ..raw.ask("a") }) else { panic!() };
    assert_eq!((again.fence, again.permits, again.expires_at), (first.fence, 2, first.expires_at));
    assert_eq!(usage.in_use, 2);
}

#[test]
fn asking_again_keeps_the_place_in_line() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let ticket = raw.queue(Ask { wait_ms: 60_000, ..raw.ask("a") });
    raw.queue(Ask { wait_ms: 60_000, ..raw.ask("b") });
    assert_eq!(raw.queue(Ask { wait_ms: 60_000, ..raw.ask("a") }), ticket);
    assert!(matches!(raw.lookup("a"), LookupAnswer::Queued { position: 1, .. }));
    assert_eq!(raw.inspect().waiter_count, 2);
}

#[test]
fn repeating_a_release_changes_nothing() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(raw.ask("a"));
    raw.grant(raw.ask("b"));
    raw.assert_released("a");
    let before = raw.dump();
    assert_eq!(raw.release("a"), ReleaseAnswer::Gone);
    assert_eq!(raw.dump(), before);
    raw.grant(raw.ask("c"));
    raw.assert_denied(raw.ask("d"));
}

#[test]
fn repeating_a_partial_release_releases_nothing_more() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    raw.grant(Ask { permits: Some(5), ..raw.ask("a") });
    for _ in 0..3 {
        let answer = raw.keep("a", 2).unwrap();
        assert!(matches!(answer, ReleaseAnswer::Released { left: 2, usage } if usage.in_use == 2));
    }
    assert_eq!(raw.in_use(), 2);
}

#[test]
fn an_own_id_holds_at_most_one_permit() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("identity", 5).id("account-17");
    let permit = semaphore.try_acquire().unwrap();
    let Err(TryAcquireError::AlreadyHeld(held)) = semaphore.try_acquire() else { panic!() };
    assert_eq!((held.id.as_str(), held.fence), ("account-17", permit.fence()));
    assert!(matches!(semaphore.acquire(), Err(AcquireError::AlreadyHeld(_))));
    assert_eq!(semaphore.available_permits().unwrap(), 4);
    permit.release().unwrap();
    drop(semaphore.try_acquire().unwrap());
}

#[test]
fn a_holder_receives_its_grant_again_also_under_a_lowered_limit() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    raw.grant(Ask { permits: Some(4), ..raw.ask("a") });
    raw.resize(2, None);
    let answer = raw.acquire(Ask { permits: Some(4), ..raw.ask("a") });
    assert!(matches!(answer, Answer::Held(grant, _) if grant.permits == 4), "{answer:?}");
}
