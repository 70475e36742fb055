//! Promise: a gate's counters count each event exactly once for all its clones, so that any metrics library
//! can export them.

use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, eventually, kill_connections, timed_out};

use luagate::errors::{AcquireError, PermitError};
use luagate::{Cancel, Counters, Gate, Lease, Released, Revoked, Semaphore};
use std::thread::JoinHandle;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// Starts a thread that waits in line, and returns when it is in line.
fn in_line<T: Send + 'static>(
    semaphore: &Semaphore,
    acquire: impl FnOnce(&Semaphore) -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = semaphore.inspect().unwrap().waiter_count;
    let waiting = semaphore.clone();
    let thread = std::thread::spawn(move || acquire(&waiting));
    eventually("the thread is in line", || {
        (semaphore.inspect().unwrap().waiter_count > before).then_some(())
    });
    thread
}

/// Granted, granted after a wait, and denied.
fn asked(gate: &Gate) -> (u64, u64, u64) {
    let counters = gate.counters();
    (counters.granted, counters.waited, counters.denied)
}

#[test]
fn a_gates_counters_begin_at_zero_and_are_shared_by_its_clones() {
    let server = Server::any();
    let gate = server.gate();
    assert_eq!(gate.counters(), Counters::default());
    let clone = gate.clone();
    let permit = clone.semaphore("shared", 1).try_acquire().unwrap();
    drop(clone);
    assert_eq!(gate.counters().granted, 1);
    let another = server.gate();
    assert!(another.semaphore("shared", 1).try_acquire().is_err());
    assert_eq!(asked(&another), (0, 0, 1));
    assert_eq!(asked(&gate), (1, 0, 0));
    permit.release().unwrap();
    assert_eq!(asked(&gate), (1, 0, 0), "a release changes none of these counters");
}

#[test]
fn each_grant_counts_once() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("granted", 9);
    let many = semaphore.try_acquire_many(3).unwrap();
    assert_eq!(gate.counters().granted, 1, "one grant of any weight");
    let id = semaphore.acquire().unwrap().into_id();
    let adopted = semaphore.adopt(&id).unwrap();
    assert_eq!(gate.counters().granted, 2, "adopting is not a grant");
    many.refresh().unwrap();
    let permanent = semaphore.clone().lease(Lease::PERMANENT).try_acquire().unwrap();
    let locked = gate.mutex("granted").lock().unwrap();
    let read = gate.rwlock("granted").read().unwrap();
    assert_eq!(gate.counters().granted, 5);
    let at_once = gate.mutexes(["{g}:a", "{g}:b", "{g}:c"]);
    at_once.try_acquire().unwrap().release().unwrap();
    assert_eq!(gate.counters().granted, 8, "one for each mutex");
    let in_line = gate.mutexes(["d", "e"]);
    in_line.acquire_timeout(MINUTE).unwrap().release().unwrap();
    assert_eq!(asked(&gate), (10, 0, 0));
    drop((adopted, permanent, locked, read));
}

#[test]
fn a_grant_in_line_counts_as_waited() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("waited", 1);
    let first = semaphore.acquire().unwrap();
    let second = in_line(&semaphore, |semaphore| semaphore.acquire().unwrap());
    assert_eq!(asked(&gate), (1, 0, 0));
    first.release().unwrap();
    let second = second.join().unwrap();
    assert!(second.ticket().is_some());
    assert_eq!(asked(&gate), (2, 1, 0));
    second.release().unwrap();
    semaphore.acquire().unwrap().release().unwrap();
    assert_eq!(asked(&gate), (3, 1, 0), "the third did not wait in line");
}

#[test]
fn readers_and_writers_count_like_other_callers() {
    let server = Server::any();
    let gate = server.gate();
    let lock = gate.rwlock("rw");
    let reads = lock.read().unwrap();
    assert!(lock.try_write().is_err());
    assert!(lock.try_write_for(MOMENT).is_err());
    assert_eq!(asked(&gate), (1, 0, 2));
    let writer = lock.clone();
    let writer = std::thread::spawn(move || writer.write().unwrap());
    eventually("the writer is in line", || (lock.inspect().unwrap().waiter_count == 1).then_some(()));
    assert!(lock.try_read().is_err(), "a reader overtook the writer");
    reads.release().unwrap();
    let mut writes = writer.join().unwrap();
    assert_eq!(asked(&gate), (2, 1, 3));
    writes.downgrade().unwrap();
    writes.release().unwrap();
    assert_eq!(asked(&gate), (2, 1, 3), "a downgrade is not a grant");
}

#[test]
fn waits_for_several_count_one_by_one() {
    let server = Server::any();
    let gate = server.gate();
    let second = gate.mutex("b");
    let held = second.lock().unwrap();
    let several = gate.mutexes(["a", "b"]);
    let waiter = std::thread::spawn(move || several.acquire_timeout(MINUTE).unwrap());
    eventually("the thread is in line", || (second.inspect().unwrap().waiter_count == 1).then_some(()));
    assert_eq!(asked(&gate), (2, 0, 0), "the first is granted");
    held.release().unwrap();
    waiter.join().unwrap().release().unwrap();
    assert_eq!(asked(&gate), (3, 1, 0));
}

#[test]
fn a_grant_that_replicas_did_not_confirm_does_not_count() {
    let server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix);
    let gate = gate.min_replicas(1, MOMENT).open().unwrap();
    let semaphore = gate.semaphore("alone", 1);
    assert!(semaphore.try_acquire().is_err());
    assert!(semaphore.acquire_timeout(MINUTE).is_err());
    assert!(gate.mutexes(["{g}:a"]).try_acquire().is_err());
    assert_eq!(gate.counters(), Counters::default());
}

#[test]
fn a_refusal_because_of_other_holders_counts_as_denied() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("denied", 1);
    let mutex = gate.mutex("{g}:b").lock().unwrap();
    let permit = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().is_err());
    assert_eq!(gate.counters().denied, 1);
    timed_out(|| semaphore.acquire_timeout(MOMENT));
    assert_eq!(gate.counters().denied, 2);
    let several = gate.mutexes(["{g}:a", "{g}:b"]);
    assert!(several.try_acquire().is_err());
    assert_eq!(gate.counters().denied, 3);
    assert_eq!(gate.counters().granted, 2);
    timed_out(|| several.acquire_timeout(MOMENT));
    assert_eq!(gate.counters().denied, 4, "once, not once for each mutex");
    drop((permit, mutex));
}

#[test]
fn cancelled_waits_and_invalid_requests_do_not_count_as_denied() {
    let server = Server::any();
    let gate = server.gate();
    let cancel = Cancel::new();
    let semaphore = gate.semaphore("other", 1).cancelled_by(&cancel);
    let permit = semaphore.acquire().unwrap();
    let waiting = in_line(&semaphore, |semaphore| semaphore.acquire().map(drop));
    cancel.cancel();
    let cancelled = waiting.join().unwrap();
    assert!(matches!(cancelled, Err(AcquireError::Cancelled(_))));
    assert!(semaphore.try_acquire_many(0).is_err());
    assert!(semaphore.try_acquire_many(2).is_err());
    let strict = gate.semaphore("other", 2).strict().try_acquire();
    assert!(strict.is_err());
    let latch = gate.latch("other", 1).wait_timeout(MOMENT);
    assert!(latch.is_err());
    assert_eq!(asked(&gate), (1, 0, 0));
    drop(permit);
}

#[test]
fn a_lost_permit_counts_once_however_it_is_detected() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("lost", 9);
    let lost = |what: &str, count| assert_eq!(gate.counters().lost, count, "{what}");

    let short = semaphore.clone().lease(Lease::fixed(MOMENT)).acquire().unwrap();
    eventually("the lease ends", || short.is_lost().then_some(()));
    assert!(short.is_lost() && short.refresh().is_err());
    short.release().unwrap(); // the server may have freed it by then
    lost("by this machine's clock", 1);

    let long = semaphore.clone().lease(Lease::fixed(MINUTE));
    let refreshed = long.acquire().unwrap();
    assert_eq!(semaphore.revoke(refreshed.id()).unwrap(), Revoked::Held);
    lost("not detected yet", 1);
    assert!(matches!(refreshed.refresh(), Err(PermitError::Lost(_))));
    assert!(refreshed.is_lost() && refreshed.refresh().is_err());
    drop(refreshed);
    lost("at a refresh", 2);

    let released = long.acquire().unwrap();
    semaphore.revoke(released.id()).unwrap();
    assert_eq!(released.release().unwrap(), Released::Gone);
    lost("at a release", 3);

    let mut partly = long.acquire_many(2).unwrap();
    semaphore.revoke(partly.id()).unwrap();
    assert!(partly.release_some(1).is_err());
    drop(partly);
    lost("at a release of a part", 4);

    let renewed = semaphore.clone().lease(Lease::renewed(Duration::from_secs(3)));
    let renewed = renewed.acquire().unwrap();
    semaphore.revoke(renewed.id()).unwrap();
    eventually("the renewal is refused", || (gate.counters().lost == 5).then_some(()));
    assert!(renewed.is_lost());
    drop(renewed);
    lost("at a renewal", 5);
}

#[test]
fn released_and_handed_on_permits_do_not_count_as_lost() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("kept", 9);
    let released = semaphore.acquire().unwrap();
    released.release().unwrap();
    drop(semaphore.acquire().unwrap());
    let id = semaphore.acquire().unwrap().into_id();
    drop(semaphore.adopt(&id).unwrap());
    let several = gate.mutexes(["a", "b"]).acquire_timeout(MINUTE).unwrap();
    several.release().unwrap();
    assert_eq!(semaphore.available_permits().unwrap(), 9);
    assert_eq!(gate.counters().lost, 0);
}

#[test]
fn a_release_with_a_lost_reply_does_not_count_as_lost() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("replies", 2);
    semaphore.acquire().unwrap().release().unwrap(); // from here on the server has the scripts loaded
    let permit = semaphore.acquire().unwrap();
    proxy.lose_replies(1);
    // The first release ran, so the second finds no permit. That shows no loss.
    assert_eq!(permit.release().unwrap(), Released::Released);
    assert!(proxy.is_done());
    let permit = semaphore.acquire().unwrap();
    proxy.lose_replies(2);
    let error = permit.release().unwrap_err();
    assert!(proxy.is_done());
    assert_eq!(error.into_permit().release().unwrap(), Released::Released);
    assert_eq!(semaphore.available_permits().unwrap(), 2);
    assert_eq!(gate.counters().lost, 0);
}

#[test]
fn renewals_are_counted_and_refreshes_are_not() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("renewed", 9).lease(Lease::fixed(Duration::from_secs(3)));
    let by_hand = semaphore.acquire().unwrap();
    by_hand.refresh().unwrap();
    assert_eq!(gate.counters().renewed, 0);
    let renewed = semaphore.lease(Lease::renewed(Duration::from_secs(3)));
    let two = (renewed.acquire().unwrap(), renewed.acquire().unwrap());
    eventually("each permit is renewed twice", || (gate.counters().renewed >= 4).then_some(()));
    drop(two);
    assert_eq!(gate.counters().lost, 0);
    drop(by_hand);
}

#[test]
fn a_replacement_for_a_broken_connection_counts_as_a_reconnect() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("reconnects", 9);
    semaphore.acquire().unwrap().release().unwrap();
    assert_eq!(gate.counters().reconnects, 0, "the first connection does not count");
    let mut con = server.connection();
    kill_connections(&mut con, "normal");
    semaphore.acquire().unwrap().release().unwrap();
    assert_eq!(gate.counters().reconnects, 1);
    semaphore.acquire().unwrap().release().unwrap();
    assert_eq!(gate.counters().reconnects, 1, "the connection still works");
}

#[test]
fn a_replacement_for_a_silent_connection_counts_as_a_reconnect() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    proxy.go_silent();
    let semaphore = gate.semaphore("silent", 9);
    assert!(semaphore.inspect().is_err());
    eventually("a call succeeds", || semaphore.inspect().ok());
    assert_eq!(gate.counters().reconnects, 1);
}

#[test]
fn a_reestablished_subscription_counts_as_a_reconnect() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("subscription", 1);
    let permit = semaphore.acquire().unwrap();
    let waiter = in_line(&semaphore, |semaphore| semaphore.acquire().unwrap());
    assert_eq!(gate.counters().reconnects, 0);
    assert_eq!(kill_connections(&mut server.connection(), "pubsub"), 1);
    eventually("the subscription was re-established", || (gate.counters().reconnects == 1).then_some(()));
    permit.release().unwrap();
    waiter.join().unwrap().release().unwrap();
    assert_eq!(gate.counters().reconnects, 1);
}

#[test]
fn the_renewal_thread_reconnects_by_itself() {
    let server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("alone", 1).lease(Lease::renewed(Duration::from_secs(3)));
    let permit = semaphore.acquire().unwrap();
    kill_connections(&mut server.connection(), "normal");
    eventually("the permit is renewed", || (gate.counters().renewed > 0).then_some(()));
    assert_eq!(gate.counters().reconnects, 1);
    permit.release().unwrap();
    assert_eq!(gate.counters().lost, 0);
}

#[test]
fn a_gate_on_a_cluster_counts_all_nodes_together() {
    use crate::support::cluster::Cluster;
    let cluster = own!(Cluster::new());
    let gate = Gate::builder(&format!("redis+cluster://{}", cluster.addresses()[0]));
    let gate = gate.prefix(&cluster.prefix).open().unwrap();
    let masters = cluster.masters();
    assert!(masters.len() > 1);
    let permits: Vec<_> = masters
        .iter()
        .map(|master| {
            let semaphore = gate.semaphore(&cluster.name_on(*master), 1);
            let semaphore = semaphore.lease(Lease::renewed(Duration::from_secs(6)));
            let permit = semaphore.acquire().unwrap();
            timed_out(|| semaphore.acquire_timeout(MOMENT));
            permit
        })
        .collect();
    let nodes = masters.len() as u64;
    assert_eq!(asked(&gate), (nodes, 0, nodes));
    let before = gate.counters().reconnects;
    for master in &masters {
        let mut con = cluster.connection(*master);
        for kind in ["normal", "pubsub"] {
            kill_connections(&mut con, kind); // an async gate makes calls and receives messages on one connection
        }
    }
    eventually("each permit is renewed over another connection", || {
        (gate.counters().reconnects >= before + nodes).then_some(())
    });
    for permit in permits {
        permit.release().unwrap();
    }
    assert_eq!(gate.counters().lost, 0);
}
