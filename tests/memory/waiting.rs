//! Promise: waiters are granted in order, and their timeouts follow the test's clock.

use crate::{HOUR, MINUTE, SECOND, SOON, eventually, finished, in_line, memory};

use luagate::errors::{AcquireError, WaitError};
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{self, AcquireAnswer, Ask};
use luagate::{Cancel, Lease, Permit, Semaphore};
use std::sync::mpsc;

#[test]
fn a_waiter_is_granted_when_the_holders_lease_ends() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(HOUR));
    let first = desk.try_acquire().unwrap();
    let second = in_line(&desk, Semaphore::acquire);
    memory.advance(HOUR - MINUTE);
    assert!(!second.is_finished());
    memory.advance(MINUTE);
    let second = finished(second).unwrap();
    assert!(first.is_lost());
    let left = second.remaining().unwrap();
    assert!(left > HOUR - SOON, "{left:?}"); // the lease begins at the grant, not at the start of the wait
}

#[test]
fn waiters_are_granted_in_order_as_leases_end() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(MINUTE));
    let _first = desk.try_acquire().unwrap();
    let (sender, served) = mpsc::channel();
    let waiters: Vec<_> = (0..4)
        .map(|number| {
            let sender = sender.clone();
            in_line(&desk, move |desk| {
                // Kept until its lease has ended: a drop would let the next waiter in.
                sender.send((number, desk.acquire().unwrap())).unwrap();
            })
        })
        .collect();
    let mut kept: Vec<Permit> = Vec::new();
    for expected in 0..4 {
        assert!(served.try_recv().is_err());
        memory.advance(MINUTE);
        let (number, permit) = served.recv_timeout(SOON).unwrap();
        assert_eq!(number, expected);
        assert!(!permit.is_lost());
        kept.push(permit);
    }
    for waiter in waiters {
        finished(waiter);
    }
}

#[test]
fn behind_dead_waiters_a_permit_is_granted_when_the_lease_of_a_dead_holder_ends_whatever_leases_they_have() {
    let (gate, memory) = memory();
    let mut con = memory.connection().unwrap();
    for (theirs, own) in [(2 * SECOND, 30 * SECOND), (30 * SECOND, 2 * SECOND), (2 * SECOND, 2 * SECOND)] {
        let name = format!("{theirs:?}-{own:?}");
        let desk = gate.semaphore(&name, 1).lease(Lease::fixed(own));
        let keys = Keys::semaphore("luagate", &name).unwrap();
        let lease_ms = theirs.as_millis() as u64;
        let ask = Ask { id: "holder", limit: 1, lease_ms, ..Ask::default() };
        let mut end = match semaphore::acquire(&mut con, &keys, &ask) {
            Ok(AcquireAnswer::Granted(grant, _)) => grant.expires_at.unwrap(),
            other => panic!("{other:?}"),
        };
        for id in ["a", "b", "c", "d", "e", "f"] {
            let ask = Ask { id, wait_ms: 86_400_000, inbox: "nobody:listens", ..ask };
            assert!(matches!(semaphore::acquire(&mut con, &keys, &ask), Ok(AcquireAnswer::Queued { .. })));
        }
        let waiter = in_line(&desk, Semaphore::acquire);
        // It asks again at the end of the first lease, which was renewed meanwhile.
        for _ in 0..3 {
            memory.advance(theirs / 3);
            let renewed = semaphore::refresh(&mut con, &keys, "holder", lease_ms, None).unwrap();
            end = renewed.and_then(|grant| grant.expires_at).unwrap();
        }
        memory.advance(theirs + 10 * SECOND);
        let late = finished(waiter).unwrap().fence() / 1_000 - end;
        // Some ms, and what a busy machine adds. With one call in five seconds it would come three seconds
        // later.
        assert!(late < 2_000, "leases of {theirs:?} and {own:?}: {late} ms after the end");
    }
}

#[test]
fn a_wait_times_out_by_the_tests_clock() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire_timeout(HOUR).map(drop));
    memory.advance(HOUR - MINUTE);
    assert!(!waiter.is_finished());
    assert_eq!(desk.inspect().unwrap().waiters.len(), 1); // it asked again in time, every few seconds
    memory.advance(MINUTE);
    match finished(waiter) {
        Err(AcquireError::TimedOut(denied)) => assert_eq!((denied.in_use, denied.limit), (1, 1)),
        other => panic!("{other:?}"),
    }
    assert!(desk.inspect().unwrap().waiters.is_empty());
    assert!(!held.is_lost());
}

#[test]
fn a_waiter_keeps_its_place_for_hours() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    let held = desk.try_acquire().unwrap();
    let first = in_line(&desk, Semaphore::acquire);
    memory.advance(HOUR);
    let other = memory.gate().unwrap().semaphore("desk", 1);
    let second = in_line(&other, Semaphore::acquire);
    memory.advance(MINUTE);
    held.release().unwrap();
    let first = finished(first).unwrap();
    assert!(!second.is_finished());
    memory.advance(MINUTE);
    assert!(!first.is_lost());
    first.release().unwrap();
    assert!(!finished(second).unwrap().is_lost());
}

#[test]
fn a_wait_can_be_cancelled() {
    let (gate, memory) = memory();
    let cancel = Cancel::new();
    let desk = gate.semaphore("desk", 1).cancelled_by(&cancel);
    let _held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire().map(drop));
    memory.advance(HOUR);
    cancel.cancel();
    assert!(matches!(finished(waiter), Err(AcquireError::Cancelled(_))));
}

#[test]
fn a_wait_ends_at_the_deadline_of_its_handle_by_the_tests_clock() {
    let (gate, memory) = memory();
    memory.advance(HOUR); // a handle that is created later is not affected
    let cancel = Cancel::after(MINUTE);
    let desk = gate.semaphore("desk", 1).cancelled_by(&cancel);
    let latch = gate.latch("closed", 1).cancelled_by(&cancel);
    let _held = desk.try_acquire().unwrap();
    let waiter = in_line(&desk, |desk| desk.acquire().map(drop));
    memory.advance(MINUTE - SOON);
    assert!(!cancel.is_cancelled() && !waiter.is_finished());
    memory.advance(SOON);
    assert!(matches!(finished(waiter), Err(AcquireError::Cancelled(_))));
    assert!(cancel.is_cancelled());
    assert!(desk.inspect().unwrap().waiters.is_empty());
    assert!(matches!(latch.wait_timeout(SOON), Err(WaitError::Cancelled(_))));
}

#[test]
fn a_wait_for_a_latch_ends_when_it_opens_or_times_out() {
    let (gate, memory) = memory();
    let done = gate.latch("import", 2);
    assert_eq!(done.count_down_as("part-1").unwrap(), 1);
    let patient = done.clone();
    let patient = std::thread::spawn(move || patient.wait());
    let hasty = done.clone();
    let hasty = std::thread::spawn(move || hasty.wait_timeout(HOUR));
    eventually("the impatient wait times out", || {
        memory.advance(MINUTE);
        hasty.is_finished()
    });
    assert!(matches!(hasty.join().unwrap(), Err(WaitError::StillClosed(closed)) if closed.left == 1));
    assert!(!patient.is_finished());
    assert_eq!(done.count_down_as("part-2").unwrap(), 0);
    finished(patient).unwrap();
}
