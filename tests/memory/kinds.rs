//! Promise: permits, locks, latches and autocomplete work as on a server, in all threads and gates that share
//! one memory.

use crate::{HOUR, MINUTE, SECOND, SOON, memory};

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::TryAcquireError;
use luagate::{Lease, Released};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

#[test]
fn permits_are_granted_at_once_or_denied() {
    let (gate, _memory) = memory();
    let seats = gate.semaphore("seats", 2).lease(Lease::fixed(MINUTE));
    let one = seats.try_acquire().unwrap();
    let two = seats.try_acquire().unwrap();
    assert!(two.fence() > one.fence());
    match seats.try_acquire() {
        Err(TryAcquireError::Denied(denied)) => {
            assert_eq!((denied.in_use, denied.limit, denied.waiting), (2, 2, 0));
            let left = denied.next_expiry.unwrap();
            assert!(left > MINUTE - SOON && left <= MINUTE, "{left:?}");
        }
        other => panic!("granted beyond the limit: {other:?}"),
    }
    assert_eq!(one.release().unwrap(), Released::Released);
    assert_eq!(seats.available_permits().unwrap(), 1);
}

#[test]
fn locks_latches_and_names_work() {
    let (gate, memory) = memory();
    let all = gate.mutexes(["{trade}:sword", "{trade}:shield"]);
    let both = all.try_acquire().unwrap();
    assert!(gate.mutex("{trade}:sword").try_lock().is_err());
    drop(both);
    drop(all.acquire_timeout(SECOND).unwrap());

    let (user, total) = (gate.semaphore("user", 2), gate.semaphore("total", 3));
    let limits = gate.several([(&user, 2), (&total, 2)]);
    let held = limits.acquire_timeout(SECOND).unwrap();
    assert!(limits.acquire_timeout(SECOND / 100).is_err());
    assert_eq!((user.available_permits().unwrap(), total.available_permits().unwrap()), (0, 1));
    drop(held);

    let page = gate.rwlock("page").with(|lock| lock.lease(Lease::fixed(MINUTE)));
    let readers = (page.read().unwrap(), page.try_read().unwrap());
    assert!(page.try_write().is_err());
    drop(readers);
    let writer = page.write().unwrap();
    assert!(page.try_read().is_err());
    memory.advance(MINUTE);
    assert!(writer.is_lost());
    assert!(page.try_read().is_ok());

    let recent = Recent::new(&gate, "ann").keep(2);
    for name in ["Alice", "Bob", "alan"] {
        recent.add(name).unwrap();
    }
    let names = recent.matching("AL", 10).unwrap();
    assert_eq!(names, ["alan"]);
    let guild = Prefix::new(&gate, "guild");
    guild.add(["bob", "alice", "bert"]).unwrap();
    let names = guild.matching("b", 10).unwrap();
    assert_eq!(names, ["bert", "bob"]);
}

#[test]
fn threads_of_several_gates_never_exceed_the_limit() {
    const LIMIT: u32 = 3;
    let (gate, memory) = memory();
    let gates = [gate, memory.gate().unwrap(), memory.gate().unwrap()];
    let inside = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let start = Arc::new(Barrier::new(24));
    let threads: Vec<_> = (0..24)
        .map(|number| {
            let seats = gates[number % 3].semaphore("seats", LIMIT);
            let (inside, most, start) = (inside.clone(), most.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                for _ in 0..10 {
                    let permit = seats.acquire().unwrap();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().unwrap();
                }
            })
        })
        .collect();
    // Meanwhile hours pass on the test's clock. Only the renewal is affected.
    while threads.iter().any(|thread| !thread.is_finished()) {
        memory.advance(MINUTE);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), LIMIT);
}

#[test]
fn separate_memories_are_independent() {
    let (gate, memory) = memory();
    let (other, _other_memory) = self::memory();
    let held = gate.semaphore("desk", 1).lease(Lease::fixed(MINUTE));
    let held = held.try_acquire().unwrap();
    let theirs = other.semaphore("desk", 1).lease(Lease::fixed(MINUTE));
    let theirs = theirs.try_acquire().unwrap();
    memory.suspend(HOUR);
    assert!(held.is_lost());
    assert!(!theirs.is_lost());
    theirs.refresh().unwrap();
}
