//! Promise: permits are renewed, no matter how far the test's clock advances.

use crate::{HOUR, MINUTE, SECOND, SOON, eventually, finished, in_line, memory};

use luagate::{Lease, Permit, Released, Semaphore};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

#[test]
fn a_renewed_permit_is_held_for_hours() {
    let (gate, memory) = memory();
    let lost = Arc::new(AtomicU32::new(0));
    let reported = lost.clone();
    let mutex = gate.mutex("nightly").with(|lock| {
        lock.on_lost(move |_| {
            reported.fetch_add(1, Ordering::SeqCst);
        })
    });
    let held = mutex.lock().unwrap();
    let short = gate.semaphore("short", 1).lease(Lease::renewed(5 * SECOND));
    let short = short.try_acquire().unwrap();
    memory.advance(HOUR);
    assert!(!held.is_lost() && !short.is_lost());
    let other = memory.gate().unwrap();
    assert!(other.mutex("nightly").try_lock().is_err());
    assert!(other.semaphore("short", 1).try_acquire().is_err());
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    assert_eq!(held.release().unwrap(), Released::Released);
    assert!(other.mutex("nightly").try_lock().is_ok());
}

#[test]
fn each_of_many_permits_is_renewed_although_all_are_due_at_once() {
    let (gate, memory) = memory();
    let market = gate.semaphore("market", 250).lease(Lease::renewed(HOUR));
    let permits: Vec<Permit> = (0..250).map(|_| market.try_acquire().unwrap()).collect();
    for _ in 0..4 {
        // All renewals are overdue when the machine wakes up. They are sent in packets of maximum size.
        memory.suspend(HOUR / 2);
        for (place, permit) in permits.iter().enumerate() {
            let left = permit.remaining().unwrap();
            assert!(left > HOUR - MINUTE, "{place}: {left:?}");
        }
    }
    assert_eq!(market.inspect().unwrap().holder_count, 250);
    assert_eq!(gate.counters().renewed, 1_000);
}

#[test]
fn permits_acquired_while_the_clock_advances_are_renewed() {
    let (gate, memory) = memory();
    let desk = gate.semaphore("desk", 1);
    for _ in 0..20 {
        let held = desk.acquire().unwrap();
        let next = in_line(&desk, Semaphore::acquire);
        held.release().unwrap();
        memory.advance(10 * MINUTE);
        assert!(!finished(next).unwrap().is_lost());
    }
    let thread = std::thread::spawn(move || {
        let both = gate.mutexes(["{desk}:left", "{desk}:right"]);
        for _ in 0..300 {
            drop(desk.try_acquire().unwrap());
            let handed_on = desk.clone().lease(Lease::fixed(10_000 * HOUR)).try_acquire().unwrap();
            let adopted = desk.adopt(&handed_on.into_id()).unwrap();
            let both = both.try_acquire().unwrap();
            let one = gate.mutex("one").try_lock().unwrap();
            assert!(!adopted.is_lost() && !both.is_lost() && !one.is_lost());
        }
    });
    while !thread.is_finished() {
        memory.advance(2 * MINUTE);
    }
    thread.join().unwrap();
}

#[test]
fn a_callback_that_does_not_return_stops_neither_clock_nor_calls() {
    let (gate, memory) = memory();
    let (sender, block) = mpsc::channel::<()>();
    let block = std::sync::Mutex::new(block);
    let desk = gate.semaphore("desk", 1).lease(Lease::fixed(SECOND)).on_lost(move |_| {
        let _ = block.lock().unwrap().recv();
    });
    let held = desk.try_acquire().unwrap();
    let renewed = gate.mutex("renewed").lock().unwrap();
    let started = Instant::now();
    memory.advance(10 * MINUTE);
    assert!(started.elapsed() < MINUTE, "{:?}", started.elapsed());
    assert!(held.is_lost());
    assert!(desk.try_acquire().is_ok());
    drop((sender, renewed));
}

#[test]
fn each_renewal_is_counted_once() {
    let (gate, memory) = memory();
    let lease = gate.semaphore("counted", 2).lease(Lease::fixed(30 * SECOND));
    let permits =
        [lease.clone().lease(Lease::renewed(30 * SECOND)).acquire().unwrap(), lease.acquire().unwrap()];
    memory.advance(35 * SECOND);
    assert_eq!(gate.counters().renewed, 3, "a third of the lease has passed three times");
    assert!(!permits[0].is_lost() && permits[1].is_lost());
    assert_eq!(gate.counters().lost, 1);
    memory.suspend(HOUR);
    assert!(permits[0].is_lost());
    let counters = gate.counters();
    assert_eq!((counters.lost, counters.renewed), (2, 3));
}

#[test]
fn held_mutexes_are_renewed_while_waiting_for_the_next() {
    let (gate, memory) = memory();
    let (a, b) = (gate.mutex("a"), gate.mutex("b"));
    let held = b.lock().unwrap();
    let both = gate.mutexes(["a", "b"]).with(|lock| lock.lease(Lease::fixed(MINUTE)));
    let waiting = std::thread::spawn(move || both.acquire());
    eventually("it waits for the second", || b.inspect().unwrap().waiters.len() == 1);
    let fence = a.inspect().unwrap().holders[0].fence;
    memory.advance(HOUR);
    assert_eq!(a.inspect().unwrap().holders[0].fence, fence, "lost after its first lease");
    held.release().unwrap();
    let guard = finished(waiting).unwrap();
    assert_eq!(guard.get("a").unwrap().fence(), fence);
    // From here on the lease has the requested length and is not renewed.
    assert!(guard.remaining().unwrap() > MINUTE / 2);
    memory.advance(MINUTE);
    assert!(guard.is_lost());
}

#[test]
fn by_default_a_lease_of_30_s_is_renewed() {
    let (gate, memory) = memory();
    let permit = gate.semaphore("default", 1).acquire().unwrap();
    let left = permit.remaining().unwrap();
    assert!(left > 30 * SECOND - SOON && left <= 30 * SECOND, "{left:?}");
    memory.advance(2 * MINUTE);
    assert!(!permit.is_lost());
}

#[test]
fn a_permit_whose_renewal_is_stopped_is_held_until_its_lease_ends() {
    let (gate, memory) = memory();
    let semaphore = gate.semaphore("desk", 3).lease(Lease::renewed(MINUTE));
    let (sender, reported) = mpsc::channel();
    let telling =
        semaphore.clone().on_lost(move |lost| sender.send(lost.id.clone()).unwrap()).acquire().unwrap();
    let (silent, renewed) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
    telling.stop_renewal();
    silent.stop_renewal();
    memory.advance(MINUTE / 2);
    assert!(!telling.is_lost() && !silent.is_lost());
    memory.advance(MINUTE);
    assert!(telling.is_lost() && silent.is_lost(), "renewed");
    assert_eq!(reported.recv_timeout(SOON).unwrap(), telling.id());
    assert!(!renewed.is_lost());
    let holders = semaphore.inspect().unwrap().holders;
    assert_eq!(holders.iter().map(|holder| &*holder.id).collect::<Vec<_>>(), [renewed.id()]);
}

#[test]
fn a_permit_whose_renewal_is_stopped_can_be_refreshed_by_hand() {
    let (gate, memory) = memory();
    let permit = gate.semaphore("desk", 1).lease(Lease::renewed(MINUTE)).acquire().unwrap();
    permit.stop_renewal();
    permit.refresh_for(3 * MINUTE).unwrap();
    memory.advance(2 * MINUTE);
    assert!(!permit.is_lost());
    memory.advance(2 * MINUTE);
    assert!(permit.is_lost(), "renewed");
}

#[test]
fn the_renewal_of_one_of_several_mutexes_can_be_stopped() {
    let (gate, memory) = memory();
    let both = gate.mutexes(["one", "other"]).with(|lock| lock.lease(Lease::renewed(MINUTE)));
    let guard = both.acquire().unwrap();
    let (one, other) = (guard.get("one").unwrap(), guard.get("other").unwrap());
    one.stop_renewal();
    memory.advance(HOUR);
    let next = gate.mutex("one").try_lock().unwrap();
    assert!(one.is_lost() && next.fence() > one.fence());
    assert!(!other.is_lost());
    assert!(gate.mutex("other").try_lock().is_err());
}

#[test]
fn a_shortened_lease_is_renewed_in_time() {
    let (gate, memory) = memory();
    let permit = gate.semaphore("desk", 1).lease(Lease::renewed(HOUR)).acquire().unwrap();
    permit.refresh_for(MINUTE).unwrap();
    memory.advance(2 * MINUTE);
    assert!(!permit.is_lost());
    assert!(permit.remaining().unwrap() > MINUTE, "it has its own lease again");
}
