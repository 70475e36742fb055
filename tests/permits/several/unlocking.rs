//! Promise: several mutexes are released together or one by one. In spite of failures each of them is
//! released in the end.

use super::{HELMET, SHIELD, SOON, SWORD, assert_free, raw};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually};

use luagate::errors::{AcquireError, CallError, PermitError};
use luagate::{Gate, Lease, Released};
use redis::Commands;
use std::time::{Duration, Instant};

#[test]
fn unlocking_grants_each_to_its_waiter() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes(["a", "b"]).acquire_timeout(SOON).unwrap();
    std::thread::scope(|scope| {
        let (one, other) = (gate.mutex("a"), gate.mutex("b"));
        let waiting = [
            scope.spawn(move || one.lock().map(|guard| guard.release().unwrap())),
            scope.spawn(move || other.lock().map(|guard| guard.release().unwrap())),
        ];
        for name in ["a", "b"] {
            eventually("a waiter is in line", || {
                (gate.mutex(name).inspect().unwrap().waiter_count == 1).then_some(())
            });
        }
        drop(guard);
        for thread in waiting {
            assert!(matches!(thread.join().unwrap(), Ok::<_, AcquireError>(Released::Released)));
        }
    });
}

#[test]
fn each_mutex_can_be_unlocked_alone() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes(["b", "a"]).acquire_timeout(SOON).unwrap();
    guard.refresh().unwrap();
    let mut guards = guard.into_permits();
    guards.pop().unwrap().release().unwrap();
    assert_free(&gate, &["a"]);
    assert_eq!(gate.mutex("b").inspect().unwrap().in_use, 1);
    drop(guards);
    assert_free(&gate, &["b"]);
}

#[test]
fn dropping_many_takes_little_time() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).read_timeout(6 * SOON).open().unwrap();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    let mutexes = gate.mutexes(&names).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(60))));
    let guard = mutexes.try_acquire().unwrap();
    server.pause();
    let begun = Instant::now();
    drop(guard);
    let took = begun.elapsed();
    server.resume();
    assert!(took < SOON, "{took:?}: it waited for the server");
    let _ = eventually("all are free", || mutexes.try_acquire().ok());
}

#[test]
fn a_connection_with_unread_replies_is_not_used_again() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).open().unwrap();
    let other = gate.mutex("other").lock().unwrap();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    let guard = gate.mutexes(&names).try_acquire().unwrap();
    server.pause();
    drop(guard); // its 64 replies arrive after the client has given up waiting
    server.resume();
    let direct = server.gate();
    for name in &names {
        eventually("the mutex is free", || direct.mutex(name).try_lock().ok()).release().unwrap();
    }
    for _ in 0..20 {
        gate.mutex("one").try_lock().unwrap().release().unwrap();
    }
    assert_eq!(other.release().unwrap(), Released::Released);
}

#[test]
fn an_adopt_takes_over_one_of_several_pending_releases_and_the_others_follow() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .read_timeout(Duration::from_millis(50))
        .open()
        .unwrap();
    let shield = server.gate().mutex(SHIELD); // with enough time for a reply
    let both = gate.mutexes([SWORD, SHIELD]).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(60))));
    let guard = both.try_acquire().unwrap();
    let id = guard.get(SWORD).unwrap().id().to_owned();
    server.pause();
    drop(guard);
    // The adopt calls also happen between two attempts of the background.
    for _ in 0..20 {
        gate.mutex(SWORD).adopt(&id).unwrap_err();
    }
    server.resume();
    eventually("the other is released", || (shield.inspect().unwrap().in_use == 0).then_some(()));
}

#[test]
fn a_mutex_gone_at_the_first_unlock_attempt_is_reported_by_the_second() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_acquire().unwrap();
    gate.mutex(SWORD).revoke(guard.get(SWORD).unwrap().id()).unwrap();
    let put_back = overwrite(&server, SHIELD);
    let error = guard.release().unwrap_err();
    put_back();
    assert_eq!(error.into_permit().release().unwrap(), Released::Gone);
}

#[test]
fn an_unconfirmed_unlock_can_be_retried() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let both = gate.mutexes([SWORD, SHIELD]);
    let guard = both.try_acquire().unwrap();
    proxy.lose_replies(2);
    let error = guard.release().unwrap_err();
    assert!(matches!(error.error(), CallError::Unknown(_)), "{error}");
    error.into_permit().release().unwrap();
    assert_free(&gate, &[SWORD, SHIELD]);
}

/// Overwrites the keys of this mutex, so that releasing it fails until they are restored.
fn overwrite(server: &Server, name: &str) -> Box<dyn FnOnce()> {
    let mut raw = raw(server, name);
    let [_, holders, _] = raw.key_names();
    let aside = format!("{holders}:aside");
    let _: () = raw.con.rename(&holders, &aside).unwrap();
    let _: () = raw.con.set(&holders, "overwritten").unwrap();
    Box::new(move || raw.con.rename(&aside, &holders).unwrap())
}

#[test]
fn a_mutex_that_cannot_be_released_with_the_others_is_released_later() {
    let (mut server, proxy, gate) = own!(Proxy::with_gate());
    let names = [SWORD, SHIELD, HELMET];
    let all = gate.mutexes(names).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(600))));
    let direct = server.gate();
    for in_the_way in names {
        for is_cut in [false, true] {
            let guard = all.try_acquire().unwrap();
            let put_back = overwrite(&server, in_the_way);
            // The background must release all three, with the connection or without it.
            if is_cut {
                proxy.lose_replies(2);
                drop(guard);
                proxy.lose_replies(0); // in case the drop had no time for both calls
            } else {
                server.pause();
                drop(guard);
                server.resume();
            }
            for name in names.iter().filter(|name| **name != in_the_way) {
                eventually("the others are free", || {
                    (direct.mutex(name).inspect().unwrap().in_use == 0).then_some(())
                });
            }
            put_back();
            eventually("it is free", || {
                (direct.mutex(in_the_way).inspect().unwrap().in_use == 0).then_some(())
            });
        }
    }
}

#[test]
fn a_guard_reports_the_state_of_all_mutexes() {
    let server = Server::any();
    let gate = server.gate();
    let names = ["a", "b", "c"];
    let (long, short) = (Duration::from_secs(600), Duration::from_secs(60));
    for lost in names {
        let guard =
            gate.mutexes(names).with(|lock| lock.lease(Lease::fixed(long))).acquire_timeout(SOON).unwrap();
        assert!(guard.remaining().unwrap() > short && !guard.is_lost());
        let one = guard.get(lost).unwrap();
        one.refresh_for(short).unwrap();
        let left = guard.remaining().unwrap();
        assert!(left <= short && !left.is_zero(), "{lost}: {left:?}");
        gate.mutex(lost).revoke(one.id()).unwrap();
        assert!(matches!(guard.refresh(), Err(PermitError::Lost(_))));
        assert!(guard.is_lost(), "{lost}");
        assert_eq!(guard.remaining(), Some(Duration::ZERO), "{lost}");
        assert_eq!(guard.release().unwrap(), Released::Gone);
    }
}
