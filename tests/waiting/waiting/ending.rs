//! Promise: a wait ends at its timeout, when its place is revoked or when the limit changes, and leaves
//! nothing behind.

use super::{MINUTE, await_waiters};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{Server, assert_in_time, eventually, timed_out};

use luagate::errors::AcquireError;
use luagate::{Lease, Revoked, Semaphore};
use std::time::{Duration, Instant};

#[test]
fn a_timeout_is_kept_within_50_ms_and_leaves_nothing_in_the_queue() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = server.gate().semaphore("raw", 1);
    let timeout = Duration::from_millis(120);
    assert_in_time(Duration::from_millis(50), || {
        let start = Instant::now();
        let denied = timed_out(|| semaphore.acquire_timeout(timeout));
        assert_eq!((denied.in_use, denied.limit), (1, 1));
        assert_eq!(raw.inspect().waiter_count, 0);
        start.elapsed().checked_sub(timeout).expect("it timed out too early")
    });
}

#[test]
fn a_grant_that_crosses_a_timeout_is_used_or_released() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::fixed(MINUTE));
    assert_crossing_grants_are_used(&server, &semaphore, &semaphore);
}

#[test]
fn a_grant_of_an_own_id_that_crosses_a_timeout_is_used_or_released() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::fixed(MINUTE));
    assert_crossing_grants_are_used(&server, &semaphore, &semaphore.clone().id("me"));
}

fn assert_crossing_grants_are_used(server: &Server, first: &Semaphore, second: &Semaphore) {
    let mut raw = Raw::new(server, 1);
    let (mut used, mut timed_out, mut unknown) = (0, 0, 0);
    let release_after = Duration::from_millis(4);
    // The timeout gets shorter after a used permit and longer after a timeout. So release and timeout cross
    // on any machine.
    let mut timeout = Duration::from_millis(5);
    for round in 0..200 {
        let mut is_known = true;
        let holder = first.try_acquire().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(release_after);
                holder.release().unwrap();
            });
            match second.acquire_timeout(timeout) {
                Ok(permit) => {
                    used += 1;
                    timeout = timeout * 9 / 10;
                    permit.release().unwrap();
                }
                Err(AcquireError::TimedOut(_)) => {
                    timed_out += 1;
                    timeout = timeout * 10 / 9;
                }
                // A thread without processor time for 30 ms gets this error. The outcome of its last call is
                // released later.
                Err(AcquireError::Unknown(_)) => (is_known, unknown) = (false, unknown + 1),
                Err(other) => panic!("{other}"),
            }
        });
        let state = eventually("the permit is free again", || {
            let state = raw.inspect();
            (state.in_use == 0 && (is_known || state.waiter_count == 0)).then_some(state)
        });
        assert_eq!(state.waiter_count, 0, "round {round}");
    }
    assert!(used > 0 && timed_out > 0, "{used} used, {timed_out} timed out: no grant crossed a timeout");
    assert!(unknown <= 10, "{unknown} of 200 outcomes are unknown");
}

// An async gate has one connection: a message does not arrive after the reply to a later call.
#[test]
fn a_grant_of_an_own_id_is_used_although_its_message_arrives_after_the_timeout() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(MINUTE)).id("me");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(Duration::from_secs(2)));
        await_waiters(&mut raw, 1);
        eventually("both replies have arrived: queued and cancelled", || {
            (proxy.replies_to_scripts() == 2).then_some(())
        });
        proxy.delay_replies([Duration::from_millis(2_300)]);
        raw.assert_released("holder");
        let permit = waiting.join().unwrap().unwrap();
        assert!(raw.holds("me"));
        permit.release().unwrap();
    });
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn a_strict_wait_acquires_nothing_under_a_limit_changed_meanwhile() {
    let server = Server::any();
    let gate = server.gate();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    let strict = gate.semaphore("raw", 1).strict();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| strict.acquire_timeout(MINUTE));
        await_waiters(&mut raw, 1);
        raw.resize(2, None);
        let outcome = waiter.join().unwrap();
        assert!(matches!(outcome, Err(AcquireError::LimitMismatch(_))), "{outcome:?}");
    });
    assert_eq!(raw.in_use(), 1);
}

#[test]
fn revoking_a_place_in_line_ends_the_wait_at_once_and_delays_no_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 2).lease(Lease::fixed(MINUTE));
    let holder = semaphore.try_acquire().unwrap();
    std::thread::scope(|scope| {
        // It requests both permits, so the waiters behind it wait although one permit is free.
        let waiting = scope.spawn(|| {
            let both = semaphore.clone().id("wants-both");
            let outcome = both.acquire_many_timeout(2, MINUTE);
            (outcome, Instant::now())
        });
        await_waiters(&mut raw, 1);
        let behind = scope.spawn(|| semaphore.acquire_timeout(MINUTE));
        await_waiters(&mut raw, 2);
        let revoked = Instant::now();
        assert_eq!(semaphore.revoke("wants-both").unwrap(), Revoked::Waited);
        drop(behind.join().unwrap().expect("one permit was free all the time"));
        let (outcome, ended) = waiting.join().unwrap();
        let Err(AcquireError::Revoked(place)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(place.id, "wants-both");
        assert!(ended.duration_since(revoked) < Duration::from_secs(2));
    });
    assert_eq!(raw.inspect().waiter_count, 0);
    holder.release().unwrap();
}
