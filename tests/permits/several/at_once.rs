//! Promise: one script call of `try_acquire` grants permits of all semaphores or of none, and names the one
//! that did not grant.

use super::{HELMET, SHIELD, SOON, SWORD, ask, assert_free, mutexes, raw};
use crate::forked::in_child;
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{self, Server, eventually};

use luagate::errors::{AcquireError, CallError, FailureKind, TryAcquireError};
use luagate::scripts::Keys;
use luagate::scripts::semaphore;
use luagate::{Gate, Lease, Released, Several};
use redis::Commands;
use std::time::Duration;

#[test]
fn one_script_call_acquires_all() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    drop(gate.mutexes(&names).try_acquire().unwrap()); // from here on the server has the script loaded
    let mut con = server.connection();
    support::reset_counts(&mut con);
    let guard = gate.mutexes(&names).try_acquire().unwrap();
    assert_eq!(support::calls_in_scripts(&mut con).1, 1);
    for (name, held) in guard.iter() {
        let seen = gate.mutex(name).inspect().unwrap();
        assert_eq!(seen.holders[0].id, held.id());
        assert_eq!(seen.holders[0].fence, held.fence());
    }
    assert_eq!(guard.iter().count(), 64);
    assert_eq!(guard.release().unwrap(), Released::Released);
    for name in &names {
        assert_free(&gate, &[name]);
    }
}

#[test]
fn a_denial_names_the_first_blocking_mutex_and_nothing_is_held() {
    let server = Server::any();
    let gate = server.gate();
    let all = gate.mutexes([SWORD, SHIELD, HELMET]);
    let shield = gate.mutex(SHIELD).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(60))));
    let held = shield.lock().unwrap();
    let Err(TryAcquireError::Denied(blocked)) = all.try_acquire() else { panic!() };
    assert_eq!(blocked.name, SHIELD);
    let again = blocked.next_expiry.unwrap();
    assert!((Duration::from_secs(55)..=Duration::from_secs(60)).contains(&again), "{again:?}");
    assert!(blocked.to_string().starts_with("{trade}:shield: 1 of 1 permits"), "{blocked}");
    assert_free(&gate, &[SWORD, HELMET]);
    held.release().unwrap();
    all.try_acquire().unwrap().release().unwrap();
}

#[test]
fn invalid_sets_are_refused_and_change_nothing() {
    let server = Server::any();
    let gate = server.gate();
    let many: Vec<String> = (0..65).map(|n| format!("{{trade}}:{n}")).collect();
    let cases: [(Vec<&str>, &str); 5] = [
        (vec![], "1 to 64"),
        (many.iter().map(String::as_str).collect(), "1 to 64"),
        (vec![SWORD, SHIELD, SWORD], "twice"),
        (vec![SWORD, "{other}:shield"], "one group"),
        (vec![SWORD, "a b"], "white space"),
    ];
    for (names, expected) in cases {
        let Err(TryAcquireError::Invalid(invalid)) = gate.mutexes(&names).try_acquire() else {
            panic!("{names:?}")
        };
        assert!(invalid.to_string().contains(expected), "{invalid}");
        if expected == "one group" {
            continue; // `acquire_timeout` accepts them
        }
        let Err(AcquireError::Invalid(invalid)) = gate.mutexes(&names).acquire_timeout(SOON) else {
            panic!("{names:?}")
        };
        assert!(invalid.to_string().contains(expected), "{invalid}");
    }
    assert_eq!(server.all_keys(), Vec::<String>::new());
}

#[test]
fn a_call_with_a_lost_reply_acquires_nothing_twice() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let both = gate.mutexes([SWORD, SHIELD]);
    both.try_acquire().unwrap().release().unwrap();
    proxy.lose_replies(1);
    let guard = both.try_acquire().unwrap();
    assert!(proxy.is_done());
    assert_eq!(raw(&server, SWORD).in_use(), 1);
    assert_eq!(guard.release().unwrap(), Released::Released);
    // With both replies lost the outcome is unknown. The mutexes are released nevertheless.
    proxy.lose_replies(2);
    assert!(matches!(both.try_acquire(), Err(TryAcquireError::Unknown(_))));
    let direct = server.gate();
    let _ = eventually("both are free", || direct.mutexes([SWORD, SHIELD]).try_acquire().ok());
}

/// Two mutexes. The lease of the first ends soon, the lease of the second does not.
fn short_and_long(gate: &Gate) -> Several {
    let short = gate.mutex(SWORD).with(|lock| lock.lease(Lease::fixed(Duration::from_millis(300))));
    let long = gate.mutex(SHIELD).with(|lock| lock.lease(Lease::fixed(Duration::from_secs(60))));
    gate.several([short.to_lock(), long.to_lock()])
}

#[test]
fn a_call_that_arrives_late_takes_no_permit_away_from_its_caller() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let both = short_and_long(&gate);
    both.try_acquire().unwrap().release().unwrap();
    proxy.overtake_call();
    let held = both.try_acquire().unwrap(); // by the repeated call
    let direct = server.gate();
    let sword = direct.mutex(SWORD).try_lock_for(SOON).unwrap(); // after the short lease
    let mut con = server.connection();
    support::reset_counts(&mut con);
    proxy.let_go();
    eventually("the late call has run", || (support::calls_in_scripts(&mut con).1 > 0).then_some(()));
    let long = held.get(SHIELD).unwrap();
    let seen = gate.mutex(SHIELD).inspect().unwrap();
    assert!(!long.is_lost() && seen.holders.iter().any(|holder| holder.fence == long.fence()), "{seen}");
    sword.release().unwrap();
}

#[test]
fn a_denied_call_leaves_nothing_of_its_first_run() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let both = short_and_long(&gate);
    both.try_acquire().unwrap().release().unwrap();
    let direct = server.gate();
    let sword = std::thread::scope(|scope| {
        proxy.lose_replies(1);
        proxy.delay_calls([Duration::ZERO, Duration::from_secs(1)]); // it is repeated after the short lease
        let denied = scope.spawn(|| both.try_acquire());
        eventually("the first run was granted", || (raw(&server, SHIELD).in_use() == 1).then_some(()));
        let sword = direct.mutex(SWORD).try_lock_for(SOON).unwrap();
        let denied = denied.join().unwrap();
        assert!(matches!(denied, Err(TryAcquireError::Denied(_))), "{denied:?}");
        sword
    });
    drop(direct.mutex(SHIELD).try_lock_for(SOON).unwrap());
    sword.release().unwrap();
}

#[test]
fn several_mutexes_work_on_a_cluster() {
    let server = own!(Server::cluster_node());
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_acquire().unwrap();
    assert_eq!(guard.release().unwrap(), Released::Released);
    // For a wait in line their names need not share a slot.
    let guard = gate.mutexes(["sword", "shield"]).acquire_timeout(SOON).unwrap();
    assert_eq!(guard.release().unwrap(), Released::Released);
}

#[test]
fn permanent_locks_are_held_until_unlocked() {
    let server = Server::any();
    let gate = server.gate();
    let both = gate.mutexes([SWORD, SHIELD]).with(|lock| lock.lease(Lease::PERMANENT));
    let held_for_ever = |guard: luagate::SeveralPermits| {
        assert_eq!(guard.remaining(), None);
        let seen = gate.mutex(SWORD).inspect().unwrap();
        assert_eq!(seen.holders[0].remaining, None);
        drop(guard);
        assert_free(&gate, &[SWORD, SHIELD]);
    };
    held_for_ever(both.try_acquire().unwrap());
    held_for_ever(both.acquire_timeout(SOON).unwrap());
}

#[cfg(unix)]
#[test]
fn a_forked_child_locks_and_unlocks_nothing() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_acquire().unwrap();
    let others = gate.mutexes(["{trade}:helmet", "{trade}:boots"]);
    let mut guard = Some(guard);
    let refused = in_child(|| {
        let refused = guard.as_ref().is_some_and(|guard| guard.refresh().is_err())
            && others.try_acquire().is_err()
            && others.acquire_timeout(SOON).is_err();
        drop(guard.take());
        refused
    });
    assert_eq!(refused.as_deref(), Some("true"));
    assert_free(&gate, &["{trade}:helmet", "{trade}:boots"]);
    assert_eq!(guard.unwrap().release().unwrap(), Released::Released);
}

#[test]
fn the_function_of_the_script_refuses_invalid_arguments() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let elsewhere = Keys::mutex(&server.prefix, "{other}:sword").unwrap();
    let (one, other) = (sword.keys.clone(), shield.keys.clone());
    let many: Vec<Keys> =
        (0..65).map(|n| Keys::mutex(&server.prefix, &format!("{{trade}}:{n}")).unwrap()).collect();
    let both = vec![one.clone(), other.clone()];
    let cases: [(Vec<Keys>, &str, u64, &str); 6] = [
        (vec![], "id", 1, "keys"),
        (many, "id", 1, "keys"),
        (vec![one.clone(), one.clone()], "id", 1, "twice"),
        (vec![one.clone(), elsewhere], "id", 1, "hash tag"),
        (both.clone(), "i d", 1, "id"),
        (both, "id", u64::MAX, "lease_ms"),
    ];
    for (keys, id, lease_ms, expected) in cases {
        match semaphore::try_acquire_several(&mut sword.con, id, &mutexes(&keys, lease_ms)) {
            Err(CallError::Invalid(invalid)) => {
                assert!(invalid.to_string().contains(expected), "{invalid}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(server.all_keys(), Vec::<String>::new());
    let _: () = shield.con.set(other.list()[1], "overwritten").unwrap();
    let error = ask(&mut [&mut sword, &mut shield], "id", 1_000).unwrap_err();
    assert!(
        matches!(&error, CallError::Failed(failure) if failure.kind() == FailureKind::WrongType),
        "{error}"
    );
    assert_eq!(server.all_keys(), [other.list()[1]]);
}
