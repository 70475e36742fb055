//! Promise: an inspection shows the current holders, waiters and permits in use, and nothing that has ended.

use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};

use luagate::scripts::semaphore::{Ask, ResizeAnswer};
use luagate::{Lease, Resized, Revoked};

#[test]
fn a_limit_is_compared_and_set() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 3);
    let mut raw = Raw::new(&server, 3);
    assert_eq!(semaphore.compare_and_resize(None, 4).unwrap(), Resized::Resized { old: None, in_use: 0 });
    assert_eq!(semaphore.compare_and_resize(Some(3), 9).unwrap(), Resized::Unchanged { current: Some(4) });
    assert_eq!(raw.inspect().limit, 4);
    assert_eq!(
        semaphore.compare_and_resize(Some(4), 5).unwrap(),
        Resized::Resized { old: Some(4), in_use: 0 }
    );
    assert_eq!(semaphore.resize(2).unwrap(), Resized::Resized { old: Some(5), in_use: 0 });
    assert!(raw.inspect().pinned);
    semaphore.unpin_limit().unwrap();
    let state = raw.inspect();
    assert_eq!((state.limit, state.pinned), (0, false)); // no longer used
    assert_eq!(raw.resize(0, Some(2)), ResizeAnswer::Unchanged { current: 0, in_use: 0 });
}

#[test]
fn unpinning_an_unused_limit_leaves_no_keys() {
    let server = Server::any();
    server.gate().semaphore("unused", 3).unpin_limit().unwrap();
    assert!(server.all_keys().is_empty());
}

#[test]
fn a_waiter_can_be_revoked() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 10_000, ..raw.ask("waiter") });
    let semaphore = server.gate().semaphore("raw", 1);
    assert_eq!(semaphore.revoke("waiter").unwrap(), Revoked::Waited);
    assert_eq!(semaphore.revoke("waiter").unwrap(), Revoked::Nothing);
    assert_eq!(semaphore.revoke("holder").unwrap(), Revoked::Held);
}

#[test]
fn is_locked_is_true_exactly_while_a_mutex_is_held() {
    let server = Server::any();
    let mutex = server.gate().mutex("door");
    assert!(!mutex.is_locked().unwrap());
    let guard = mutex.lock().unwrap();
    assert!(server.gate().mutex("door").is_locked().unwrap());
    guard.release().unwrap();
    assert!(!mutex.is_locked().unwrap());
    let short = mutex.clone().with(|lock| lock.lease(Lease::fixed(std::time::Duration::from_millis(300))));
    let crashed = short.lock().unwrap();
    eventually("the lease ends", || (!mutex.is_locked().unwrap()).then_some(()));
    assert!(crashed.is_lost());
}

#[test]
fn inspecting_a_read_write_lock_shows_readers_and_writer() {
    let server = Server::any();
    let book = server.gate().rwlock("book");
    let usage = || {
        let usage = book.usage().unwrap();
        (usage.readers, usage.writing, usage.waiting)
    };
    assert_eq!(usage(), (0, false, 0));
    let readers = [book.read().unwrap(), book.read().unwrap()];
    assert_eq!(usage(), (2, false, 0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| book.try_write_for(SOON).unwrap());
        eventually("the writer is in line", || (usage() == (2, false, 1)).then_some(()));
        drop(readers);
        let mut writer = writer.join().unwrap();
        assert_eq!(usage(), (0, true, 0));
        writer.downgrade().unwrap();
        assert_eq!(usage(), (1, false, 0));
        writer.release().unwrap();
    });
    assert_eq!(usage(), (0, false, 0));
}
