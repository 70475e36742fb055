//! Promise: several mutexes are released together or one by one, and each of them at last, whatever fails.

use super::{HELMET, SHIELD, SOON, SWORD, assert_free, raw};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually};

use luagate::errors::{AcquireError, CallError, RefreshError};
use luagate::{Gate, Released};
use redis::Commands;
use std::time::{Duration, Instant};

#[test]
fn unlocking_hands_each_to_whoever_waits_for_it() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes(["a", "b"]).acquire_timeout(SOON).unwrap();
    std::thread::scope(|scope| {
        let (one, other) = (gate.mutex("a"), gate.mutex("b"));
        let waiting = [
            scope.spawn(move || one.lock().map(|guard| guard.unlock().unwrap())),
            scope.spawn(move || other.lock().map(|guard| guard.unlock().unwrap())),
        ];
        for name in ["a", "b"] {
            eventually("it is waited for", || (gate.mutex(name).inspect().unwrap().waiter_count == 1).then_some(()));
        }
        drop(guard);
        for thread in waiting {
            assert!(matches!(thread.join().unwrap(), Ok::<_, AcquireError>(Released::Released)));
        }
    });
}

#[test]
fn each_may_be_unlocked_alone() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes(["b", "a"]).acquire_timeout(SOON).unwrap();
    guard.refresh().unwrap();
    let mut guards = guard.into_permits();
    guards.pop().unwrap().release().unwrap();
    assert_free(&gate, &["b"]);
    assert_eq!(gate.mutex("a").inspect().unwrap().in_use, 1);
    drop(guards);
    assert_free(&gate, &["a"]);
}

#[test]
fn dropping_takes_little_time_however_many() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    let mutexes = gate.mutexes(&names).lease(Duration::from_secs(60));
    let guard = mutexes.try_acquire().unwrap();
    server.pause();
    let begun = Instant::now();
    drop(guard);
    let took = begun.elapsed();
    server.resume();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let _ = eventually("all are free", || mutexes.try_acquire().ok());
}

#[test]
fn a_connection_that_carried_several_calls_in_vain_is_not_used_again() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).connections(1).open().unwrap();
    let other = gate.mutex("other").lock().unwrap();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    let guard = gate.mutexes(&names).try_acquire().unwrap();
    server.pause();
    drop(guard); // its 64 replies come when nobody waits for them any more
    server.resume();
    let direct = server.gate();
    for name in &names {
        eventually("it is free", || direct.mutex(name).try_lock().ok()).unlock().unwrap();
    }
    for _ in 0..20 {
        gate.mutex("one").try_lock().unwrap().unlock().unwrap();
    }
    assert_eq!(other.unlock().unwrap(), Released::Released);
}

#[test]
fn one_of_several_that_are_still_owed_is_taken_over_and_the_others_are_given_back() {
    let mut server = own!(Server::private(&[]));
    let gate =
        Gate::builder(&server.url).prefix(&server.prefix).read_timeout(Duration::from_millis(50)).open().unwrap();
    let shield = server.gate().mutex(SHIELD); // has time for an answer
    let both = gate.mutexes([SWORD, SHIELD]).lease(Duration::from_secs(60));
    let guard = both.try_acquire().unwrap();
    let id = guard.get(SWORD).unwrap().id().to_owned();
    server.pause();
    drop(guard);
    // Asked for again and again, it is asked for between two attempts of the background too.
    for _ in 0..20 {
        gate.mutex(SWORD).adopt(&id).unwrap_err();
    }
    server.resume();
    eventually("the other is given back", || (shield.inspect().unwrap().in_use == 0).then_some(()));
}

#[test]
fn what_was_gone_at_a_first_attempt_is_told_by_the_second() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_acquire().unwrap();
    gate.mutex(SWORD).revoke(guard.get(SWORD).unwrap().id()).unwrap();
    let put_back = overwrite(&server, SHIELD);
    let error = guard.release().unwrap_err();
    put_back();
    assert_eq!(error.into_guard().release().unwrap(), Released::Gone);
}

#[test]
fn an_unlock_that_was_not_confirmed_may_be_tried_again() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let both = gate.mutexes([SWORD, SHIELD]);
    let guard = both.try_acquire().unwrap();
    proxy.lose_replies(2);
    let error = guard.release().unwrap_err();
    assert!(matches!(error.error(), CallError::Unknown(_)), "{error}");
    error.into_guard().release().unwrap();
    assert_free(&gate, &[SWORD, SHIELD]);
}

/// Overwrites what is held by this name, so that releasing it fails, until that is put back.
fn overwrite(server: &Server, name: &str) -> Box<dyn FnOnce()> {
    let mut raw = raw(server, name);
    let [_, holders, _] = raw.key_names();
    let aside = format!("{holders}:aside");
    let _: () = raw.con.rename(&holders, &aside).unwrap();
    let _: () = raw.con.set(&holders, "overwritten").unwrap();
    Box::new(move || raw.con.rename(&aside, &holders).unwrap())
}

#[test]
fn one_that_cannot_be_given_back_with_the_others_is_given_back_later() {
    let (mut server, proxy, gate) = own!(Proxy::with_gate());
    let names = [SWORD, SHIELD, HELMET];
    let all = gate.mutexes(names).lease(Duration::from_secs(600));
    let direct = server.gate();
    for in_the_way in names {
        for is_cut in [false, true] {
            let guard = all.try_acquire().unwrap();
            let put_back = overwrite(&server, in_the_way);
            // The background is left with all three, and with the connection or without it.
            if is_cut {
                proxy.lose_replies(2);
                drop(guard);
                proxy.lose_replies(0); // where the drop had no time for both
            } else {
                server.pause();
                drop(guard);
                server.resume();
            }
            for name in names.iter().filter(|name| **name != in_the_way) {
                eventually("the others are free", || (direct.mutex(name).inspect().unwrap().in_use == 0).then_some(()));
            }
            put_back();
            eventually("it is free too", || (direct.mutex(in_the_way).inspect().unwrap().in_use == 0).then_some(()));
        }
    }
}

#[test]
fn a_guard_speaks_for_all_and_not_for_the_first_alone() {
    let server = Server::any();
    let gate = server.gate();
    let names = ["a", "b", "c"];
    let (long, short) = (Duration::from_secs(600), Duration::from_secs(60));
    for lost in names {
        let guard = gate.mutexes(names).lease(long).acquire_timeout(SOON).unwrap();
        assert!(guard.remaining().unwrap() > short && !guard.is_lost());
        let one = guard.get(lost).unwrap();
        one.refresh_for(short).unwrap();
        let left = guard.remaining().unwrap();
        assert!(left <= short && !left.is_zero(), "{lost}: {left:?}");
        gate.mutex(lost).revoke(one.id()).unwrap();
        assert!(matches!(guard.refresh(), Err(RefreshError::Lost(_))));
        assert!(guard.is_lost(), "{lost}");
        assert_eq!(guard.remaining(), Some(Duration::ZERO), "{lost}");
        assert_eq!(guard.release().unwrap(), Released::Gone);
    }
}
