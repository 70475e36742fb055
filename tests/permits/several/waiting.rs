//! Promise: `acquire_timeout` waits for all semaphores until its timeout. Meanwhile it keeps the permits that
//! it has been granted. If it fails, it holds nothing.

use super::{SOON, assert_free};
use crate::own;
use crate::support::{Server, eventually, timed_out};

use luagate::errors::AcquireError;
use luagate::{Cancel, Gate, Lease};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn two_thousand_overlapping_attempts_all_succeed() {
    let server = Server::any();
    let gates = [server.gate(), server.gate()];
    let names: Vec<String> = (0..12).map(|n| format!("item:{n}")).collect();
    let owners: Vec<AtomicU32> = names.iter().map(|_| AtomicU32::new(0)).collect();
    let attempts = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 1..=16_u32 {
            let (names, owners, attempts) = (&names, &owners, &attempts);
            let gate = &gates[thread as usize % 2];
            scope.spawn(move || {
                // A small pseudo-random generator: the same picks in every run.
                let mut seed = u64::from(thread);
                let mut random = |below: usize| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) as usize % below
                };
                while attempts.fetch_add(1, Ordering::SeqCst) < 2_000 {
                    let mut picks: Vec<usize> = (0..names.len()).collect();
                    let count = 2 + random(2);
                    for place in 0..count {
                        let other = place + random(picks.len() - place);
                        picks.swap(place, other);
                    }
                    picks.truncate(count);
                    let mutexes = gate.mutexes(picks.iter().map(|pick| &names[*pick]));
                    let guard = mutexes.acquire_timeout(Duration::from_secs(60)).unwrap();
                    for pick in &picks {
                        assert_eq!(owners[*pick].swap(thread, Ordering::SeqCst), 0);
                    }
                    for pick in &picks {
                        owners[*pick].store(0, Ordering::SeqCst);
                    }
                    guard.release().unwrap();
                }
            });
        }
    });
    for name in &names {
        assert_free(&gates[0], &[name]);
    }
}

#[test]
fn a_timed_out_wait_ends_in_time_and_holds_nothing() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    let begun = Instant::now();
    let timeout = Duration::from_millis(200);
    let in_the_way = timed_out(|| server.gate().mutexes(["c", "b", "a"]).acquire_timeout(timeout));
    let took = begun.elapsed();
    assert_eq!(in_the_way.name, "b");
    assert!(took >= timeout, "{took:?}");
    assert!(took < SOON, "{took:?}");
    assert_free(&gate, &["a", "c"]);
    held.release().unwrap();
    assert_free(&gate, &["b"]);
}

#[test]
fn no_further_mutex_is_requested_after_the_timeout() {
    // 64 round trips take longer than the timeout, although no mutex is held.
    let server = Server::any();
    let gate = server.gate();
    let names: Vec<String> = (0..64).map(|n| format!("item:{n}")).collect();
    let timeout = Duration::from_millis(1);
    let in_the_way = timed_out(|| gate.mutexes(&names).acquire_timeout(timeout));
    assert_eq!(in_the_way.limit, 0);
    assert!(
        in_the_way.to_string().ends_with("the timeout ended before this semaphore was asked"),
        "{in_the_way}"
    );
    for name in &names {
        assert_free(&gate, &[name]);
    }
}

#[test]
fn a_wait_ends_in_time_also_when_the_server_stalls() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(6 * SOON).open().unwrap();
    let held = server.gate().mutex("z").lock().unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("item:{n}")).collect();
    let all = gate.mutexes(names.iter().map(String::as_str).chain(["z"]));
    let timeout = Duration::from_secs(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let begun = Instant::now();
            let error = all.acquire_timeout(timeout).unwrap_err();
            (begun.elapsed(), error)
        });
        let waits = || (gate.mutex("z").inspect().unwrap().waiter_count == 1).then_some(());
        eventually("the wait is for the last mutex", waits);
        eventually("the wait has its reply", waits); // before the server reads this call
        server.pause();
        let (took, error) = waiting.join().unwrap();
        server.resume();
        assert!(matches!(error, AcquireError::TimedOut(_)), "{error}");
        assert!(took < SOON, "{took:?}: it waited for the reply");
    });
    held.release().unwrap();
    for name in &names {
        eventually("the mutex is released", || gate.mutex(name).try_lock().ok()).release().unwrap();
    }
}

#[test]
fn permanent_locks_have_an_end_until_all_are_granted() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            gate.mutexes(["a", "b"]).with(|lock| lock.lease(Lease::PERMANENT)).acquire_timeout(SOON)
        });
        eventually("the second has a waiter", || {
            (gate.mutex("b").inspect().unwrap().waiter_count == 1).then_some(())
        });
        let seen = gate.mutex("a").inspect().unwrap();
        assert!(seen.holders[0].remaining.is_some(), "this process may end before all are granted");
        held.release().unwrap();
        let guard = waiting.join().unwrap().unwrap();
        assert_eq!(guard.remaining(), None);
        for name in ["a", "b"] {
            let seen = gate.mutex(name).inspect().unwrap();
            assert_eq!(seen.holders[0].remaining, None, "{name}");
        }
    });
}

#[test]
fn a_loss_while_waiting_is_reported_and_nothing_stays_held() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.mutexes(["a", "b"]).acquire_timeout(SOON));
        let first = eventually("the first is locked", || {
            let seen = gate.mutex("a").inspect().unwrap();
            seen.holders.first().map(|holder| holder.id.clone())
        });
        eventually("the second has a waiter", || {
            (gate.mutex("b").inspect().unwrap().waiter_count == 1).then_some(())
        });
        gate.mutex("a").revoke(&first).unwrap();
        held.release().unwrap();
        let Err(AcquireError::Lost(lost)) = waiting.join().unwrap() else { panic!() };
        assert_eq!(lost.id, first);
    });
    assert_free(&gate, &["a", "b"]);
}

#[test]
fn a_cancelled_wait_leaves_nothing_held() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let both = gate.mutexes(["a", "b"]).with(|lock| lock.cancelled_by(&cancel));
        let waiting = scope.spawn(move || both.acquire_timeout(SOON));
        eventually("the second has a waiter", || {
            (gate.mutex("b").inspect().unwrap().waiter_count == 1).then_some(())
        });
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(AcquireError::Cancelled(_))));
    });
    held.release().unwrap();
    assert_free(&gate, &["a", "b"]);
}
