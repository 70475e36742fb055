//! Promise: a permit with a minimum hold is in use until that has passed, no matter when it is released.
//! After the release its former holder holds nothing.

use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually, timed_out};

use luagate::errors::{PermitError, TryAcquireError};
use luagate::scripts::semaphore::{Ask, LookupAnswer};
use luagate::{Lease, Released, Semaphore};
use std::thread;
use std::time::Duration;

/// Longer than a test runs on a slow machine.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn in_use(semaphore: &Semaphore) -> u32 {
    semaphore.inspect().unwrap().in_use
}

#[test]
fn an_early_released_permit_stays_in_use_without_a_holder() {
    let server = Server::any();
    let gate = server.gate();
    let job = gate.semaphore("job", 1).label("host-1").at_least(LONG);
    let permit = job.acquire().unwrap();
    let (id, fence) = (permit.id().to_owned(), permit.fence());
    assert_eq!(permit.release().unwrap(), Released::Released);
    let Err(TryAcquireError::Denied(denied)) = job.try_acquire() else {
        panic!("granted during the minimum hold")
    };
    assert_eq!((denied.in_use, denied.limit), (1, 1));
    let next = denied.next_expiry.expect("the minimum hold has an end");
    assert!(next > LONG - SOON && next <= LONG, "{next:?}");
    let state = job.inspect().unwrap();
    let [holder] = &state.holders[..] else { panic!("{state}") };
    assert_eq!(
        (holder.id.as_str(), holder.fence, holder.permits, holder.cooling_down),
        (id.as_str(), fence, 1, true)
    );
    assert_eq!(holder.label(), Some("host-1"));
    assert!(holder.remaining.is_some_and(|left| left > LONG - SOON && left <= LONG));
    assert!(state.to_string().contains("cooling down, released by host-1/"), "{state}");
    // Its former holder no longer holds anything.
    assert!(matches!(job.adopt(&id), Err(PermitError::Lost(_))));
    let mut raw = Raw { con: server.connection(), keys: server.keys("job"), limit: 1 };
    assert!(matches!(raw.lookup(&id), LookupAnswer::Gone { .. }));
    assert_eq!(raw.refresh(&id, 1_000), None);
    assert_eq!(raw.release(&id), luagate::scripts::semaphore::ReleaseAnswer::Gone);
    assert_eq!(in_use(&job), 1);
}

#[test]
fn the_first_waiter_is_granted_when_the_minimum_hold_ends() {
    let server = Server::any();
    let mut raw = Raw { con: server.connection(), keys: server.keys("job"), limit: 1 };
    let job = server.gate().semaphore("job", 1).at_least(SHORT);
    let first = job.acquire().unwrap();
    let granted_at = raw.server_ms();
    thread::scope(|scope| {
        let waits = scope.spawn(|| job.acquire_timeout(SOON).unwrap());
        eventually("it waits", || (job.inspect().unwrap().waiter_count == 1).then_some(()));
        first.release().unwrap();
        let second = waits.join().unwrap();
        let now = raw.server_ms();
        // The first grant was slightly before the clock was read.
        assert!(now + 100 >= granted_at + 300, "after {} ms", now - granted_at);
        second.release().unwrap();
    });
}

#[test]
fn a_permit_held_beyond_its_minimum_hold_is_free_when_released() {
    let server = Server::any();
    let job = server.gate().semaphore("job", 1).at_least(Duration::from_millis(20));
    let permit = job.acquire().unwrap();
    let mut raw = Raw { con: server.connection(), keys: server.keys("job"), limit: 1 };
    let over = raw.server_ms() + 20;
    raw.wait_until(over);
    permit.release().unwrap();
    assert_eq!(in_use(&job), 0);
}

#[test]
fn no_lease_ends_before_the_minimum_hold() {
    let server = Server::any();
    let job = server.gate().semaphore("job", 1).lease(Lease::fixed(Duration::from_millis(50))).at_least(LONG);
    let permit = job.acquire().unwrap();
    let left = |permit: &luagate::Permit| permit.remaining().unwrap();
    assert!(left(&permit) > LONG - SOON, "{permit}");
    permit.refresh().unwrap();
    assert!(left(&permit) > LONG - SOON, "{permit}");
    permit.refresh_for(Duration::from_millis(2)).unwrap();
    assert!(left(&permit) > LONG - SOON, "{permit}");
    permit.refresh_for(2 * LONG).unwrap();
    assert!(left(&permit) > LONG, "{permit}");
    // A permanent permit also cools down.
    let other = server.gate().semaphore("other", 1).lease(Lease::PERMANENT).at_least(LONG);
    let permit = other.acquire().unwrap();
    assert_eq!(permit.remaining(), None);
    permit.release().unwrap();
    assert_eq!(in_use(&other), 1);
    assert!(other.inspect().unwrap().holders[0].remaining.is_some_and(|left| left <= LONG));
}

#[test]
fn released_parts_stay_in_use_until_the_same_instant() {
    let server = Server::any();
    let job = server.gate().semaphore("job", 5).at_least(LONG);
    let mut permit = job.acquire_many(5).unwrap();
    permit.release_some(2).unwrap();
    permit.release_some(1).unwrap();
    assert_eq!(permit.permits(), 2);
    assert_eq!(in_use(&job), 5);
    permit.release().unwrap();
    let state = job.inspect().unwrap();
    assert_eq!(state.in_use, 5);
    let mut parts: Vec<u32> = state.holders.iter().map(|holder| holder.permits).collect();
    parts.sort_unstable();
    assert_eq!(parts, [1, 2, 2]);
    assert!(
        state
            .holders
            .iter()
            .all(|holder| holder.cooling_down && holder.remaining == state.holders[0].remaining)
    );
}

#[test]
fn a_waiters_minimum_hold_begins_with_its_grant() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("first"));
    let waits = Ask { wait_ms: 60_000, at_least_ms: 60_000, lease_ms: 100, ..raw.ask("waits") };
    raw.queue(waits);
    let later = raw.server_ms() + 20;
    raw.wait_until(later);
    raw.assert_released("first");
    let grant = raw.grant(waits);
    assert_eq!(grant.expires_at, Some(grant.now + 60_000));
    raw.assert_released("waits");
    let cooling = raw.inspect().holders;
    assert_eq!(cooling.len(), 1);
    assert!(cooling[0].cooling_down && cooling[0].expires_at == grant.expires_at, "{cooling:?}");
}

#[test]
fn a_timed_out_wait_holds_nothing_and_a_dropped_permit_cools_down() {
    let server = Server::any();
    let job = server.gate().semaphore("job", 1).at_least(LONG);
    drop(job.acquire().unwrap());
    timed_out(|| job.acquire_timeout(Duration::from_millis(10)));
    let state = job.inspect().unwrap();
    assert_eq!((state.in_use, state.holder_count, state.waiter_count), (1, 1, 0), "{state}");
}

#[test]
fn an_invalid_minimum_hold_is_refused() {
    let server = Server::any();
    let gate = server.gate();
    for least in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(200 * 366 * 86_400)] {
        let Err(TryAcquireError::Invalid(invalid)) = gate.semaphore("job", 1).at_least(least).try_acquire()
        else {
            panic!("{least:?}")
        };
        assert_eq!(invalid.what(), "at_least");
    }
    let guard = gate.mutex("job").with(|lock| lock.at_least(LONG)).lock().unwrap();
    guard.release().unwrap();
    assert!(gate.mutex("job").try_lock().is_err());
    let read = gate.rwlock("book").with(|lock| lock.at_least(LONG)).read().unwrap();
    read.release().unwrap();
    assert!(gate.rwlock("book").try_write().is_err());
    gate.rwlock("book").try_read().unwrap().release().unwrap();
}
