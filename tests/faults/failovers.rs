//! Promise: with `min_replicas(1)` no granted permit is lost in a failover of a cluster node or of a master
//! that sentinels monitor. `LUAGATE_PROVE=long` runs a hundred of each.

use crate::own;
use crate::support::cluster::Cluster;
use crate::support::eventually;
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::stop::Stop;

use luagate::{Gate, Lease, Permit};
use std::sync::Mutex;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3_600);
const WITHIN: Duration = Duration::from_millis(300);

fn rounds() -> usize {
    match std::env::var("LUAGATE_PROVE").as_deref() {
        Ok("long") => 100,
        _ => 2,
    }
}

fn open(url: &str, prefix: &str) -> Gate {
    let gate = Gate::builder(url).prefix(prefix);
    let gate = gate.read_timeout(Duration::from_millis(500));
    gate.min_replicas(1, WITHIN).open().unwrap()
}

/// Four threads acquire permits of the semaphores that `name` returns, before and during `fault`. Returns all
/// grants that they received.
fn granted_during(
    gate: &Gate,
    name: &(dyn Fn(usize) -> String + Sync),
    fault: impl FnOnce(),
) -> Vec<(String, Permit)> {
    let (reported, stop) = (Mutex::new(Vec::new()), Stop::default());
    std::thread::scope(|scope| {
        let _stop = stop.at_end();
        for thread in 0..4 {
            let (reported, stop) = (&reported, &stop);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.is_set() {
                        return;
                    }
                    let name = name(4 * number + thread);
                    if let Ok(permit) = gate.semaphore(&name, 1).lease(Lease::fixed(LEASE)).try_acquire() {
                        reported.lock().unwrap().push((name, permit));
                    }
                }
            });
        }
        eventually("many permits are granted", || (reported.lock().unwrap().len() > 100).then_some(()));
        fault();
    });
    reported.into_inner().unwrap()
}

/// Counts the permits that the server no longer lists.
fn forgotten(gate: &Gate, reported: Vec<(String, Permit)>) -> usize {
    let mut forgotten = 0;
    for (name, permit) in reported {
        let state = eventually("the server answers", || gate.semaphore(&name, 1).inspect().ok());
        let holder = state.holders.iter().find(|holder| holder.id == permit.id());
        if holder.is_none_or(|holder| holder.fence != permit.fence()) {
            forgotten += 1;
            println!("{name}: the server lost {permit}");
        }
        eventually("the permit is revoked", || gate.semaphore(&name, 1).revoke(permit.id()).ok());
        drop(permit.into_id());
    }
    forgotten
}

#[test]
fn no_confirmed_permit_is_lost_in_failovers_of_a_cluster() {
    let mut cluster = own!(Cluster::new());
    let gate = open(&format!("redis+cluster://{}", cluster.addresses().join(",")), &cluster.prefix);
    let (mut reported, mut lost) = (0, 0);
    for round in 0..rounds() {
        let master = cluster.masters()[0];
        let tag = cluster.name_on(master);
        let slot = cluster.slot(&tag);
        let name = |number| format!("{{{tag}}}:{round}-{number}");
        let permits = granted_during(&gate, &name, || {
            cluster.kill(master);
            cluster.promoted(slot, master);
        });
        reported += permits.len();
        lost += forgotten(&gate, permits);
        cluster.start(master);
        cluster.settle();
    }
    println!("cluster: {lost} of {reported} grants were lost in {} failovers", rounds());
    assert_eq!(lost, 0);
}

#[test]
fn no_confirmed_permit_is_lost_in_failovers_with_sentinels() {
    let mut group = own!(Sentinels::new());
    let sentinels = group.sentinels.addresses().join(",");
    let gate = open(&format!("redis+sentinel://{sentinels}/{MASTER}"), &group.prefix);
    let (mut reported, mut lost) = (0, 0);
    for round in 0..rounds() {
        let master = group.master();
        let name = |number| format!("{round}-{number}");
        let permits = granted_during(&gate, &name, || {
            group.kill(master);
            group.promoted(master);
        });
        reported += permits.len();
        lost += forgotten(&gate, permits);
        group.start(master);
        group.settle();
    }
    println!("sentinels: {lost} of {reported} grants were lost in {} failovers", rounds());
    assert_eq!(lost, 0);
}
