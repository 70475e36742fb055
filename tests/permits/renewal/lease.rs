//! Promise: a lease ends for the client no later than on the server. `tests/memory` shows when it is renewed.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};

use luagate::scripts::semaphore::{LookupAnswer, lookup};
use luagate::{Lease, Permit};
use std::time::Duration;

#[test]
fn a_refresh_counts_from_now() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::fixed(Duration::from_secs(20)));
    let permit = semaphore.acquire().unwrap();
    let mut raw = Raw::new(&server, 1);
    raw.refresh(permit.id(), 1_000);
    permit.refresh().unwrap();
    let LookupAnswer::Held(grant) = raw.lookup(permit.id()) else { panic!() };
    assert!(grant.expires_at.unwrap() - grant.now > 19_000);
    assert!(
        permit.remaining().unwrap()
            <= Duration::from_millis(grant.expires_at.unwrap() - grant.now) + Duration::from_secs(1)
    );
}

#[test]
fn a_lease_counts_from_before_its_call_is_sent() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(SOON));
    // This number of replies arrives at once, and the next one late.
    let late_after = |replies: usize| {
        let late = Duration::from_millis(100);
        let at_once = std::iter::repeat_n(Duration::ZERO, replies);
        proxy.delay_replies(at_once.chain([late]));
    };
    late_after(1); // the script is not loaded yet
    let permit = semaphore.try_acquire().unwrap();
    assert_early("with a new script", &server, &permit);
    permit.refresh().unwrap();
    late_after(0);
    permit.refresh().unwrap();
    assert_early("refreshed", &server, &permit);
    late_after(1);
    let adopted = semaphore.adopt(&permit.into_id()).unwrap();
    assert_early("adopted", &server, &adopted);
    adopted.release().unwrap();
    late_after(0);
    let permit = semaphore.try_acquire().unwrap();
    assert_early("at once", &server, &permit);
    permit.release().unwrap();
    late_after(0);
    let permit = semaphore.acquire_timeout(SOON).unwrap();
    assert_early("with a timeout", &server, &permit);
    permit.release().unwrap();
    raw.grant(raw.ask("holder"));
    let waiting = std::thread::spawn(move || semaphore.acquire().unwrap());
    eventually("it waits", || (raw.inspect().waiter_count == 1).then_some(()));
    late_after(0);
    raw.assert_released("holder");
    let permit = waiting.join().unwrap();
    assert_early("by message", &server, &permit);
    let both = gate.mutexes(["{g}:a", "{g}:b"]).with(|lock| lock.lease(Lease::fixed(SOON)));
    drop(both.try_acquire().unwrap());
    late_after(0);
    let guard = both.try_acquire().unwrap();
    let several: Vec<&Permit> = guard.iter().map(|(_, permit)| permit).collect();
    for permit in &several {
        assert_early("several at once", &server, permit);
    }
    late_after(0);
    assert!(Permit::refresh_each(several.iter().copied()).iter().all(Result::is_ok));
    for permit in &several {
        assert_early("several refreshed", &server, permit);
    }
}

/// Asserts that the lease ends for the client no later than on the server.
#[track_caller]
fn assert_early(how: &str, server: &Server, permit: &Permit) {
    let mut con = server.connection();
    let LookupAnswer::Held(held) = lookup(&mut con, permit.keys(), permit.id()).unwrap() else {
        panic!("{how}: the server does not list {permit}");
    };
    // The server is asked first, so the client's remaining time must be less, however slow the test is.
    let there = Duration::from_millis(held.expires_at.unwrap() - held.now);
    let here = permit.remaining().unwrap();
    assert!(here <= there, "{how}: {here:?} here, {there:?} there");
}

#[test]
fn a_permanent_lease_never_ends() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let permit = server.gate().semaphore("raw", 1).lease(Lease::PERMANENT).acquire().unwrap();
    assert_eq!(permit.remaining(), None);
    assert!(!permit.is_lost());
    let LookupAnswer::Held(grant) = raw.lookup(permit.id()) else { panic!() };
    assert_eq!(grant.expires_at, None);
    permit.refresh().unwrap();
    permit.release().unwrap();
    assert_eq!(raw.in_use(), 0);
}
