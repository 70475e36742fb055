//! Promise: each outcome of a call has its own variant, so that a program can act on it.

use crate::own;
use crate::support::{SOON, Server, eventually, timed_out};

use luagate::errors::{AcquireError, FailureKind, TryAcquireError, WaitError};
use luagate::{Error, Lease};
use std::time::{Duration, Instant};

#[test]
fn more_permits_than_the_limit_in_force_are_not_an_invalid_argument() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("market", 5);
    semaphore.resize(2).unwrap();
    let Err(TryAcquireError::AboveLimit(above)) = semaphore.try_acquire_many(3) else {
        panic!("expected an error about the limit");
    };
    assert_eq!((above.permits, above.limit), (3, 2));
    let wait = semaphore.acquire_many_timeout(3, SOON);
    assert!(matches!(wait, Err(AcquireError::AboveLimit(_))), "{wait:?}");
    assert!(matches!(Error::from(wait.unwrap_err()), Error::AboveLimit(_)));
    semaphore.unpin_limit().unwrap();
}

#[test]
fn a_lowered_limit_ends_the_wait_for_more_permits() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("market", 3);
    let holder = semaphore.try_acquire().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_many_timeout(3, SOON));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        semaphore.resize(2).unwrap();
        let Err(AcquireError::AboveLimit(above)) = waiting.join().unwrap() else {
            panic!("expected an error about the limit");
        };
        assert_eq!((above.permits, above.limit), (3, 2));
    });
    holder.release().unwrap();
    semaphore.unpin_limit().unwrap();
}

#[test]
fn a_timeout_of_zero_allows_one_try() {
    let server = Server::any();
    let gate = server.gate();
    let (none, semaphore, rwlock) = (Duration::ZERO, gate.semaphore("s", 2), gate.rwlock("r"));
    let held = semaphore.acquire_many_timeout(2, none).expect("both are free");
    timed_out(|| semaphore.acquire_timeout(none));
    let both = gate.several([(&gate.semaphore("other", 1), 1), (&semaphore, 1)]);
    timed_out(|| both.acquire_timeout(none));
    held.release().unwrap();
    let read = rwlock.try_read_for(none).expect("there is no writer");
    timed_out(|| rwlock.try_write_for(none));
    read.release().unwrap();
    let written = rwlock.try_write_for(none).expect("there is no reader");
    timed_out(|| rwlock.try_read_for(none));
    written.release().unwrap();
    assert_eq!(semaphore.inspect().unwrap().waiter_count + rwlock.inspect().unwrap().waiter_count, 0);
    let latch = gate.latch("l", 1);
    assert!(matches!(latch.wait_timeout(none), Err(WaitError::StillClosed(closed)) if closed.left == 1));
    latch.count_down().unwrap();
    latch.wait_timeout(none).unwrap();
}

#[test]
fn every_caller_that_is_refused_learns_the_usage_from_one_type() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("m").lock().unwrap();
    let short = Duration::from_millis(1);
    let errors: [Error; 4] = [
        gate.mutex("m").try_lock().unwrap_err().into(),
        gate.mutexes(["m"]).try_acquire().unwrap_err().into(),
        gate.mutex("m").try_lock_for(short).unwrap_err().into(),
        gate.mutexes(["m"]).acquire_timeout(short).unwrap_err().into(),
    ];
    for error in errors {
        let (Error::Denied(denied) | Error::TimedOut(denied)) = &error else { panic!("{error}") };
        assert_eq!((denied.name.as_str(), denied.in_use, denied.limit, denied.waiting), ("m", 1, 1, 0));
    }
    held.release().unwrap();
}

#[test]
fn the_first_call_after_the_server_is_gone_is_a_failure_and_not_unknown() {
    let mut server = own!(Server::private_tcp(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("market", 2);
    semaphore.acquire().unwrap().release().unwrap();
    let idle = Instant::now() + Duration::from_millis(1_600); // from then on a connection is tested before it is used
    server.kill();
    while Instant::now() < idle {
        std::thread::sleep(Duration::from_millis(10));
    }
    let Err(TryAcquireError::Failed(failure)) = semaphore.try_acquire() else {
        panic!("the call cannot have run");
    };
    assert_eq!(failure.kind(), FailureKind::Unreachable);
}

#[test]
fn a_lease_too_short_to_be_renewed_is_refused() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("market", 2);
    let short = semaphore.clone().lease(Lease::renewed(Duration::from_millis(29)));
    let refused: [Error; 2] =
        [short.try_acquire().unwrap_err().into(), short.acquire_timeout(SOON).unwrap_err().into()];
    for error in refused {
        assert!(matches!(&error, Error::Invalid(i) if i.what() == "lease"), "{error}");
    }
    let renewed = semaphore.lease(Lease::fixed(Duration::from_millis(30)));
    // On a busy machine the lease may end before its grant arrives.
    drop(eventually("a grant in time", || renewed.try_acquire().ok()));
}

#[test]
fn a_denial_contains_the_next_lease_end_and_estimates_when_to_retry() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("market", 2);
    let semaphore = semaphore.lease(Lease::fixed(Duration::from_secs(30)));
    let held = semaphore.try_acquire_many(2).unwrap();
    let Err(TryAcquireError::Denied(denied)) = semaphore.try_acquire() else {
        panic!("granted beyond the limit");
    };
    // Holders keep a permit for half a second. Two holders release in that time: one every 250 ms.
    let hold = Duration::from_millis(500);
    assert_eq!(denied.retry_after(hold), hold / 2);
    let expiry = denied.next_expiry.unwrap();
    assert!(expiry > 50 * hold && expiry <= Duration::from_secs(30), "{expiry:?}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(SOON));
        eventually("one waits", || {
            let denied = semaphore.try_acquire().unwrap_err();
            let TryAcquireError::Denied(denied) = denied else {
                panic!("{denied}");
            };
            (denied.retry_after(hold) == hold).then_some(())
        });
        held.release().unwrap();
        drop(waiting.join().unwrap().unwrap());
    });
}
