//! Promise: leases end by the test's clock. Between the test's changes it advances with the machine's clock.

use crate::{HOUR, MINUTE, SOON, memory};

use luagate::errors::{AcquireError, PermitError, TryAcquireError};
use luagate::{Lease, Released};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[test]
fn a_lease_ends_by_the_tests_clock() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(HOUR));
    let first = desk.try_acquire().unwrap();
    memory.advance(HOUR - MINUTE);
    let left = first.remaining().unwrap();
    assert!(left > MINUTE - SOON && left < MINUTE, "{left:?}");
    match desk.try_acquire() {
        Err(TryAcquireError::Denied(denied)) => {
            let left = denied.next_expiry.unwrap();
            assert!(left > MINUTE - SOON && left <= MINUTE, "{left:?}");
        }
        other => panic!("granted twice: {other:?}"),
    }
    memory.advance(MINUTE);
    assert!(first.is_lost());
    assert!(matches!(first.refresh(), Err(PermitError::Lost(_))));
    let second = desk.try_acquire().unwrap();
    assert!(second.fence() > first.fence());
    assert_eq!(first.release().unwrap(), Released::Gone);
    assert!(!second.is_lost());
}

#[test]
fn the_tests_clock_advances_with_the_machines() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let _held = desk.try_acquire().unwrap();
    let (before, started) = (memory.now(), Instant::now());
    let result = desk.acquire_timeout(Duration::from_millis(50));
    assert!(matches!(result, Err(AcquireError::TimedOut(_))));
    assert!(started.elapsed() >= Duration::from_millis(50));
    let passed = memory.now().duration_since(before).unwrap();
    assert!(passed >= Duration::from_millis(50), "{passed:?}");
}

#[test]
fn a_suspended_machine_loses_its_permits_and_is_notified() {
    let (gate, memory) = memory();
    let (sender, reported) = mpsc::channel();
    let mutex = gate.mutex("nightly");
    let report = move |lost: &luagate::errors::Lost| {
        std::thread::sleep(Duration::from_millis(50)); // slow; `advance` waits for it
        sender.send(lost.id.clone()).unwrap();
    };
    let sleepy = mutex.clone().with(|lock| lock.on_lost(report));
    let held = sleepy.lock().unwrap();
    memory.suspend(MINUTE);
    assert!(held.is_lost());
    assert_eq!(reported.try_recv().as_deref(), Ok(held.id()));
    let next = mutex.try_lock().unwrap();
    assert!(next.fence() > held.fence());
    assert_eq!(held.release().unwrap(), Released::Gone);
    assert!(!next.is_lost());
}

#[test]
fn the_end_of_a_lease_that_is_not_renewed_is_notified() {
    let (gate, memory) = memory();
    let reported = Arc::new(AtomicU32::new(0));
    let count = reported.clone();
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(MINUTE)).on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let _held = desk.try_acquire().unwrap();
    memory.advance(MINUTE - SOON);
    assert_eq!(reported.load(Ordering::SeqCst), 0);
    memory.advance(SOON);
    assert_eq!(reported.load(Ordering::SeqCst), 1);
}

#[test]
fn the_servers_clock_can_be_set_and_fences_keep_increasing() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let reported = Arc::new(AtomicU32::new(0));
    let count = reported.clone();
    let watched = desk.clone().on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let first = watched.try_acquire().unwrap();
    // Ahead: the lease has ended on the server. Its holder learns this at the renewal.
    memory.set_server_clock(memory.now() + HOUR);
    let second = desk.try_acquire().unwrap();
    assert!(!first.is_lost());
    memory.advance(MINUTE);
    assert!(first.is_lost() && !second.is_lost());
    assert_eq!(reported.load(Ordering::SeqCst), 1);
    // Back again: fences keep increasing.
    memory.set_server_clock(memory.now());
    second.refresh().unwrap();
    let fence = second.fence();
    second.release().unwrap();
    assert!(desk.try_acquire().unwrap().fence() > fence);
}

#[test]
fn the_clock_stops_at_its_maximum() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(HOUR));
    let before = desk.try_acquire().unwrap();
    memory.suspend(Duration::MAX);
    memory.advance(Duration::MAX);
    assert!(before.is_lost());
    let after = desk.try_acquire().unwrap();
    assert!(after.fence() > before.fence() && !after.is_lost());
    after.refresh().unwrap();
    let result = desk.acquire_timeout(Duration::from_millis(50));
    assert!(matches!(result, Err(AcquireError::TimedOut(_))), "{result:?}");
}

#[test]
fn a_minimum_hold_ends_by_the_tests_clock() {
    let (gate, memory) = memory();
    let mail = gate.semaphore("mail", 1).at_least(HOUR);
    mail.try_acquire().unwrap().release().unwrap();
    memory.advance(HOUR - MINUTE);
    let Err(TryAcquireError::Denied(denied)) = mail.try_acquire() else {
        panic!("granted during the minimum hold")
    };
    assert!(denied.next_expiry.is_some_and(|left| left <= MINUTE), "{denied}");
    assert!(mail.inspect().unwrap().holders[0].cooling_down);
    memory.advance(MINUTE);
    mail.try_acquire().unwrap().release().unwrap();
}
