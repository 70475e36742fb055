//! Promise: a lease ends by the server's clock and only for its own holder, and the holder learns of it.

use super::MINUTE;
use crate::own;
use crate::support::raw::Raw;
use crate::support::{self, Server, eventually};

use luagate::errors::{FailureKind, RefreshError, TryAcquireError};
use luagate::scripts::semaphore::{Answer, Ask, LookupAnswer};
use luagate::{Lease, Released};
use redis::Commands;
use std::time::{Duration, Instant};

#[test]
fn hole_01_a_caller_with_a_short_lease_evicts_a_holder_with_a_long_one() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("long") });
    let later = raw.server_ms() + 20;
    raw.wait_until(later);
    raw.assert_denied(Ask { lease_ms: 1, ..raw.ask("short") });
    assert!(raw.holds("long"));
}

#[test]
fn hole_02_a_short_lease_deletes_the_keys_of_all_holders() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 2);
    raw.grant(Ask { lease_ms: 60_000, ..raw.ask("long") });
    raw.grant(Ask { lease_ms: 1, ..raw.ask("short") });
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 60_000));
}

#[test]
fn hole_03_expiry_by_client_clocks() {
    // No script takes a client's time as an argument, and the times in replies are the server's.
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../../lua/manifest.json")).unwrap();
    for (name, script) in manifest["scripts"].as_object().unwrap() {
        for argument in script["argv"].as_array().unwrap() {
            let argument = argument.as_str().unwrap();
            assert!(!["now", "time", "expires_at", "deadline"].contains(&argument), "{name}: {argument}");
        }
    }
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let before = raw.server_ms();
    let grant = raw.grant(Ask { lease_ms: 5_000, ..raw.ask("holder") });
    assert!((before..=raw.server_ms()).contains(&grant.now));
    assert_eq!(grant.expires_at, Some(grant.now + 5_000));
}

#[test]
fn hole_08_releasing_an_expired_permit_throws_after_retries() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("expired", 1).lease(Duration::from_millis(30));
    let permit = semaphore.acquire().unwrap();
    eventually("the lease ends", || permit.is_lost().then_some(()));
    eventually("the lease ends on the server", || (semaphore.available_permits().unwrap() == 1).then_some(()));
    assert_eq!(permit.release().unwrap(), Released::Gone);
}

#[test]
fn hole_10_one_failed_renewal_ends_all_renewal_and_the_holder_is_not_notified() {
    let server = own!(Server::private(&[]));
    let mut raw = Raw::new(&server, 1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let semaphore = server.gate().semaphore("raw", 1).lease(Lease::renewed(Duration::from_millis(600)));
    let permit = semaphore.on_lost(move |lost| sender.send(lost.id.clone()).unwrap()).acquire().unwrap();
    for _ in 0..5 {
        support::kill_connections(&mut raw.con, "normal");
        let later = raw.server_ms() + 250;
        raw.wait_until(later);
    }
    assert!(raw.holds(permit.id()) && !permit.is_lost());
    raw.release(permit.id());
    assert_eq!(receiver.recv_timeout(support::SOON).unwrap(), permit.id());
}

#[test]
fn hole_14_a_crashed_reader_stays_as_long_as_another_reader_extends() {
    let server = Server::any();
    let gate = server.gate();
    let lock = gate.rwlock("book");
    let crashed = lock.clone().with(|lock| lock.lease(Duration::from_millis(900)));
    let crashed = crashed.read().unwrap().into_id(); // nobody renews or releases it
    let other = lock.clone().with(|lock| lock.lease(Lease::renewed(Duration::from_millis(450))));
    let other = other.read().unwrap();
    let begun = Instant::now();
    eventually("its share is free", || {
        let seen = lock.inspect().unwrap();
        assert!(seen.holders.iter().any(|holder| holder.id == other.id()));
        seen.holders.iter().all(|holder| holder.id != crashed).then_some(())
    });
    assert!(begun.elapsed() < Duration::from_secs(2));
    other.release().unwrap();
    lock.try_write().unwrap().release().unwrap();
}

#[test]
fn hole_21_a_refresh_brings_a_released_holder_back() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    raw.grant(raw.ask("holder"));
    raw.assert_released("holder");
    assert!(raw.refresh("holder", 60_000).is_none());
    assert_eq!(raw.in_use(), 0);
}

#[test]
fn hole_22_a_crash_loses_the_permit_for_ever() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 50, ..raw.ask("crashed") }).expires_at.unwrap();
    raw.wait_until(end);
    raw.grant(raw.ask("next"));
}

#[cfg(target_os = "linux")]
#[test]
fn hole_23_one_thread_or_connection_for_each_guard_or_waiter() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let mut con = server.connection();
    let semaphore = gate.semaphore("many", 300).lease(Lease::renewed(MINUTE));
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                let comm = task.as_ref().unwrap().path().join("comm");
                std::fs::read_to_string(comm).is_ok_and(|comm| comm.starts_with("luagate-renewal"))
            })
            .count()
    };
    let first = semaphore.acquire().unwrap();
    let with_one = threads();
    let permits: Vec<_> = (0..299).map(|_| semaphore.acquire().unwrap()).collect();
    assert!(threads() <= with_one + 100, "more threads than other tests of this process can have");
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut con).unwrap();
    assert!(clients.lines().count() <= 4, "{clients}");
    drop((first, permits));
}

#[test]
fn hole_25_refreshing_after_expiry_takes_the_permit_back() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let end = raw.grant(Ask { lease_ms: 30, ..raw.ask("late") }).expires_at.unwrap();
    raw.wait_until(end);
    assert!(raw.refresh("late", 60_000).is_none(), "an expired lease is lost, also if the permit is free");
    raw.grant(raw.ask("next"));
    assert!(raw.refresh("late", 60_000).is_none());
    assert!(raw.holds("next"));
}

#[test]
fn hole_26_acquiring_as_holder_pretends_to_a_full_lease() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let first = raw.grant(Ask { lease_ms: 5_000, ..raw.ask("holder") });
    let Answer::Held(again, _) = raw.acquire(Ask { lease_ms: 60_000, ..raw.ask("holder") }) else { panic!() };
    assert_eq!(again.expires_at, first.expires_at, "the reply must contain the real end of the lease");
    let semaphore = server.gate().semaphore("raw", 1).id("holder").lease(MINUTE);
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::AlreadyHeld(_))));
    let adopted = semaphore.adopt("holder").unwrap();
    assert!(adopted.remaining().unwrap() > Duration::from_secs(50));
    assert!(
        matches!(raw.lookup("holder"), LookupAnswer::Held(grant) if grant.expires_at.unwrap() > grant.now + 50_000)
    );
}

#[test]
fn hole_28_counting_shows_expired_holders() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 9);
    raw.grant(Ask { permits: Some(2), ..raw.ask("alive") });
    let end = raw.grant(Ask { permits: Some(5), lease_ms: 30, ..raw.ask("ended") }).expires_at.unwrap();
    raw.wait_until(end);
    let state = raw.inspect();
    assert_eq!((state.in_use, state.holder_count, state.holders.len()), (2, 1, 1));
    assert_eq!(server.gate().semaphore("raw", 9).available_permits().unwrap(), 7);
}

#[test]
fn a_server_error_is_never_reported_as_a_lost_permit() {
    // In addition to row 10: a permit is lost if the server says so or its lease ends, not if a key is unreadable.
    let server = Server::any();
    let raw = Raw::new(&server, 1);
    let permit = server.gate().semaphore("raw", 1).lease(MINUTE).acquire().unwrap();
    let mut con = server.connection();
    let holders = raw.key_names()[1].clone();
    let aside = format!("{holders}:aside");
    let _: () = con.rename(&holders, &aside).unwrap();
    let _: () = con.set(&holders, "of another type").unwrap();
    let Err(RefreshError::Failed(failure)) = permit.refresh() else { panic!() };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    assert!(!permit.is_lost());
    let _: () = con.rename(&aside, &holders).unwrap();
    permit.refresh().unwrap();
}
