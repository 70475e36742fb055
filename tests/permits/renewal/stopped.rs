//! Promise: a permit whose renewal is stopped is held until its lease ends, unless the caller refreshes it.

use super::{LEASE, pass, watched};
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually};

use luagate::scripts::semaphore::LookupAnswer;
use luagate::{Lease, Permit};
use std::sync::mpsc::channel;

#[test]
fn a_permit_whose_renewal_is_stopped_is_held_until_its_lease_ends() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let semaphore = server.gate().semaphore("raw", 3).lease(Lease::renewed(LEASE));
    let (sender, reported) = channel();
    let telling = semaphore.clone().on_lost(move |lost| sender.send(lost.clone()).unwrap()).acquire().unwrap();
    let silent = semaphore.acquire().unwrap();
    let renewed = semaphore.acquire().unwrap();
    let end = raw.server_ms() + u64::try_from(LEASE.as_millis()).unwrap();
    telling.stop_renewal();
    silent.stop_renewal();
    assert!(!telling.is_lost() && raw.holds(telling.id()));
    raw.wait_until(end + 300);
    assert!(telling.is_lost() && !raw.holds(telling.id()), "renewed");
    assert!(silent.is_lost() && !raw.holds(silent.id()), "renewed");
    assert_eq!(reported.recv_timeout(SOON).unwrap().id, telling.id());
    pass(&mut raw, 1);
    assert!(!renewed.is_lost() && raw.holds(renewed.id()));
}

/// The end of its lease on the server, in ms.
fn expiry(raw: &mut Raw, permit: &Permit) -> u64 {
    match raw.lookup(permit.id()) {
        LookupAnswer::Held(grant) => grant.expires_at.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pending_renewal_is_the_last_one_after_renewal_is_stopped() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let mut raw = Raw::new(&server, 1);
    let (sender, reported) = channel();
    let semaphore = gate.semaphore("raw", 1).lease(Lease::renewed(LEASE));
    let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let permit = semaphore.acquire().unwrap();
    let granted_until = expiry(&mut raw, &permit);
    proxy.delay_replies([LEASE / 4]);
    eventually("the server has renewed it", || (expiry(&mut raw, &permit) > granted_until).then_some(()));
    permit.stop_renewal();
    eventually("the reply has arrived", || (gate.counters().renewed > 0).then_some(()));
    assert!(!permit.is_lost(), "the new lease does not count");
    assert_eq!(reported.recv_timeout(SOON).unwrap().id, permit.id());
    assert_eq!(gate.counters().renewed, 1);
}

#[test]
fn a_permit_whose_renewal_is_stopped_can_be_refreshed_by_hand() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let (permit, reported) = watched(&server);
    permit.stop_renewal();
    permit.refresh_for(LEASE * 3).unwrap();
    assert!(permit.remaining().unwrap() > LEASE);
    pass(&mut raw, 1);
    assert!(!permit.is_lost() && raw.holds(permit.id()));
    assert!(reported.try_recv().is_err(), "notified before the end");
    assert_eq!(reported.recv_timeout(SOON).unwrap().id, permit.id());
}

#[test]
fn the_renewal_of_one_of_several_mutexes_can_be_stopped() {
    let server = Server::any();
    let gate = server.gate();
    let both = gate.mutexes(["one", "other"]).with(|lock| lock.lease(Lease::renewed(LEASE)));
    let guard = both.acquire_timeout(SOON).unwrap();
    let (one, other) = (guard.get("one").unwrap(), guard.get("other").unwrap());
    one.stop_renewal();
    let next = gate.mutex("one").try_lock_for(SOON).unwrap();
    assert!(one.is_lost() && next.fence() > one.fence());
    pass(&mut Raw::new(&server, 1), 4);
    assert!(!other.is_lost());
    assert!(gate.mutex("other").try_lock().is_err());
}
