//! Promise: a caller with a head start comes before the waiters that came within it, and before no other.

use super::{LONG, await_waiters};
use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::{AcquireError, TryAcquireError};
use luagate::{Gate, Permit, Semaphore};
use std::sync::Mutex;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// Lets these callers wait in this order for a semaphore that is full. Returns the order of the grants.
fn order(
    raw: &mut Raw,
    holder: Permit,
    callers: &[(&'static str, &(dyn Fn() -> Permit + Sync))],
) -> Vec<&'static str> {
    let granted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (place, (name, acquire)) in callers.iter().enumerate() {
            scope.spawn(|| {
                let permit = acquire();
                granted.lock().unwrap().push(*name);
                permit.release().unwrap();
            });
            await_waiters(raw, place as u64 + 1);
        }
        holder.release().unwrap();
    });
    granted.into_inner().unwrap()
}

#[test]
fn a_caller_comes_before_those_that_came_within_its_head_start_and_behind_the_others() {
    let server = Server::any();
    let (mut raw, gate) = (Raw::new(&server, 1), server.gate());
    let semaphore = gate.semaphore("raw", 1);
    let holder = semaphore.acquire().unwrap();
    let urgent = semaphore.clone().head_start(DAY);
    let in_between = semaphore.clone().head_start(Duration::from_millis(1));
    let early = || semaphore.acquire_timeout(LONG).unwrap();
    let late = || {
        std::thread::sleep(Duration::from_millis(2)); // so that its head start does not reach back to `early`
        in_between.acquire_timeout(LONG).unwrap()
    };
    let first = || urgent.acquire_timeout(LONG).unwrap();
    let callers: [(_, &(dyn Fn() -> Permit + Sync)); 4] =
        [("early", &early), ("late", &late), ("urgent", &first), ("second", &first)];
    let granted = order(&mut raw, holder, &callers);
    assert_eq!(granted, ["urgent", "second", "early", "late"]);
}

#[test]
fn a_caller_that_becomes_the_first_and_fits_is_granted_at_once() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let semaphore = server.gate().semaphore("raw", 3);
    let held = semaphore.acquire_many(2).unwrap();
    let urgent = semaphore.clone().head_start(DAY);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| semaphore.acquire_many(2).unwrap());
        await_waiters(&mut raw, 1);
        assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Denied(_))));
        urgent.try_acquire().unwrap().release().unwrap();
        urgent.acquire_timeout(LONG).unwrap().release().unwrap();
        assert!(matches!(urgent.try_acquire_many(2), Err(TryAcquireError::Denied(_))));
        assert_eq!(raw.inspect().waiter_count, 1, "a denied caller has left the line");
        held.release().unwrap();
        large.join().unwrap().release().unwrap();
    });
}

#[test]
fn locks_and_several_semaphores_have_a_head_start_too() {
    let server = Server::any();
    let gate = server.gate();
    let set = |semaphore: Semaphore| semaphore.head_start(DAY);
    let raw = |name| Raw {
        keys: luagate::scripts::Keys::mutex(&server.prefix, name).unwrap(),
        ..Raw::new(&server, 1)
    };
    let mutex = gate.mutex("m");
    let (plain, urgent) = (|| mutex.lock().unwrap(), || mutex.clone().with(set).lock().unwrap());
    let granted = order(&mut raw("m"), mutex.lock().unwrap(), &[("plain", &plain), ("urgent", &urgent)]);
    assert_eq!(granted, ["urgent", "plain"]);
    let several = gate.mutexes(["m"]).with(set);
    let urgent = || several.acquire_timeout(LONG).unwrap().into_permits().remove(0);
    let granted = order(&mut raw("m"), mutex.lock().unwrap(), &[("plain", &plain), ("urgent", &urgent)]);
    assert_eq!(granted, ["urgent", "plain"]);
}

#[test]
fn a_line_is_full_only_for_those_behind_it() {
    let server = Server::any();
    let (mut raw, gate) = (Raw::new(&server, 1), server.gate());
    let semaphore = gate.semaphore("raw", 1).max_waiting(1);
    let holder = semaphore.acquire().unwrap();
    let urgent = semaphore.clone().head_start(DAY);
    std::thread::scope(|scope| {
        let waits = |semaphore: Semaphore| {
            scope.spawn(move || semaphore.acquire_timeout(LONG).unwrap().release().unwrap())
        };
        waits(semaphore.clone());
        await_waiters(&mut raw, 1);
        assert!(matches!(semaphore.acquire(), Err(AcquireError::LineFull(_))));
        waits(urgent.clone());
        await_waiters(&mut raw, 2);
        assert!(
            matches!(urgent.acquire(), Err(AcquireError::LineFull(_))),
            "one with its head start is before it"
        );
        holder.release().unwrap();
    });
}

#[test]
fn a_head_start_of_more_than_a_day_is_refused() {
    let server = Server::any();
    let gate: Gate = server.gate();
    let semaphore = gate.semaphore("raw", 1).head_start(DAY + Duration::from_millis(1));
    let Err(AcquireError::Invalid(invalid)) = semaphore.acquire() else { panic!() };
    assert!(
        invalid.to_string().contains("head_start") && invalid.to_string().contains("up to a day"),
        "{invalid}"
    );
    gate.semaphore("raw", 1).head_start(DAY).acquire().unwrap().release().unwrap();
}
