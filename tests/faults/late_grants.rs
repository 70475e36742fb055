//! Promise: a permit that has already ended is never returned.

use crate::own;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use luagate::errors::{AcquireError, FailureKind, PermitError, TryAcquireError};
use luagate::{Gate, Lease, Permit, Semaphore};
use std::fmt::Display;
use std::iter::repeat_n;
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

/// Its leases are shorter than delayed replies take. A first call has made the connections of the gate.
fn brief(gate: &Gate, name: &str) -> Semaphore {
    let semaphore = gate.semaphore(name, 1);
    semaphore.acquire().unwrap().release().unwrap();
    semaphore.lease(Lease::fixed(LEASE))
}

fn is_free(semaphore: &Semaphore) {
    eventually("it is free", || (semaphore.available_permits().unwrap() == 1).then_some(()));
}

#[track_caller]
fn assert_late(error: impl Display) {
    let text = error.to_string();
    assert!(text.contains("a longer lease") || text.contains("before it was confirmed"), "{text}");
}

#[test]
fn a_try_fails_if_its_reply_takes_longer_than_the_lease() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let (one, two) = (brief(&gate, "{late}:one"), brief(&gate, "{late}:two").lease(Lease::renewed(PATIENCE)));
    proxy.delay_replies([DELAY]);
    let error = one.try_acquire().unwrap_err();
    assert!(
        matches!(&error, TryAcquireError::Failed(failure) if failure.kind() == FailureKind::TimedOut),
        "{error:?}"
    );
    assert_late(error);
    is_free(&one);
    proxy.delay_replies([DELAY]);
    assert_late(Runtime::new().unwrap().block_on(one.try_acquire_async()).unwrap_err());
    is_free(&one);
    let both = gate.several([(&one, 1), (&two, 1)]);
    both.try_acquire().unwrap().release().unwrap();
    proxy.delay_replies([DELAY]);
    assert_late(both.try_acquire().unwrap_err());
    is_free(&one);
    is_free(&two);
}

#[test]
fn a_wait_whose_grant_comes_too_late_asks_again() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = brief(&gate, "late");
    let is_valid = |permit: Permit| assert!(!permit.is_lost(), "{permit}");
    proxy.delay_replies([DELAY]);
    is_valid(semaphore.acquire_timeout(PATIENCE).unwrap());
    is_free(&semaphore);
    proxy.delay_replies([DELAY]);
    is_valid(Runtime::new().unwrap().block_on(semaphore.acquire_timeout_async(PATIENCE)).unwrap());
    is_free(&semaphore);
    // With an id of the application too, whose second call finds the permit of the first.
    let own = semaphore.clone().id("own").lease(Lease::fixed(DELAY + LEASE));
    proxy.delay_replies([DELAY * 2]);
    is_valid(own.acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn a_lease_that_is_shorter_than_every_reply_takes_ends_the_wait_with_an_error() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = brief(&gate, "late").lease(Lease::fixed(Duration::from_millis(20)));
    proxy.delay_replies(repeat_n(Duration::from_millis(40), 1_000));
    assert_late(semaphore.acquire().unwrap_err());
    assert_late(Runtime::new().unwrap().block_on(semaphore.acquire_async()).unwrap_err());
    assert!(semaphore.acquire_timeout(Duration::from_millis(60)).is_err());
    let other = gate.semaphore("other", 1);
    let both = gate.several([(&semaphore, 1), (&other, 1)]);
    assert!(both.acquire().is_err());
    proxy.delay_no_more();
    is_free(&other);
}

#[test]
fn a_permit_that_ends_before_the_reply_arrives_is_not_adopted() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = brief(&gate, "late");
    let lasting = semaphore.clone().lease(Lease::fixed(PATIENCE));
    let id = lasting.acquire().unwrap().into_id();
    let id = lasting.adopt(&id).unwrap().into_id();
    proxy.delay_replies([Duration::ZERO, DELAY]); // the second call starts the lease
    match semaphore.adopt(&id) {
        Err(PermitError::Failed(failure)) => assert_late(failure),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_that_no_caller_can_hold_is_refused() {
    let (_server, _proxy, gate) = own!(Proxy::with_gate());
    let shortest =
        |ms| gate.mutex("late").with(|settings| settings.lease(Lease::fixed(Duration::from_millis(ms))));
    let error = shortest(1).lock().unwrap_err();
    assert!(
        matches!(error, AcquireError::Invalid(_)) && error.to_string().contains("2 ms to 100 years"),
        "{error}"
    );
    let error = shortest(1).try_lock().unwrap_err();
    assert!(matches!(error, TryAcquireError::Invalid(_)), "{error}");
    let permit = gate.mutex("other").lock().unwrap();
    assert!(matches!(permit.refresh_for(Duration::from_millis(1)), Err(PermitError::Invalid(_))));
}
