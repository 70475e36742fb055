//! Promise: many readers or one writer hold the lock, in order of arrival. A crashed reader's share becomes
//! free at its own lease end.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually, process, timed_out};

use luagate::errors::{PermitError, TryAcquireError};
use luagate::{Gate, Lease, Released, RwLock};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Blocks until this number of callers is in line.
fn until_waiting(lock: &RwLock, count: u64) {
    eventually("the callers are in line", || (lock.inspect().unwrap().waiter_count == count).then_some(()));
}

#[test]
fn fifty_readers_hold_the_lock_at_once() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let all_inside = Barrier::new(50);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let guard = lock.read().unwrap();
                all_inside.wait(); // all readers stay until every reader has the lock
                guard.release().unwrap();
            });
        }
    });
    lock.try_write().unwrap().release().unwrap();
}

#[test]
fn a_writer_holds_the_lock_alone() {
    let server = Server::any();
    let gates = [server.gate(), server.gate()];
    let (readers, writers) = (AtomicI32::new(0), AtomicI32::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let lock = gates[thread % 2].rwlock("ledger");
            let (readers, writers) = (&readers, &writers);
            scope.spawn(move || {
                for round in 0..100 {
                    if (thread + round) % 4 == 0 {
                        let _guard = lock.write().unwrap();
                        assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(readers.load(Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        writers.fetch_sub(1, Ordering::SeqCst);
                    } else {
                        let _guard = lock.read().unwrap();
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        readers.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        readers.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
}

#[test]
fn a_waiting_writer_blocks_new_readers() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let first = lock.read().unwrap();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.write().unwrap();
            order.lock().unwrap().push("writer");
            guard.release().unwrap();
        });
        until_waiting(&lock, 1);
        let Err(TryAcquireError::Denied(denied)) = lock.try_read() else { panic!("overtook the writer") };
        assert_eq!((denied.in_use, denied.waiting), (1, 1));
        let seen = lock.inspect().unwrap().to_string();
        assert!(seen.starts_with("locked for reading by 1\n  holds "), "{seen}");
        assert!(seen.ends_with(", writing, place 1"), "{seen}");
        assert!(denied.to_string().starts_with("book: locked for reading by 1, "), "{denied}");
        scope.spawn(|| {
            let guard = lock.read().unwrap();
            order.lock().unwrap().push("reader");
            guard.release().unwrap();
        });
        until_waiting(&lock, 2);
        first.release().unwrap();
    });
    assert_eq!(*order.lock().unwrap(), ["writer", "reader"]);
}

#[test]
fn readers_and_writers_are_granted_in_order_of_arrival() {
    // In line behind a writer. They are granted in order of arrival; adjacent readers are granted together.
    let server = Server::any();
    let gate = server.gate();
    let lock = gate.rwlock("book");
    let first = lock.write().unwrap();
    let order = Mutex::new(Vec::new());
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        for (place, writes) in [false, false, true, false, true].into_iter().enumerate() {
            let (lock, order, together) = (lock.clone(), &order, &together);
            scope.spawn(move || {
                if writes {
                    let _guard = lock.write().unwrap();
                    order.lock().unwrap().push(place);
                } else {
                    let _guard = lock.read().unwrap();
                    if place < 2 {
                        together.wait();
                    }
                    order.lock().unwrap().push(place);
                }
            });
            until_waiting(&gate.rwlock("book"), place as u64 + 1);
        }
        first.release().unwrap();
    });
    let mut order = order.into_inner().unwrap();
    order[..2].sort_unstable();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

/// The main function of a reader process, which is killed.
pub fn read(arguments: &[String]) {
    let gate = Gate::builder(&arguments[0]).prefix(&arguments[1]).open().unwrap();
    let lock = gate.rwlock("book").with(|lock| lock.lease(Lease::renewed(Duration::from_secs(2))));
    let _guard = lock.read().unwrap();
    println!("reading");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_crashed_readers_share_is_freed_at_its_own_lease_end() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let mut child = process("read", &[&server.url, &server.prefix]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "reading" {}
    // Keeps reading, with a short lease that is renewed.
    let other = lock.clone().with(|lock| lock.lease(Lease::renewed(Duration::from_secs(2))));
    let other = other.read().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lock.inspect().unwrap().in_use, 2);
    eventually("the share is free", || (lock.inspect().unwrap().in_use == 1).then_some(()));
    assert!(!other.is_lost());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| lock.write().unwrap().release().unwrap());
        until_waiting(&lock, 1);
        assert_eq!(other.release().unwrap(), Released::Released);
        writer.join().unwrap();
    });
}

#[test]
fn a_downgraded_writer_reads_and_no_other_writes_in_between() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let mut writing = lock.write().unwrap();
    let (fence, id) = (writing.fence(), writing.id().to_owned());
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = lock.read().unwrap();
            order.lock().unwrap().push("read");
        });
        until_waiting(&lock, 1);
        scope.spawn(|| {
            let _guard = lock.write().unwrap();
            order.lock().unwrap().push("write");
        });
        until_waiting(&lock, 2);
        writing.downgrade().unwrap();
        assert_eq!((writing.fence(), writing.id()), (fence, &*id));
        assert_eq!(writing.permits(), 1);
        eventually("the reader at the head is granted", || order.lock().unwrap().first().copied());
        assert_eq!(*order.lock().unwrap(), ["read"]);
        writing.refresh().unwrap();
        assert_eq!(writing.release().unwrap(), Released::Released);
    });
    assert_eq!(*order.lock().unwrap(), ["read", "write"]);
}

#[test]
fn an_unconfirmed_downgrade_can_be_retried() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let lock = gate.rwlock("book");
    let mut writing = lock.write().unwrap();
    proxy.lose_replies(2); // both calls run, and the replies are lost
    let error = writing.downgrade().unwrap_err();
    assert!(matches!(error, PermitError::Unknown(_)), "{error}");
    writing.downgrade().unwrap();
    lock.try_read().unwrap().release().unwrap();
    assert_eq!(writing.release().unwrap(), Released::Released);
}

#[test]
fn a_downgrade_of_a_lost_lock_is_an_error() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let mut writing = lock.write().unwrap();
    lock.revoke(writing.id()).unwrap();
    let error = writing.downgrade().unwrap_err();
    assert!(matches!(error, PermitError::Lost(_)), "{error}");
    assert!(writing.is_lost());
}

#[test]
fn tries_and_timeouts_work_for_readers_and_writers() {
    let server = Server::any();
    let lock = server.gate().rwlock("book");
    let soon = Duration::from_millis(30);
    let writing = lock.try_write_for(soon).unwrap();
    let Err(TryAcquireError::Denied(denied)) = lock.try_read() else { panic!() };
    assert!(denied.to_string().starts_with("book: locked for writing, "), "{denied}");
    timed_out(|| lock.try_read_for(soon));
    timed_out(|| lock.try_write_for(soon));
    writing.release().unwrap();
    let reading = lock.try_read_for(soon).unwrap();
    assert!(matches!(
        lock.try_write(),
        Err(TryAcquireError::Denied(denied)) if denied.waiting == 0
    ));
    reading.release().unwrap();
}

#[test]
fn a_share_and_the_whole_lock_can_be_handed_to_another_process() {
    let server = Server::any();
    let (here, there) = (server.gate().rwlock("book"), server.gate().rwlock("book"));
    let reader = here.read().unwrap().into_id();
    let reading = there.adopt(&reader).unwrap();
    assert_eq!(reading.permits(), 1);
    reading.release().unwrap();
    let writer = here.write().unwrap().into_id();
    let writing = there.adopt(&writer).unwrap();
    assert!(writing.permits() > 1);
    assert!(matches!(
        here.try_read(),
        Err(TryAcquireError::Denied(denied)) if denied.in_use == i32::MAX as u32
    ));
    writing.release().unwrap();
    assert!(matches!(there.adopt(&writer), Err(PermitError::Lost(_))));
}

#[test]
fn a_lost_writer_does_not_downgrade_its_successor() {
    let server = Server::any();
    let lock = server.gate().rwlock("book").with(|lock| lock.id("own"));
    let short = lock.clone().with(|lock| lock.lease(Lease::fixed(Duration::from_millis(300))));
    let mut lost = short.write().unwrap();
    let successor = eventually("the lease ends", || lock.write().ok());
    let error = lost.downgrade().unwrap_err();
    assert!(matches!(error, PermitError::Lost(_)), "{error}");
    drop(lost);
    let other = server.gate().rwlock("book");
    assert!(other.try_read().is_err(), "a reader was granted during a write");
    successor.release().unwrap();
}
