//! Promise: several mutexes are locked together or not at all; nobody who waits for one of them is overtaken; nobody waits
//! for ever.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::{Listener, Raw};
use crate::support::{self, Server, eventually};

use luagate::errors::{
    AcquireError, CallError, FailureKind, LockAllError, RefreshError, TryAcquireError, TryLockAllError,
};
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{self, Answer, Ask, ReleaseAnswer, TryLockAllAnswer};
use luagate::{Cancel, Gate, Released};
use redis::Commands;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const SWORD: &str = "{trade}:sword";
const SHIELD: &str = "{trade}:shield";
const HELMET: &str = "{trade}:helmet";

/// One mutex through the scripts.
fn raw(server: &Server, name: &str) -> Raw {
    Raw { con: server.connection(), keys: Keys::mutex(&server.prefix, name).unwrap(), limit: 1 }
}

/// Asks by the script for mutexes of these keys.
fn ask(raws: &mut [&mut Raw], id: &str, lease_ms: u64) -> Result<TryLockAllAnswer, CallError> {
    let keys: Vec<Keys> = raws.iter().map(|raw| raw.keys.clone()).collect();
    let keys: Vec<&Keys> = keys.iter().collect();
    semaphore::try_lock_all(&mut raws[0].con, &keys, id, lease_ms)
}

#[track_caller]
fn assert_in_the_way(answer: Result<TryLockAllAnswer, CallError>, expected: usize) {
    match answer {
        Ok(TryLockAllAnswer::Denied { place, .. }) => assert_eq!(place, expected),
        other => panic!("{other:?}"),
    }
}

/// None of these is held, and nobody waits for one.
fn assert_free(gate: &Gate, names: &[&str]) {
    for name in names {
        let seen = gate.mutex(name).inspect().unwrap();
        assert_eq!((seen.in_use, seen.waiter_count), (0, 0), "{name}: {seen}");
    }
}

#[test]
fn all_at_once_by_one_script() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    drop(gate.mutexes(&names).try_lock_all().unwrap()); // from here on the server knows the script
    let mut con = server.connection();
    support::reset_counts(&mut con);
    let guard = gate.mutexes(&names).try_lock_all().unwrap();
    assert_eq!(support::calls_in_scripts(&mut con).1, 1);
    for (name, held) in guard.iter() {
        let seen = gate.mutex(name).inspect().unwrap();
        assert_eq!(seen.holders[0].id, held.id());
        assert_eq!(seen.holders[0].fence, held.fence());
    }
    assert_eq!(guard.iter().count(), 64);
    assert_eq!(guard.unlock().unwrap(), Released::Released);
    for name in &names {
        assert_free(&gate, &[name]);
    }
}

#[test]
fn who_is_in_the_way_is_told_and_nothing_is_held() {
    let server = Server::any();
    let gate = server.gate();
    let all = gate.mutexes([SWORD, SHIELD, HELMET]);
    let shield = gate.mutex(SHIELD).lease(Duration::from_secs(60));
    let held = shield.lock().unwrap();
    let Err(TryLockAllError::InTheWay(in_the_way)) = all.try_lock_all() else { panic!() };
    assert_eq!(in_the_way.name, SHIELD);
    let again = in_the_way.denied.as_ref().unwrap().next_expiry.unwrap();
    assert!((Duration::from_secs(55)..=Duration::from_secs(60)).contains(&again), "{again:?}");
    assert!(in_the_way.to_string().starts_with("{trade}:shield is in the way"), "{in_the_way}");
    assert_free(&gate, &[SWORD, HELMET]);
    held.unlock().unwrap();
    all.try_lock_all().unwrap().unlock().unwrap();
}

#[test]
fn what_cannot_be_is_told_and_changes_nothing() {
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
        let Err(TryLockAllError::Invalid(invalid)) = gate.mutexes(&names).try_lock_all() else { panic!("{names:?}") };
        assert!(invalid.to_string().contains(expected), "{invalid}");
        if expected == "one group" {
            continue; // `lock_all` takes them
        }
        let Err(LockAllError::Invalid(invalid)) = gate.mutexes(&names).lock_all(SOON) else { panic!("{names:?}") };
        assert!(invalid.to_string().contains(expected), "{invalid}");
    }
    assert!(matches!(gate.mutexes([SWORD]).lock_all(Duration::ZERO), Err(LockAllError::Invalid(_))));
    assert_eq!(server.all_keys(), Vec::<String>::new());
}

#[test]
fn the_script_refuses_what_cannot_be() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let elsewhere = Keys::mutex(&server.prefix, "{other}:sword").unwrap();
    let (one, other) = (sword.keys.clone(), shield.keys.clone());
    let many: Vec<Keys> = (0..65).map(|n| Keys::mutex(&server.prefix, &format!("{{trade}}:{n}")).unwrap()).collect();
    let cases: [(Vec<&Keys>, &str, u64, &str); 6] = [
        (vec![], "id", 1, "keys"),
        (many.iter().collect(), "id", 1, "keys"),
        (vec![&one, &one], "id", 1, "twice"),
        (vec![&one, &elsewhere], "id", 1, "hash tag"),
        (vec![&one, &other], "i d", 1, "id"),
        (vec![&one, &other], "id", u64::MAX, "lease_ms"),
    ];
    for (keys, id, lease_ms, expected) in cases {
        match semaphore::try_lock_all(&mut sword.con, &keys, id, lease_ms) {
            Err(CallError::Invalid(invalid)) => {
                assert!(invalid.to_string().contains(expected), "{invalid}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(server.all_keys(), Vec::<String>::new());
    let _: () = shield.con.set(other.names()[1], "overwritten").unwrap();
    let error = ask(&mut [&mut sword, &mut shield], "id", 1_000).unwrap_err();
    assert!(matches!(&error, CallError::Failed(failure) if failure.kind() == FailureKind::WrongType), "{error}");
    assert_eq!(server.all_keys(), [other.names()[1]]);
}

#[test]
fn again_with_the_same_id_grants_nothing_twice() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryLockAllAnswer::Granted(first)) = ask(both, "id", 60_000) else { panic!() };
    assert!(both[0].ttls()[..2].iter().all(|ttl| *ttl > 60_000));
    let Ok(TryLockAllAnswer::Held(again)) = ask(both, "id", 30_000) else { panic!() };
    for (first, again) in first.iter().zip(&again) {
        assert_eq!(first.fence, again.fence);
        assert_eq!(first.expires_at, again.expires_at);
    }
    assert_eq!((both[0].in_use(), both[1].in_use()), (1, 1));
}

#[test]
fn a_lost_reply_takes_nothing_twice() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let both = gate.mutexes([SWORD, SHIELD]);
    drop(both.try_lock_all().unwrap());
    proxy.lose_replies(1);
    let guard = both.try_lock_all().unwrap();
    assert!(proxy.is_done());
    assert_eq!(raw(&server, SWORD).in_use(), 1);
    assert_eq!(guard.unlock().unwrap(), Released::Released);
    // With both replies lost nobody knows; what was locked is given back all the same.
    proxy.lose_replies(2);
    assert!(matches!(both.try_lock_all(), Err(TryLockAllError::Unknown(_))));
    let direct = server.gate();
    let _ = eventually("both are free", || direct.mutexes([SWORD, SHIELD]).try_lock_all().ok());
}

#[test]
fn nobody_who_waits_for_one_of_them_is_overtaken() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    // The holder is gone, and nobody has noticed yet. The waiter has no inbox, so it has to ask.
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    sword.queue(Ask { wait_ms: 60_000, ..sword.ask("waiter") });
    sword.wait_until(gone.expires_at.unwrap());
    assert_in_the_way(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(shield.in_use(), 0);
    sword.grant(Ask { wait_ms: 60_000, ..sword.ask("waiter") });
}

#[test]
fn whoever_waits_is_served_by_the_script_that_passes_by() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let mut inbox = Listener::new(&server, "waits");
    let channel = inbox.channel.clone();
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    sword.queue(Ask { wait_ms: 60_000, inbox: &channel, ..sword.ask("waiter") });
    sword.wait_until(gone.expires_at.unwrap());
    assert_in_the_way(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(inbox.next_grant()[0], "waiter");
    assert!(sword.holds("waiter"));
}

#[test]
fn dead_waiters_are_in_nobody_s_way() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    for dead in ["a", "b", "c"] {
        sword.queue(Ask { wait_ms: 60_000, inbox: "nobody:listens", ..sword.ask(dead) });
    }
    sword.wait_until(gone.expires_at.unwrap());
    let answer = ask(&mut [&mut shield, &mut sword], "id", 60_000).unwrap();
    assert!(matches!(answer, TryLockAllAnswer::Granted(_)), "{answer:?}");
    assert_eq!(sword.inspect().waiter_count, 0);
}

#[test]
fn a_lease_that_ended_on_one_never_leaves_the_others_held() {
    let server = Server::any();
    let gate = server.gate();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    // The scripts: the id lost one of them to somebody else, and asks again.
    ask(both, "id", 60_000).unwrap();
    both[0].assert_released("id");
    let other = both[0].ask("other");
    both[0].grant(other);
    assert_in_the_way(ask(both, "id", 60_000), 0);
    assert_eq!(both[1].in_use(), 0);
    both[0].assert_released("other");
    // Lost to nobody, it has both again; the one that it still has keeps its lease.
    ask(both, "id", 60_000).unwrap();
    both[0].assert_released("id");
    let later = both[0].server_ms() + 5;
    both[0].wait_until(later);
    let answer = ask(both, "id", 60_000).unwrap();
    assert!(matches!(answer, TryLockAllAnswer::Granted(_)), "{answer:?}");
    assert!(both[0].holds("id") && both[1].holds("id"));
    both[0].assert_released("id");
    both[1].assert_released("id");
    // The guard: one of them was taken away.
    let guard = gate.mutexes([SWORD, SHIELD]).try_lock_all().unwrap();
    gate.mutex(SWORD).revoke(guard.get(SWORD).unwrap().id()).unwrap();
    assert_eq!(guard.unlock().unwrap(), Released::Gone);
    assert_free(&gate, &[SWORD, SHIELD]);
}

#[test]
fn what_is_given_back_goes_to_whoever_waits_for_it() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let mut inbox = Listener::new(&server, "waits");
    let channel = inbox.channel.clone();
    let both = &mut [&mut sword, &mut shield];
    ask(both, "id", 0).unwrap();
    let waits = Ask { wait_ms: 60_000, inbox: &channel, ..both[0].ask("waits") };
    both[0].queue(waits);
    both[1].assert_released("id");
    let other = both[1].ask("other");
    both[1].grant(other);
    assert_in_the_way(ask(both, "id", 0), 1);
    assert_eq!(inbox.next_grant()[0], "waits");
    // What was held without an end is not: the keys go with the leases that are left.
    assert!(both[0].ttls()[..2].iter().all(|ttl| *ttl > 0));
}

#[test]
fn without_an_end_by_the_script() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryLockAllAnswer::Granted(first)) = ask(both, "id", 0) else { panic!() };
    let Ok(TryLockAllAnswer::Held(again)) = ask(both, "id", 0) else { panic!() };
    for grant in first.iter().chain(&again) {
        assert_eq!(grant.expires_at, None);
    }
    assert_eq!(both[0].ttls()[..2], [-1, -1]);
}

#[test]
fn an_id_whose_leases_have_ended_begins_anew() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryLockAllAnswer::Granted(first)) = ask(both, "id", 20) else { panic!() };
    both[0].wait_until(first[1].expires_at.unwrap());
    let Ok(TryLockAllAnswer::Granted(anew)) = ask(both, "id", 10_000) else { panic!() };
    for (first, anew) in first.iter().zip(&anew) {
        assert!(anew.fence > first.fence);
        assert_eq!(anew.expires_at, Some(anew.now + 10_000));
    }
}

#[test]
fn places_in_line_are_given_up_whichever_is_in_the_way() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    for raw in [&mut sword, &mut shield] {
        raw.grant(raw.ask("holder"));
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask("id") });
    }
    assert_in_the_way(ask(&mut [&mut sword, &mut shield], "id", 60_000), 0);
    for raw in [&mut sword, &mut shield] {
        assert_eq!(raw.inspect().waiter_count, 0);
        raw.assert_released("holder");
        raw.grant(raw.ask("next"));
    }
}

#[test]
fn an_own_lease_that_ended_counts_once() {
    // More leases have ended than one script takes back, on a mutex that somebody made wider.
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    sword.resize(200, None);
    let mut end = 0;
    for n in 0..150 {
        end = sword
            .grant(Ask {
                lease_ms: 1_000 + n,
                permits: Some(if n == 149 { 3 } else { 1 }),
                ..sword.ask(&format!("h{n}"))
            })
            .expires_at
            .unwrap();
    }
    sword.wait_until(end);
    let answer = ask(&mut [&mut sword, &mut shield], "h149", 60_000).unwrap();
    assert!(matches!(answer, TryLockAllAnswer::Granted(_)), "{answer:?}");
    // Its record and its lease are one each: nothing looks lost, and the others come back.
    let all = sword.acquire(Ask { permits: Some(199), ..sword.ask("others") });
    assert!(matches!(all, Answer::Granted(..)), "{all:?}");
}

#[test]
fn with_a_key_lost_it_is_given_back_all_the_same() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    ask(both, "id", 60_000).unwrap();
    let waits = Ask { wait_ms: 60_000, ..both[0].ask("waits") };
    both[0].queue(waits);
    let [_, _, queue] = both[0].key_names();
    let _: () = both[0].con.del(queue).unwrap();
    both[1].assert_released("id");
    let other = both[1].ask("other");
    both[1].grant(other);
    assert_in_the_way(ask(both, "id", 60_000), 1);
    assert_eq!(both[0].release("id"), ReleaseAnswer::Gone);
}

#[test]
fn with_a_key_lost_nothing_is_granted_twice() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    sword.grant(Ask { lease_ms: 60_000, ..sword.ask("holder") });
    let [meta, ..] = sword.key_names();
    let _: () = sword.con.del(meta).unwrap();
    assert_in_the_way(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(shield.in_use(), 0);
    assert!(sword.ttls()[0] > 60_000, "what is written has an end");
    sword.assert_released("holder");
    let answer = ask(&mut [&mut shield, &mut sword], "id", 60_000).unwrap();
    assert!(matches!(answer, TryLockAllAnswer::Granted(_)), "{answer:?}");
}

#[test]
fn full_memory_changes_nothing() {
    let server = own!(Server::private(&[]));
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let mut con = server.connection();
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("maxmemory").arg(1).exec(&mut con).unwrap();
    let error = ask(&mut [&mut sword, &mut shield], "id", 1_000).unwrap_err();
    assert!(matches!(&error, CallError::Failed(failure) if failure.kind() == FailureKind::OutOfMemory), "{error}");
    assert_eq!(server.all_keys(), Vec::<String>::new());
}

#[test]
fn a_cluster_takes_them() {
    let server = own!(Server::cluster_node());
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_lock_all().unwrap();
    assert_eq!(guard.unlock().unwrap(), Released::Released);
    // In line their names need not share a slot.
    let guard = gate.mutexes(["sword", "shield"]).lock_all(SOON).unwrap();
    assert_eq!(guard.unlock().unwrap(), Released::Released);
}

#[test]
fn without_an_end_until_unlocked() {
    let server = Server::any();
    let gate = server.gate();
    let both = gate.mutexes([SWORD, SHIELD]).permanent();
    let held_for_ever = |guard: luagate::MutexesGuard| {
        assert_eq!(guard.remaining(), None);
        let seen = gate.mutex(SWORD).inspect().unwrap();
        assert_eq!(seen.holders[0].remaining, None);
        drop(guard);
        assert_free(&gate, &[SWORD, SHIELD]);
    };
    held_for_ever(both.try_lock_all().unwrap());
    held_for_ever(both.lock_all(SOON).unwrap());
}

#[test]
fn ten_thousand_overlapping_attempts_and_nobody_waits_for_ever() {
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
                // A small generator of our own numbers: the same picks in every run.
                let mut seed = u64::from(thread);
                let mut random = |below: usize| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) as usize % below
                };
                while attempts.fetch_add(1, Ordering::SeqCst) < 10_000 {
                    let mut picks: Vec<usize> = (0..names.len()).collect();
                    let count = 2 + random(2);
                    for place in 0..count {
                        let other = place + random(picks.len() - place);
                        picks.swap(place, other);
                    }
                    picks.truncate(count);
                    let mutexes = gate.mutexes(picks.iter().map(|pick| &names[*pick]));
                    let guard = mutexes.lock_all(Duration::from_secs(60)).unwrap();
                    for pick in &picks {
                        assert_eq!(owners[*pick].swap(thread, Ordering::SeqCst), 0);
                    }
                    for pick in &picks {
                        owners[*pick].store(0, Ordering::SeqCst);
                    }
                    guard.unlock().unwrap();
                }
            });
        }
    });
    for name in &names {
        assert_free(&gates[0], &[name]);
    }
}

#[test]
fn in_time_or_nothing_is_left() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    let begun = Instant::now();
    let timeout = Duration::from_millis(200);
    let Err(LockAllError::TimedOut(in_the_way)) = server.gate().mutexes(["c", "b", "a"]).lock_all(timeout) else {
        panic!()
    };
    let took = begun.elapsed();
    assert_eq!(in_the_way.name, "b");
    assert!(took >= timeout, "{took:?}");
    assert!(took < timeout + Duration::from_secs(1), "{took:?}");
    assert_free(&gate, &["a", "c"]);
    held.unlock().unwrap();
    assert_free(&gate, &["b"]);
}

#[test]
fn no_more_are_asked_for_once_the_time_is_over() {
    // 64 round trips take longer than this, though nobody is in the way.
    let server = Server::any();
    let gate = server.gate();
    let names: Vec<String> = (0..64).map(|n| format!("item:{n}")).collect();
    let timeout = Duration::from_millis(1);
    let Err(LockAllError::TimedOut(in_the_way)) = gate.mutexes(&names).lock_all(timeout) else { panic!() };
    assert_eq!(in_the_way.denied, None);
    assert!(in_the_way.to_string().starts_with("the time was over"), "{in_the_way}");
    for name in &names {
        assert_free(&gate, &[name]);
    }
}

#[test]
fn in_time_also_when_the_server_stalls() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let held = server.gate().mutex("z").lock().unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("item:{n}")).collect();
    let all = gate.mutexes(names.iter().map(String::as_str).chain(["z"]));
    let timeout = Duration::from_millis(300);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let begun = Instant::now();
            let error = all.lock_all(timeout).unwrap_err();
            (begun.elapsed(), error)
        });
        eventually("the last is waited for", || (gate.mutex("z").inspect().unwrap().waiter_count == 1).then_some(()));
        server.pause();
        let (took, error) = waiting.join().unwrap();
        server.resume();
        assert!(matches!(error, LockAllError::TimedOut(_)), "{error}");
        assert!(took < timeout + Duration::from_millis(200), "{took:?}");
    });
    held.unlock().unwrap();
    for name in &names {
        eventually("it is given back", || gate.mutex(name).try_lock().ok()).unlock().unwrap();
    }
}

#[test]
fn without_an_end_also_while_the_next_is_waited_for() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.mutexes(["a", "b"]).permanent().lock_all(SOON));
        eventually("the first is locked without an end", || {
            let seen = gate.mutex("a").inspect().unwrap();
            (seen.holders.first()?.remaining.is_none()).then_some(())
        });
        held.unlock().unwrap();
        let guard = waiting.join().unwrap().unwrap();
        assert_eq!(guard.remaining(), None);
        for name in ["a", "b"] {
            let seen = gate.mutex(name).inspect().unwrap();
            assert_eq!(seen.holders[0].remaining, None, "{name}");
        }
    });
}

#[test]
fn what_is_held_is_renewed_while_the_next_is_waited_for() {
    let server = Server::any();
    let gate = server.gate();
    let lease = Duration::from_millis(200);
    let held = gate.mutex("b").lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let both = gate.mutexes(["a", "b"]).lease(lease);
            let guard = both.lock_all(SOON).unwrap();
            // From here on its lease is as it was asked for: whole, and not renewed.
            assert!(guard.remaining().unwrap() > lease / 2);
            eventually("its lease ends", || guard.is_lost().then_some(()));
            guard.get("a").unwrap().fence()
        });
        let first = eventually("the first is locked", || {
            let seen = gate.mutex("a").inspect().unwrap();
            seen.holders.first().map(|holder| holder.fence)
        });
        // Nobody else gets it for five leases.
        let begun = Instant::now();
        while begun.elapsed() < lease * 5 {
            assert!(matches!(gate.mutex("a").try_lock(), Err(TryAcquireError::Denied(_))));
        }
        held.unlock().unwrap();
        assert_eq!(waiting.join().unwrap(), first);
    });
}

#[test]
fn what_was_lost_while_waiting_is_told_and_nothing_is_left() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.mutexes(["a", "b"]).lock_all(SOON));
        let first = eventually("the first is locked", || {
            let seen = gate.mutex("a").inspect().unwrap();
            seen.holders.first().map(|holder| holder.id.clone())
        });
        eventually("the second is waited for", || (gate.mutex("b").inspect().unwrap().waiter_count == 1).then_some(()));
        gate.mutex("a").revoke(&first).unwrap();
        held.unlock().unwrap();
        let Err(LockAllError::Lost(lost)) = waiting.join().unwrap() else { panic!() };
        assert_eq!(lost.id, first);
    });
    assert_free(&gate, &["a", "b"]);
}

#[test]
fn a_wait_is_cancelled_and_nothing_is_left() {
    let server = Server::any();
    let gate = server.gate();
    let held = gate.mutex("b").lock().unwrap();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let both = gate.mutexes(["a", "b"]).cancelled_by(&cancel);
        let waiting = scope.spawn(move || both.lock_all(SOON));
        eventually("the second is waited for", || (gate.mutex("b").inspect().unwrap().waiter_count == 1).then_some(()));
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(LockAllError::Cancelled(_))));
    });
    held.unlock().unwrap();
    assert_free(&gate, &["a", "b"]);
}

#[test]
fn unlocking_hands_each_to_whoever_waits_for_it() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes(["a", "b"]).lock_all(SOON).unwrap();
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
    let guard = gate.mutexes(["b", "a"]).lock_all(SOON).unwrap();
    guard.refresh().unwrap();
    let mut guards = guard.into_guards();
    guards.pop().unwrap().unlock().unwrap();
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
    let guard = mutexes.try_lock_all().unwrap();
    server.pause();
    let begun = Instant::now();
    drop(guard);
    let took = begun.elapsed();
    server.resume();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let _ = eventually("all are free", || mutexes.try_lock_all().ok());
}

#[test]
fn a_connection_that_carried_several_calls_in_vain_is_not_used_again() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).connections(1).open().unwrap();
    let other = gate.mutex("other").lock().unwrap();
    let names: Vec<String> = (0..64).map(|n| format!("{{trade}}:{n}")).collect();
    let guard = gate.mutexes(&names).try_lock_all().unwrap();
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
    let both = gate.mutexes([SWORD, SHIELD]).lease(Duration::from_secs(60));
    let guard = both.try_lock_all().unwrap();
    let id = guard.get(SWORD).unwrap().id().to_owned();
    server.pause();
    drop(guard);
    // Asked for again and again, it is asked for between two attempts of the background too.
    for _ in 0..20 {
        gate.mutex(SWORD).adopt(&id).unwrap_err();
    }
    server.resume();
    eventually("the other is given back", || (gate.mutex(SHIELD).inspect().unwrap().in_use == 0).then_some(()));
}

#[test]
fn what_was_gone_at_a_first_attempt_is_told_by_the_second() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_lock_all().unwrap();
    gate.mutex(SWORD).revoke(guard.get(SWORD).unwrap().id()).unwrap();
    let put_back = overwrite(&server, SHIELD);
    let error = guard.unlock().unwrap_err();
    put_back();
    assert_eq!(error.into_guard().unlock().unwrap(), Released::Gone);
}

#[test]
fn an_unlock_that_was_not_confirmed_may_be_tried_again() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let both = gate.mutexes([SWORD, SHIELD]);
    let guard = both.try_lock_all().unwrap();
    proxy.lose_replies(2);
    let error = guard.unlock().unwrap_err();
    assert!(matches!(error.error(), CallError::Unknown(_)), "{error}");
    error.into_guard().unlock().unwrap();
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
            let guard = all.try_lock_all().unwrap();
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
        let guard = gate.mutexes(names).lease(long).lock_all(SOON).unwrap();
        assert!(guard.remaining().unwrap() > short && !guard.is_lost());
        let one = guard.get(lost).unwrap();
        one.refresh_for(short).unwrap();
        let left = guard.remaining().unwrap();
        assert!(left <= short && !left.is_zero(), "{lost}: {left:?}");
        gate.mutex(lost).revoke(one.id()).unwrap();
        assert!(matches!(guard.refresh(), Err(RefreshError::Lost(_))));
        assert!(guard.is_lost(), "{lost}");
        assert_eq!(guard.remaining(), Some(Duration::ZERO), "{lost}");
        assert_eq!(guard.unlock().unwrap(), Released::Gone);
    }
}

#[cfg(unix)]
#[test]
fn a_forked_child_locks_and_unlocks_nothing() {
    let server = Server::any();
    let gate = server.gate();
    let guard = gate.mutexes([SWORD, SHIELD]).try_lock_all().unwrap();
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let others = gate.mutexes(["{trade}:helmet", "{trade}:boots"]);
            let refused = guard.refresh().is_err() && others.try_lock_all().is_err() && others.lock_all(SOON).is_err();
            drop(guard);
            std::process::exit(i32::from(!refused));
        }
        fork::Fork::Parent(child) => {
            assert_eq!(fork::waitpid(child).unwrap(), 0);
            assert_free(&gate, &["{trade}:helmet", "{trade}:boots"]);
            assert_eq!(guard.unlock().unwrap(), Released::Released);
        }
    }
}
