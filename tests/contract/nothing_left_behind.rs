//! Promise: nothing stays on the server for ever unless the caller requested it. Every key has a TTL beyond the last
//! lease. The permits of a crashed holder become free, and a crashed waiter leaves the queue.

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::scripts::semaphore::{Ask, LookupAnswer};

#[test]
fn every_key_expires_a_minute_after_the_longest_lease() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 100_000, ..raw.ask("long") });
    raw.grant(Ask { lease_ms: 1_000, ..raw.ask("short") });
    raw.queue(Ask { wait_ms: 1_000, ..raw.ask("waiter") });
    for ttl in raw.ttls() {
        assert!((158_000..=160_000).contains(&ttl), "{ttl}");
    }
    raw.release("long");
    raw.release("short");
    assert!(raw.ttls()[0] > 100_000, "{:?}", raw.ttls());
}

#[test]
fn a_short_lease_never_shortens_the_ttl_for_a_long_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 500_000, ..raw.ask("long") });
    for _ in 0..3 {
        raw.grant(Ask { lease_ms: 1, ..raw.ask("short") });
        raw.release("short");
        raw.refresh("long", 500_000);
    }
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 550_000), "{:?}", raw.ttls());
}

#[test]
fn a_refresh_extends_the_ttl() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 1_000, ..raw.ask("holder") });
    raw.queue(Ask { wait_ms: 1_000, ..raw.ask("waiter") });
    raw.refresh("holder", 1_000_000);
    assert!(raw.ttls().iter().all(|ttl| *ttl > 1_050_000), "{:?}", raw.ttls());
}

#[test]
fn the_ttl_also_covers_a_waiters_deadline() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 100, ..raw.ask("holder") });
    raw.queue(Ask { wait_ms: 3_600_000, inbox: "somewhere", ..raw.ask("waiter") });
    assert!(raw.ttls().iter().all(|ttl| *ttl > 3_600_000), "{:?}", raw.ttls());
}

#[test]
fn keys_with_permanent_leases_or_pinned_limits_stay_and_get_a_ttl_again_afterwards() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    raw.grant(raw.ask("leased"));
    raw.grant(Ask { lease_ms: 0, ..raw.ask("permanent") });
    assert_eq!(raw.ttls(), [-1, -1, -2]);
    raw.grant(Ask { lease_ms: 0, limit: 3, ..raw.ask("other") });
    raw.release("permanent");
    assert_eq!(raw.ttls(), [-1, -1, -2], "another lease is permanent");
    raw.release("other");
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
    raw.resize(2, None);
    assert_eq!(raw.ttls(), [-1, -1, -2]);
    raw.resize(0, None);
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
    raw.refresh("leased", 0);
    assert_eq!(raw.ttls(), [-1, -1, -2]);
    raw.refresh("leased", 1_000);
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
}

#[test]
fn an_unreleased_permit_is_free_when_its_lease_ends() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let crashed = raw.grant(Ask { lease_ms: 60, ..raw.ask("crashed") });
    let end = crashed.expires_at.unwrap();
    loop {
        let answer = raw.acquire(raw.ask("next"));
        match answer {
            luagate::scripts::semaphore::Answer::Granted(grant, _) => {
                assert!(grant.now >= end, "granted {} ms before the end", end - grant.now);
                break;
            }
            luagate::scripts::semaphore::Answer::Denied { now, .. } => {
                assert!(now < end, "still denied {} ms after the end", now - end);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(raw.lookup("crashed"), LookupAnswer::Gone { .. }));
}

#[test]
fn a_waiter_that_stops_asking_is_dropped_at_its_deadline() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.queue(Ask { wait_ms: 50, ..raw.ask("crashed") });
    let until = raw.inspect().waiters[0].patience_until;
    raw.wait_until(until);
    assert_eq!(raw.inspect().waiter_count, 0);
    raw.assert_released("holder");
    raw.grant(raw.ask("next"));
}

#[test]
fn an_idle_semaphore_leaves_only_keys_that_expire() {
    let server = Server::any();
    let gate = server.gate();
    for n in 0..20 {
        drop(gate.semaphore(&format!("s{n}"), 3).try_acquire().unwrap());
        drop(gate.mutex(&format!("m{n}")).try_lock().unwrap());
    }
    let keys = server.all_keys();
    assert_eq!(keys.len(), 40, "one meta key each, nothing else: {keys:?}");
    let mut con = server.connection();
    for key in keys {
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut con).unwrap();
        assert!(ttl > 0, "{key}: {ttl}");
    }
}

#[test]
fn keys_deleted_when_empty_get_a_ttl_when_created_again() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    for _ in 0..3 {
        raw.grant(raw.ask("holder"));
        raw.queue(Ask { wait_ms: 1_000, ..raw.ask("waiter") });
        assert!(raw.ttls().iter().all(|ttl| *ttl > 0), "{:?}", raw.ttls());
        raw.release("waiter");
        raw.release("holder");
        assert_eq!(raw.ttls()[1..], [-2, -2]);
    }
}

#[test]
fn a_longer_lease_extends_the_ttl_of_every_key() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 1_000, ..raw.ask("short") });
    raw.grant(Ask { lease_ms: 30_000, ..raw.ask("longer") });
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 88_000), "{:?}", raw.ttls());
}
