//! Promise: semaphores on every node of a cluster work as on one server. Operations on many permits send one
//! packet to each node.

use super::{LEASE, MINUTE, gate, wait_in_line, waits};
use crate::own;
use crate::support::cluster::Cluster;
use crate::support::eventually;

use luagate::admin;
use luagate::errors::FailureKind;
use luagate::{Gate, Lease, Permit, autocomplete};
use std::time::{Duration, Instant};

#[test]
fn a_waiter_on_any_node_is_granted_by_message() {
    let cluster = own!(Cluster::new());
    let (gate, other) = (gate(&cluster), gate(&cluster));
    for master in cluster.masters() {
        let name = cluster.name_on(master);
        let held = gate.semaphore(&name, 1).lease(Lease::fixed(LEASE)).try_acquire().unwrap();
        let waiting: Vec<_> = (0..3).map(|_| wait_in_line(&other, &name)).collect();
        waits(&gate, &name, 3);
        let released = Instant::now();
        held.release().unwrap();
        for waiting in waiting {
            let took = waiting.join().unwrap().duration_since(released);
            assert!(took < Duration::from_secs(1), "granted by polling, not by a message: {took:?}");
        }
    }
}

#[test]
fn every_kind_of_lock_works_on_every_node() {
    let cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let names: Vec<String> = cluster.masters().iter().map(|m| cluster.name_on(*m)).collect();
    let all = gate.mutexes(&names).acquire_timeout(MINUTE).unwrap();
    for name in &names {
        assert!(gate.mutex(name).try_lock().is_err());
    }
    all.refresh().unwrap();
    all.release().unwrap();
    for name in &names {
        let lock = gate.rwlock(name);
        let reader = lock.try_read().unwrap();
        assert!(lock.try_write().is_err());
        reader.release().unwrap();
        let latch = gate.latch(name, 1);
        latch.count_down().unwrap();
        latch.wait_timeout(MINUTE).unwrap();
        autocomplete::Recent::new(&gate, name).add("contact").unwrap();
        let short = gate.semaphore(name, 1).lease(Lease::renewed(Duration::from_secs(2)));
        let permit = short.try_acquire().unwrap();
        eventually("time passes", || {
            (permit.remaining().unwrap() < Duration::from_millis(1_700)).then_some(())
        });
        eventually("it is renewed", || {
            (permit.remaining().unwrap() > Duration::from_millis(1_900)).then_some(())
        });
    }
    let grouped = gate.mutexes(["{g}:a", "{g}:b"]);
    grouped.try_acquire().unwrap().release().unwrap();
}

#[test]
fn the_names_of_all_nodes_are_found() {
    let cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let mut expected: Vec<String> = cluster.masters().iter().map(|master| cluster.name_on(*master)).collect();
    let permits: Vec<_> = expected.iter().map(|name| gate.semaphore(name, 1).acquire().unwrap()).collect();
    let mut found: Vec<String> = admin::names(&gate).unwrap().map(|name| name.unwrap().name).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(admin::masters(&gate).unwrap().len(), expected.len(), "no replicas");
    for outcome in Permit::release_each(permits) {
        outcome.unwrap();
    }
}

/// How often a node read from clients.
fn reads(cluster: &Cluster, node: usize) -> u64 {
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("stats").query(&mut cluster.connection(node)).unwrap();
    let mut lines = info.lines();
    let reads = lines.find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.unwrap().parse().unwrap()
}

#[test]
fn many_permits_need_one_packet_for_each_node() {
    let cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let masters = cluster.masters();
    let names: Vec<String> = masters.iter().map(|m| cluster.name_on(*m)).collect();
    let on_each = |count: u32| -> Vec<Permit> {
        let semaphores = names.iter().map(|name| gate.semaphore(name, 40).lease(Lease::fixed(LEASE)));
        let semaphores: Vec<_> = semaphores.collect();
        let rounds = (0..count).flat_map(|_| &semaphores);
        rounds.map(|semaphore| semaphore.try_acquire().unwrap()).collect()
    };
    // From here on the nodes have the scripts loaded.
    let known = on_each(1);
    assert!(Permit::refresh_each(&known).iter().all(Result::is_ok));
    assert!(Permit::release_each(known).iter().all(Result::is_ok));
    let permits = on_each(30);
    let before: Vec<u64> = masters.iter().map(|m| reads(&cluster, *m)).collect();
    assert!(Permit::refresh_each(&permits).iter().all(Result::is_ok));
    assert!(Permit::release_each(permits).iter().all(Result::is_ok));
    for (master, before) in masters.iter().zip(before) {
        // One round trip for each permit would take 60 reads.
        let reads = reads(&cluster, *master) - before;
        assert!(reads < 30, "{reads} reads");
    }
}

#[test]
fn a_gate_with_the_url_of_a_single_node_reports_the_url_to_use() {
    let cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let gate = Gate::builder(cluster.urls()[masters[0]]).prefix(&cluster.prefix);
    let gate = gate.open().unwrap();
    let error = gate.semaphore(&cluster.name_on(masters[1]), 1).try_acquire().unwrap_err();
    let luagate::errors::TryAcquireError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.kind(), FailureKind::Moved);
    assert!(failure.to_string().contains("redis+cluster://"), "{failure}");
}
