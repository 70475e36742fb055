//! Promise: the holder is notified of a loss in time and once. There is no notification for a released
//! permit.

use super::{LEASE, pass, watched};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};

use luagate::errors::PermitError;
use luagate::{Lease, Permit, Released, Revoked};
use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn loss_is_known_before_the_lease_ends_on_the_server() {
    let mut server = own!(Server::private(&[]));
    let (permit, reported) = watched(&server);
    let mut raw = Raw::new(&server, 1);
    server.pause(); // renewals are sent, and no reply arrives
    eventually("the permit is lost", || permit.is_lost().then_some(()));
    assert_eq!(permit.remaining(), Some(Duration::ZERO));
    server.resume();
    assert_eq!(reported.recv_timeout(SOON).unwrap().id, permit.id());
    assert!(matches!(permit.refresh(), Err(PermitError::Lost(_))), "the permit is held again");
    eventually("the lease ends", || (!raw.holds(permit.id())).then_some(()));
    assert!(permit.is_lost());
}

/// A gate with a read timeout longer than the test.
fn patient(server: &Server) -> luagate::Gate {
    let gate = luagate::Gate::builder(&server.url).prefix(&server.prefix);
    gate.read_timeout(10 * SOON).open().unwrap()
}

#[test]
fn a_loss_is_notified_at_the_lease_end_although_a_renewal_has_no_reply() {
    let mut server = own!(Server::private(&[]));
    let (sender, reported) = channel();
    let semaphore = patient(&server).semaphore("raw", 1).lease(Lease::renewed(LEASE));
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.acquire().unwrap();
    server.pause();
    let lost = reported.recv_timeout(SOON).expect("no notification");
    assert_eq!(lost.id, permit.id());
    assert!(permit.is_lost());
    server.resume();
}

#[test]
fn a_loss_is_notified_at_the_lease_end_although_another_renewal_has_no_reply() {
    let mut server = own!(Server::private(&[]));
    let gate = patient(&server);
    let (sender, reported) = channel();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::fixed(LEASE));
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.acquire().unwrap();
    // The other permit is renewed first. The client waits for that reply until the end of the other lease.
    let other = gate.semaphore("other", 1).lease(Lease::renewed(LEASE));
    let other = other.acquire().unwrap();
    other.refresh_for(10 * SOON).unwrap();
    server.pause();
    let lost = reported.recv_timeout(SOON).expect("no notification");
    assert_eq!(lost.id, permit.id());
    assert!(permit.is_lost());
    server.resume();
}

#[test]
fn a_revoked_permit_is_lost_at_its_next_renewal() {
    let server = Server::any();
    let (permit, reported) = watched(&server);
    let semaphore = server.gate().semaphore("raw", 1);
    assert_eq!(semaphore.revoke(permit.id()).unwrap(), Revoked::Held);
    assert_eq!(semaphore.revoke(permit.id()).unwrap(), Revoked::Nothing);
    assert_eq!(reported.recv_timeout(SOON).unwrap().id, permit.id());
    assert!(permit.is_lost());
    drop(semaphore.try_acquire().unwrap());
}

#[test]
fn a_panic_in_a_callback_stops_neither_renewal_nor_the_next_callback() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let gate = server.gate();
    let semaphore = gate.semaphore("raw", 3).lease(Lease::renewed(LEASE));
    let (sender, receiver) = channel();
    let panicking = semaphore.clone().on_lost(|lost| panic!("on purpose, for {lost}")).acquire().unwrap();
    let telling =
        semaphore.clone().on_lost(move |lost| sender.send(lost.clone()).unwrap()).acquire().unwrap();
    let renewed = semaphore.acquire().unwrap();
    raw.assert_released(panicking.id());
    eventually("the first is lost", || panicking.is_lost().then_some(()));
    raw.assert_released(telling.id());
    assert_eq!(receiver.recv_timeout(SOON).unwrap().id, telling.id());
    pass(&mut raw, 2);
    assert!(raw.holds(renewed.id()) && !renewed.is_lost());
}

#[test]
fn a_released_permit_is_never_notified_as_lost() {
    let server = Server::any();
    let (sender, receiver) = channel();
    let semaphore = server
        .gate()
        .semaphore("raw", 16)
        .lease(Lease::renewed(Duration::from_millis(450)))
        .on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let mut late = HashSet::new(); // on a machine that paused for a whole lease
    for n in 0..30 {
        let permits: Vec<Permit> = (0..16).map(|_| semaphore.acquire().unwrap()).collect();
        // The release happens about the time of their first renewal.
        std::thread::sleep(Duration::from_micros(144_000 + n % 20 * 300));
        for permit in permits {
            let id = permit.id().to_owned();
            if permit.is_lost() || permit.release().unwrap() == Released::Gone {
                late.insert(id);
            }
        }
    }
    assert!(late.len() < 240, "most were released in time");
    for lost in receiver.try_iter() {
        assert!(late.contains(&lost.id), "notified of {lost}");
    }
}

#[test]
fn a_refresh_without_a_reply_counts_as_a_possibly_shortened_lease() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let alone = gate.semaphore("raw", 1);
    let shortened = alone.clone().lease(Lease::fixed(SOON)).acquire().unwrap();
    let back = gate.semaphore("other", 1).lease(Lease::fixed(LEASE)).acquire().unwrap();
    back.refresh_for(SOON).unwrap();
    proxy.lose_replies_of_scripts(4); // both calls run twice, and every reply is lost
    assert!(matches!(shortened.refresh_for(LEASE), Err(PermitError::Unknown(_))));
    assert!(matches!(back.refresh(), Err(PermitError::Unknown(_))));
    for (permit, name) in [(shortened, "raw"), (back, "other")] {
        let other = server.gate().semaphore(name, 1);
        eventually("the server frees it", || other.try_acquire().ok()).release().unwrap();
        assert!(permit.is_lost(), "{name}: held twice");
    }
}

#[test]
fn a_lost_permit_of_an_own_id_releases_nothing_of_its_successor() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("raw", 5).id("own");
    let short = semaphore.clone().lease(Lease::fixed(Duration::from_millis(300)));
    let mut lost = short.acquire_many(3).unwrap();
    let successor = eventually("the lease ends", || semaphore.acquire_many(3).ok());
    assert!(matches!(lost.release_some(1), Err(PermitError::Lost(_))));
    assert_eq!(semaphore.inspect().unwrap().in_use, 3);
    assert_eq!(successor.release().unwrap(), Released::Released);
}
