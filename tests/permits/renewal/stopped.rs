//! Promise: after renewal is stopped, a renewal that is on its way is the last one. `tests/memory` has more
//! about it.

use super::LEASE;
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{SOON, eventually};

use luagate::scripts::semaphore::LookupAnswer;
use luagate::{Lease, Permit};
use std::sync::mpsc::channel;

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
