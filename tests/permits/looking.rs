//! Promise: an inspection shows the current holders, waiters and permits in use, and nothing that has ended.

use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};

use luagate::scripts::semaphore::{self, Ask, LookupAnswer, ResizeAnswer};
use luagate::{Resized, Revoked};

#[test]
fn expired_holders_and_waiters_are_not_listed_before_any_script_removes_them() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 40, ..raw.ask("holder") }).expires_at.unwrap();
    raw.queue(Ask { wait_ms: 30, ..raw.ask("waiter") });
    assert!(raw.holds("holder"));
    assert!(matches!(raw.lookup("waiter"), LookupAnswer::Queued { position: 1, .. }));
    raw.wait_until(end);
    assert!(matches!(raw.lookup("holder"), LookupAnswer::Gone { .. }));
    assert!(matches!(raw.lookup("waiter"), LookupAnswer::Gone { .. }));
    let state = raw.inspect();
    assert_eq!((state.in_use, state.holder_count, state.waiter_count), (0, 0, 0));
    assert!(state.holders.is_empty() && state.waiters.is_empty());
}

#[test]
fn permits_in_use_are_exact_among_expired_leases() {
    let server = Server::any();
    // Few expired leases among many running ones, and the reverse.
    for (ended, running) in [(2_u32, 5_u32), (5, 2)] {
        let mut raw = Raw::named(&server, &format!("exact-{ended}"), 100);
        let mut end = 0;
        for n in 0..ended {
            let id = format!("ended-{n}");
            let ask = Ask { permits: Some(3), lease_ms: 40, ..raw.ask(&id) };
            end = raw.grant(ask).expires_at.unwrap();
        }
        for n in 0..running {
            let id = format!("running-{n}");
            let ask = Ask { permits: Some(2), ..raw.ask(&id) };
            raw.grant(ask);
        }
        raw.wait_until(end);
        let state = raw.inspect();
        assert_eq!((state.in_use, state.holder_count), (2 * running, u64::from(running)));
    }
}

#[test]
fn holders_and_waiters_are_listed_in_pages() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 5);
    for n in 0..5 {
        let id = format!("h{n}");
        let ask = Ask { lease_ms: 10_000 + n, ..raw.ask(&id) };
        raw.grant(ask);
    }
    for n in 0..5 {
        let id = format!("w{n}");
        let ask = Ask { wait_ms: 10_000, ..raw.ask(&id) };
        raw.queue(ask);
    }
    let before = raw.dump();
    for page in 0..3 {
        let state = semaphore::inspect(&mut raw.con, &raw.keys, page * 2, 2).unwrap();
        let holders: Vec<_> = state.holders.iter().map(|row| row.id.clone()).collect();
        let waiters: Vec<_> = state.waiters.iter().map(|row| row.id.clone()).collect();
        let expected =
            |kind: &str| -> Vec<String> { (page * 2..(page * 2 + 2).min(5)).map(|n| format!("{kind}{n}")).collect() };
        assert_eq!((holders, waiters), (expected("h"), expected("w")));
        assert_eq!((state.holder_count, state.waiter_count), (5, 5));
    }
    let none = semaphore::inspect(&mut raw.con, &raw.keys, 0, 0).unwrap();
    assert!(none.holders.is_empty() && none.waiters.is_empty());
    assert_eq!(none.in_use, 5);
    assert_eq!(raw.dump(), before, "the inspection changed something");
}

#[test]
fn a_limit_is_compared_and_set() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 3);
    let mut raw = Raw::new(&server, 3);
    assert_eq!(semaphore.compare_and_resize(0, 4).unwrap(), Resized::Resized { old: 0, in_use: 0 });
    assert_eq!(semaphore.compare_and_resize(3, 9).unwrap(), Resized::Unchanged { current: 4 });
    assert_eq!(raw.inspect().limit, 4);
    assert_eq!(semaphore.compare_and_resize(4, 5).unwrap(), Resized::Resized { old: 4, in_use: 0 });
    assert_eq!(semaphore.resize(2).unwrap(), Resized::Resized { old: 5, in_use: 0 });
    assert!(raw.inspect().pinned);
    semaphore.unpin().unwrap();
    let state = raw.inspect();
    assert_eq!((state.limit, state.pinned), (0, false)); // no longer used
    assert_eq!(raw.resize(0, Some(2)), ResizeAnswer::Unchanged { current: 0, in_use: 0 });
}

#[test]
fn unpinning_an_unused_limit_leaves_no_keys() {
    let server = Server::any();
    server.gate().semaphore("unused", 3).unpin().unwrap();
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
    let short = mutex.clone().with(|lock| lock.lease(std::time::Duration::from_millis(20)));
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
