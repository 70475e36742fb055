//! Promise: permits of several semaphores, with any limits and weights, are acquired together or not at all.
//! A denial names the semaphore that blocks.

use super::SOON;
use crate::support::{Server, eventually, timed_out};

use luagate::errors::{AcquireError, TryAcquireError};
use luagate::{Gate, Lease, Released, Semaphore, SeveralPermits};
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

/// Three for a user and four in total.
fn limits(gate: &Gate) -> (Semaphore, Semaphore) {
    (gate.semaphore("{export}:user:17", 3), gate.semaphore("{export}:total", 4))
}

fn in_use(semaphore: &Semaphore) -> u32 {
    semaphore.inspect().unwrap().in_use
}

/// After a call that failed. A slow release continues in the background.
fn comes_to(semaphores: [&Semaphore; 2], expected: [u32; 2]) {
    eventually("the others are released", || (semaphores.map(in_use) == expected).then_some(()));
}

#[test]
fn weights_of_several_limits_and_a_mutex_are_acquired_at_once_and_in_line() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let item = gate.mutex("{export}:item");
    let all = gate.several([(&total, 2), item.to_lock(), (&user, 3)]);
    let ways: [&dyn Fn() -> SeveralPermits; 3] =
        [&|| all.try_acquire().unwrap(), &|| all.acquire().unwrap(), &|| all.acquire_timeout(SOON).unwrap()];
    for acquire in ways {
        let held = acquire();
        assert_eq!((in_use(&user), in_use(&total), item.is_locked().unwrap()), (3, 2, true));
        // In the order of the list, whatever the order of waiting is.
        let names = held.iter().map(|(name, one)| (name, one.permits(), one.limit().unwrap()));
        let names: Vec<(&str, u32, u32)> = names.collect();
        assert_eq!(names, [("{export}:total", 2, 4), ("{export}:item", 1, 1), ("{export}:user:17", 3, 3)]);
        assert_eq!(held.fence("{export}:total"), Some(held.get("{export}:total").unwrap().fence()));
        assert_eq!(held.fence("other"), None);
        held.refresh().unwrap();
        assert!(!held.is_lost() && held.remaining().unwrap() > SOON);
        assert_eq!(held.release().unwrap(), Released::Released);
        assert_eq!((in_use(&user), in_use(&total), item.is_locked().unwrap()), (0, 0, false));
    }
}

#[test]
fn reader_writer_locks_join_for_reading_and_for_writing() {
    let server = Server::any();
    let gate = server.gate();
    let [prices, stock] = ["{shop}:prices", "{shop}:stock"].map(|name| gate.rwlock(name));
    let order = gate.several([prices.to_read(), stock.to_write()]);
    let ways: [&dyn Fn() -> SeveralPermits; 2] =
        [&|| order.try_acquire().unwrap(), &|| order.acquire().unwrap()];
    for acquire in ways {
        let held = acquire();
        prices.try_read().unwrap().release().unwrap();
        assert!(prices.try_write().is_err() && stock.try_read().is_err());
        assert!(
            matches!(order.try_acquire(), Err(TryAcquireError::Denied(denied)) if denied.name == stock.name())
        );
        assert_eq!(held.release().unwrap(), Released::Released);
        let writing = gate.several([prices.to_write(), stock.to_write()]).try_acquire().unwrap();
        assert_eq!(writing.release().unwrap(), Released::Released);
    }
}

#[test]
fn a_denial_names_the_first_blocking_semaphore() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let _held = total.try_acquire_many(3).unwrap();
    let both = gate.several([(&user, 2), (&total, 2)]);
    let Err(TryAcquireError::Denied(denied)) = both.try_acquire() else { panic!("only one is free") };
    assert_eq!(denied.name, total.name());
    assert_eq!((denied.in_use, denied.limit, denied.waiting), (3, 4, 0));
    assert!(denied.next_expiry.is_some_and(|next| next > Duration::from_secs(20)));
    assert!(denied.to_string().starts_with("{export}:total: 3 of 4 permits are in use"), "{denied}");
    assert_eq!(in_use(&user), 0);
}

#[test]
fn a_failed_wait_releases_everything() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let held = total.try_acquire_many(4).unwrap();
    let both = gate.several([(&user, 1), (&total, 1)]);
    let blocked = timed_out(|| both.acquire_timeout(SHORT));
    assert_eq!((blocked.name.as_str(), blocked.in_use), (total.name(), 4));
    comes_to([&user, &total], [0, 4]);
    // More permits than the limit, another limit than declared, a full line: each error names the semaphore.
    let Err(AcquireError::AboveLimit(above)) = gate.several([(&user, 1), (&total, 5)]).acquire_timeout(SOON)
    else {
        panic!("it was granted")
    };
    assert_eq!((above.name.as_str(), above.permits, above.limit), (total.name(), 5, 4));
    let strict = gate.semaphore(total.name(), 9).strict();
    let other = gate.several([(&user, 1), (&strict, 1)]).acquire_timeout(SOON);
    let Err(AcquireError::LimitMismatch(other)) = other else { panic!("{other:?}") };
    assert_eq!((other.name.as_str(), other.declared, other.in_force), (total.name(), 9, 4));
    thread::scope(|scope| {
        let waits = scope.spawn(|| total.acquire_timeout(SOON));
        eventually("it waits", || (total.inspect().unwrap().waiter_count == 1).then_some(()));
        let short = total.clone().max_waiting(1);
        let full = gate.several([(&user, 1), (&short, 1)]).acquire_timeout(SOON);
        let Err(AcquireError::LineFull(full)) = full else { panic!("{full:?}") };
        assert_eq!((full.name.as_str(), full.waiting), (total.name(), 1));
        held.release().unwrap();
        waits.join().unwrap().unwrap().release().unwrap();
    });
    comes_to([&user, &total], [0, 0]);
}

#[test]
fn a_try_above_or_with_another_limit_is_an_error_and_nothing_is_held() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let Err(TryAcquireError::AboveLimit(above)) = gate.several([(&user, 4), (&total, 1)]).try_acquire()
    else {
        panic!("it was granted")
    };
    assert_eq!((above.name.as_str(), above.permits, above.limit), (user.name(), 4, 3));
    let held = total.try_acquire().unwrap();
    let strict = gate.semaphore(total.name(), 9).strict();
    for permits in [1, 4] {
        let Err(TryAcquireError::LimitMismatch(other)) =
            gate.several([(&user, 1), (&strict, permits)]).try_acquire()
        else {
            panic!("it was granted")
        };
        assert_eq!((other.declared, other.in_force), (9, 4));
    }
    comes_to([&user, &total], [0, 1]);
    held.release().unwrap();
}

#[test]
fn each_semaphore_keeps_its_own_settings() {
    let server = Server::any();
    let gate = server.gate();
    let user = gate.semaphore("{export}:user:17", 3).lease(Lease::fixed(Duration::from_secs(5)));
    let total = gate
        .semaphore("{export}:total", 4)
        .lease(Lease::fixed(Duration::from_secs(600)))
        .at_least(Duration::from_secs(60));
    let both = gate.several([(&user, 1), (&total, 1)]);
    for in_line in [false, true] {
        let held = if in_line { both.acquire_timeout(SOON).unwrap() } else { both.try_acquire().unwrap() };
        assert!(held.get(user.name()).unwrap().remaining().unwrap() <= Duration::from_secs(5));
        assert!(held.get(total.name()).unwrap().remaining().unwrap() > Duration::from_secs(500));
        assert!(held.remaining().unwrap() <= Duration::from_secs(5));
        held.release().unwrap();
    }
    assert_eq!((in_use(&user), in_use(&total)), (0, 2));
}

#[test]
fn semaphores_of_two_servers_can_be_acquired_in_line() {
    let (here, there) = (Server::any(), Server::any());
    let (gate, other) = (here.gate(), there.gate());
    let (near, far) = (gate.semaphore("near", 2), other.semaphore("far", 1));
    let both = gate.several([(&near, 1), (&far, 1)]);
    let error = both.try_acquire().unwrap_err();
    assert!(matches!(error, TryAcquireError::Invalid(_)), "{error}");
    let held = both.acquire_timeout(SOON).unwrap();
    held.refresh().unwrap();
    assert!(near.try_acquire().is_ok() && far.try_acquire().is_err());
    timed_out(|| both.acquire_timeout(SHORT));
    held.release().unwrap();
    comes_to([&near, &far], [0, 0]);
}

#[test]
fn invalid_requests_are_refused_before_anything_is_sent() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let own = gate.semaphore("{export}:own", 1).id("me");
    let many: Vec<Semaphore> = (0..65).map(|n| gate.semaphore(&format!("{{export}}:{n}"), 1)).collect();
    let cases: [(Vec<(&Semaphore, u32)>, &str); 5] = [
        (vec![], "semaphores"),
        (many.iter().map(|one| (one, 1)).collect(), "semaphores"),
        (vec![(&user, 1), (&total, 1), (&user, 2)], "semaphores"),
        (vec![(&user, 1), (&total, 0)], "permits"),
        (vec![(&user, 1), (&own, 1)], "id"),
    ];
    for (semaphores, what) in cases {
        let several = gate.several(semaphores);
        let Err(TryAcquireError::Invalid(at_once)) = several.try_acquire() else { panic!("{what}") };
        let Err(AcquireError::Invalid(in_line)) = several.acquire_timeout(SOON) else { panic!("{what}") };
        assert_eq!((at_once.what(), in_line.what()), (what, what));
    }
    assert_eq!(server.all_keys(), Vec::<String>::new());
}

#[test]
fn a_wait_for_a_narrow_semaphore_does_not_hold_a_wide_one() {
    let server = Server::any();
    let gate = server.gate();
    let (user, total) = limits(&gate);
    let held = user.try_acquire_many(3).unwrap();
    let both = gate.several([(&total, 1), (&user, 1)]);
    thread::scope(|scope| {
        let waits = scope.spawn(|| both.acquire_timeout(SOON));
        eventually("it waits for the user's semaphore", || {
            (user.inspect().unwrap().waiter_count == 1).then_some(())
        });
        assert_eq!(in_use(&total), 0);
        held.release().unwrap();
        waits.join().unwrap().unwrap().release().unwrap();
    });
}
