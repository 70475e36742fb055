//! Promise: the script for several mutexes grants all or none, to each id once, and does not overtake waiters for one
//! of them.

use super::{SHIELD, SWORD, ask, assert_blocked, assert_free, mutexes, raw};
use crate::own;
use crate::support::Server;
use crate::support::raw::Listener;

use luagate::Released;
use luagate::errors::{CallError, FailureKind};
use luagate::scripts::Keys;
use luagate::scripts::semaphore::{self, Answer, Ask, ReleaseAnswer, TryAcquireSeveralAnswer};
use redis::Commands;

#[test]
fn the_script_refuses_invalid_arguments() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let elsewhere = Keys::mutex(&server.prefix, "{other}:sword").unwrap();
    let (one, other) = (sword.keys.clone(), shield.keys.clone());
    let many: Vec<Keys> = (0..65).map(|n| Keys::mutex(&server.prefix, &format!("{{trade}}:{n}")).unwrap()).collect();
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
    let _: () = shield.con.set(other.names()[1], "overwritten").unwrap();
    let error = ask(&mut [&mut sword, &mut shield], "id", 1_000).unwrap_err();
    assert!(matches!(&error, CallError::Failed(failure) if failure.kind() == FailureKind::WrongType), "{error}");
    assert_eq!(server.all_keys(), [other.names()[1]]);
}

#[test]
fn a_repeated_call_with_the_same_id_grants_nothing_twice() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryAcquireSeveralAnswer::Granted(first)) = ask(both, "id", 60_000) else { panic!() };
    assert!(both[0].ttls()[..2].iter().all(|ttl| *ttl > 60_000));
    let Ok(TryAcquireSeveralAnswer::Held(again)) = ask(both, "id", 30_000) else { panic!() };
    for ((first, _), (again, _)) in first.iter().zip(&again) {
        assert_eq!(first.fence, again.fence);
        assert_eq!(first.expires_at, again.expires_at);
    }
    assert_eq!((both[0].in_use(), both[1].in_use()), (1, 1));
}

#[test]
fn a_waiter_for_one_of_them_is_not_overtaken() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    // The holder's lease has ended, but no script has removed it yet. The waiter has no inbox, so it must ask.
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    sword.queue(Ask { wait_ms: 60_000, ..sword.ask("waiter") });
    sword.wait_until(gone.expires_at.unwrap());
    assert_blocked(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(shield.in_use(), 0);
    sword.grant(Ask { wait_ms: 60_000, ..sword.ask("waiter") });
}

#[test]
fn a_waiter_is_granted_by_a_blocked_call_of_the_script() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let mut inbox = Listener::new(&server, "waits");
    let channel = inbox.channel.clone();
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    sword.queue(Ask { wait_ms: 60_000, inbox: &channel, ..sword.ask("waiter") });
    sword.wait_until(gone.expires_at.unwrap());
    assert_blocked(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(inbox.next_grant()[0], "waiter");
    assert!(sword.holds("waiter"));
}

#[test]
fn dead_waiters_do_not_block() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let gone = sword.grant(Ask { lease_ms: 20, ..sword.ask("gone") });
    for dead in ["a", "b", "c"] {
        sword.queue(Ask { wait_ms: 60_000, inbox: "nobody:listens", ..sword.ask(dead) });
    }
    sword.wait_until(gone.expires_at.unwrap());
    let answer = ask(&mut [&mut shield, &mut sword], "id", 60_000).unwrap();
    assert!(matches!(answer, TryAcquireSeveralAnswer::Granted(_)), "{answer:?}");
    assert_eq!(sword.inspect().waiter_count, 0);
}

#[test]
fn an_expired_lease_on_one_never_leaves_the_others_held() {
    let server = Server::any();
    let gate = server.gate();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    // By the scripts: another holder has acquired one of the id's mutexes, and the id asks again.
    ask(both, "id", 60_000).unwrap();
    both[0].assert_released("id");
    let other = both[0].ask("other");
    both[0].grant(other);
    assert_blocked(ask(both, "id", 60_000), 0);
    assert_eq!(both[1].in_use(), 0);
    both[0].assert_released("other");
    // If a released mutex is still free, the id gets both again. The mutex that it still holds keeps its lease.
    ask(both, "id", 60_000).unwrap();
    both[0].assert_released("id");
    let later = both[0].server_ms() + 5;
    both[0].wait_until(later);
    let answer = ask(both, "id", 60_000).unwrap();
    assert!(matches!(answer, TryAcquireSeveralAnswer::Granted(_)), "{answer:?}");
    assert!(both[0].holds("id") && both[1].holds("id"));
    both[0].assert_released("id");
    both[1].assert_released("id");
    // By the guard: one of them was revoked.
    let guard = gate.mutexes([SWORD, SHIELD]).try_acquire().unwrap();
    gate.mutex(SWORD).revoke(guard.get(SWORD).unwrap().id()).unwrap();
    assert_eq!(guard.release().unwrap(), Released::Gone);
    assert_free(&gate, &[SWORD, SHIELD]);
}

#[test]
fn a_released_mutex_is_granted_to_its_waiter() {
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
    assert_blocked(ask(both, "id", 0), 1);
    assert_eq!(inbox.next_grant()[0], "waits");
    // The id holds nothing permanently: the keys expire after the remaining leases.
    assert!(both[0].ttls()[..2].iter().all(|ttl| *ttl > 0));
}

#[test]
fn the_script_grants_permanent_locks() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryAcquireSeveralAnswer::Granted(first)) = ask(both, "id", 0) else { panic!() };
    let Ok(TryAcquireSeveralAnswer::Held(again)) = ask(both, "id", 0) else { panic!() };
    for (grant, _) in first.iter().chain(&again) {
        assert_eq!(grant.expires_at, None);
    }
    assert_eq!(both[0].ttls()[..2], [-1, -1]);
}

#[test]
fn an_id_whose_leases_have_ended_is_granted_anew() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let both = &mut [&mut sword, &mut shield];
    let Ok(TryAcquireSeveralAnswer::Granted(first)) = ask(both, "id", 20) else { panic!() };
    both[0].wait_until(first[1].0.expires_at.unwrap());
    let Ok(TryAcquireSeveralAnswer::Granted(anew)) = ask(both, "id", 10_000) else { panic!() };
    for ((first, _), (anew, _)) in first.iter().zip(&anew) {
        assert!(anew.fence > first.fence);
        assert_eq!(anew.expires_at, Some(anew.now + 10_000));
    }
}

#[test]
fn places_in_line_are_given_up_whichever_mutex_blocks() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    for raw in [&mut sword, &mut shield] {
        raw.grant(raw.ask("holder"));
        raw.queue(Ask { wait_ms: 60_000, ..raw.ask("id") });
    }
    assert_blocked(ask(&mut [&mut sword, &mut shield], "id", 60_000), 0);
    for raw in [&mut sword, &mut shield] {
        assert_eq!(raw.inspect().waiter_count, 0);
        raw.assert_released("holder");
        raw.grant(raw.ask("next"));
    }
}

#[test]
fn an_own_expired_lease_counts_once() {
    // More leases have expired than one script call removes, on a mutex whose limit was raised.
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
    assert!(matches!(answer, TryAcquireSeveralAnswer::Granted(_)), "{answer:?}");
    // Its record and its lease exist once each. Nothing appears lost, and the other permits become free.
    let all = sword.acquire(Ask { permits: Some(199), ..sword.ask("others") });
    assert!(matches!(all, Answer::Granted(..)), "{all:?}");
}

#[test]
fn with_a_lost_key_a_blocked_id_keeps_nothing() {
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
    assert_blocked(ask(both, "id", 60_000), 1);
    assert_eq!(both[0].release("id"), ReleaseAnswer::Gone);
}

#[test]
fn with_a_lost_key_nothing_is_granted_twice() {
    let server = Server::any();
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    sword.grant(Ask { lease_ms: 60_000, ..sword.ask("holder") });
    let [meta, ..] = sword.key_names();
    let _: () = sword.con.del(meta).unwrap();
    assert_blocked(ask(&mut [&mut shield, &mut sword], "id", 60_000), 1);
    assert_eq!(shield.in_use(), 0);
    assert!(sword.ttls()[0] > 60_000, "written keys have a TTL");
    sword.assert_released("holder");
    let answer = ask(&mut [&mut shield, &mut sword], "id", 60_000).unwrap();
    assert!(matches!(answer, TryAcquireSeveralAnswer::Granted(_)), "{answer:?}");
}

#[test]
fn with_full_memory_nothing_changes() {
    let server = own!(Server::private(&[]));
    let (mut sword, mut shield) = (raw(&server, SWORD), raw(&server, SHIELD));
    let mut con = server.connection();
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("maxmemory").arg(1).exec(&mut con).unwrap();
    let error = ask(&mut [&mut sword, &mut shield], "id", 1_000).unwrap_err();
    assert!(matches!(&error, CallError::Failed(failure) if failure.kind() == FailureKind::OutOfMemory), "{error}");
    assert_eq!(server.all_keys(), Vec::<String>::new());
}
