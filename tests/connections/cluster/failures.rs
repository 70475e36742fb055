//! Promise: when a node of a cluster stalls, crashes or is cut off, calls to other nodes are not delayed. Its
//! holders and waiters continue on the next master.

use super::{LEASE, builder, gate, slot_of, url, wait_in_line, waits};
use crate::own;
use crate::support::cluster::Cluster;
use crate::support::history::{Forgotten, Op};
use crate::support::workers::{self, Workers};
use crate::support::{self, SOON, eventually, process};
use luagate::Lease;

use std::time::{Duration, Instant};

#[test]
fn a_stalled_node_does_not_delay_calls_to_other_nodes() {
    let mut cluster = own!(Cluster::new());
    let masters = cluster.masters();
    let (still, well) = (cluster.name_on(masters[0]), cluster.name_on(masters[1]));
    let gate = builder(&cluster).read_timeout(Duration::from_secs(5)).open().unwrap();
    // A renewal of the first permit blocks for longer than the lease of the second one.
    let short = Duration::from_secs(3);
    let _stuck = gate.semaphore(&still, 1).lease(Lease::renewed(short)).try_acquire().unwrap();
    let permit = gate.semaphore(&well, 1).lease(Lease::renewed(short)).try_acquire().unwrap();
    // No replica replaces the node, and the other nodes keep serving their slots.
    for (_, mut con) in cluster.connections() {
        for setting in ["cluster-require-full-coverage", "cluster-replica-no-failover"] {
            let value = if setting.ends_with("failover") { "yes" } else { "no" };
            let mut config = redis::cmd("CONFIG");
            config.arg("SET").arg(setting).arg(value).exec(&mut con).unwrap();
        }
    }
    cluster.pause(masters[0]);
    let paused = Instant::now();
    while paused.elapsed() < 2 * short {
        assert!(!permit.is_lost(), "the permit was not renewed");
        let asked = Instant::now();
        gate.mutex(&well).try_lock().unwrap().release().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
    permit.release().unwrap();
}

#[test]
fn holders_and_waiters_continue_after_the_master_crashes() {
    let mut cluster = own!(Cluster::new());
    let gate = gate(&cluster);
    let master = cluster.masters()[0];
    let name = cluster.name_on(master);
    let slot = slot_of(&cluster, &name);
    let held = gate.semaphore(&name, 1).lease(Lease::renewed(SOON * 6)).try_acquire().unwrap();
    let waiting: Vec<_> = (0..3).map(|_| wait_in_line(&gate, &name)).collect();
    waits(&gate, &name, 3);
    cluster.settle();
    cluster.kill(master);
    cluster.promoted(slot, master);
    eventually("the new master refreshes the permit", || held.refresh().ok());
    // Every waiter asks again within seconds and so registers its inbox with the new master.
    held.release().unwrap();
    for waiting in waiting {
        waiting.join().unwrap();
    }
}

/// The number of client connections of this kind (`normal` or `pubsub`) on a node.
fn clients(cluster: &Cluster, node: usize, kind: &str) -> usize {
    let mut list = redis::cmd("CLIENT");
    let list = list.arg("LIST").arg("TYPE").arg(kind);
    let list: String = list.query(&mut cluster.connection(node)).unwrap();
    list.lines().count()
}

#[test]
fn connections_to_former_masters_are_closed() {
    let cluster = own!(Cluster::new());
    let name = cluster.name_on(cluster.masters()[0]);
    let slot = slot_of(&cluster, &name);
    let gate = gate(&cluster);
    for waits_on in [false, true] {
        let master = cluster.master(slot);
        // One call and one message, so that both kinds of connections are open.
        let held = gate.semaphore(&name, 1).lease(Lease::fixed(LEASE)).try_acquire().unwrap();
        let waiting = wait_in_line(&gate, &name);
        waits(&gate, &name, 1);
        assert_eq!(clients(&cluster, master, "pubsub"), 1);
        let mut end = Some(|| {
            held.release().unwrap();
            waiting.join().unwrap();
        });
        if let Some(end) = end.take_if(|_| !waits_on) {
            end();
        }
        let next = cluster.replicas(slot)[0];
        cluster.fail_over(slot, next);
        // One connection is the test's.
        eventually("the connections to the former master are closed", || {
            gate.mutex(&name).try_lock().ok()?.release().ok()?;
            let is_subscribed = clients(&cluster, master, "pubsub") > 0;
            let is_asked = clients(&cluster, master, "normal") > 1;
            (!is_subscribed && !is_asked).then_some(())
        });
        if let Some(end) = end {
            end();
        }
    }
}

#[test]
fn workers_continue_while_masters_crash() {
    let mut cluster = own!(Cluster::new());
    let slot = slot_of(&cluster, workers::NAME);
    let workers = Workers::new(&cluster, &url(&cluster), 6);
    for _ in 0..2 {
        workers.continue_for(20);
        let master = cluster.master(slot);
        workers.recorded(&Op::Forget(Forgotten::TheLast), || {
            cluster.kill(master);
            cluster.promoted(slot, master);
        });
        workers.continue_for(20);
        cluster.start(master);
        cluster.settle();
    }
    workers.finish(&cluster, &workers::broken_connections());
}

#[test]
fn workers_continue_while_a_master_is_cut_off_and_returns() {
    let mut cluster = own!(Cluster::new());
    let slot = slot_of(&cluster, workers::NAME);
    let workers = Workers::new(&cluster, &url(&cluster), 6);
    workers.continue_for(20);
    let master = cluster.master(slot);
    workers.recorded(&Op::Forget(Forgotten::TheLast), || {
        cluster.pause(master);
        cluster.promoted(slot, master);
    });
    workers.continue_for(20);
    workers.recorded(&Op::TwoMasters, || {
        cluster.resume(master);
        cluster.steps_down(master);
    });
    cluster.settle();
    workers.continue_for(20);
    workers.finish(&cluster, &workers::broken_connections());
}

/// The processor time that the thread for releases has used, or the threads of a runtime, in hundredths of a
/// second, as Linux counts it.
#[cfg(target_os = "linux")]
fn time_of_releases() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let used: Vec<u64> = threads
        .filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let time = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
            name.contains("(luagate").then_some(time)
        })
        .collect();
    assert!(!used.is_empty(), "there is such a thread");
    used.iter().sum()
}

#[cfg(target_os = "linux")]
#[test]
fn pending_releases_for_an_unreachable_node_use_almost_no_processor_time() {
    // In another process, which has no threads of other tests.
    own!(support::binary());
    assert!(process("away", &[]).status().unwrap().success());
}

#[cfg(target_os = "linux")]
pub fn wait_while_releases_are_pending() {
    let mut cluster = Cluster::new().unwrap();
    let gate = builder(&cluster).read_timeout(Duration::from_millis(100)).open().unwrap();
    let masters = cluster.masters();
    let short = gate.semaphore(&cluster.name_on(masters[0]), 1);
    let short = short.lease(Lease::fixed(Duration::from_millis(900))).acquire().unwrap();
    let long = gate.semaphore(&cluster.name_on(masters[1]), 1).lease(Lease::fixed(LEASE));
    let long = long.acquire().unwrap();
    for node in &masters[..2] {
        cluster.pause(*node);
    }
    drop(short); // drops out at its lease end, before the pause after a failure of its node ends
    drop(long);
    std::thread::sleep(Duration::from_secs(3));
    let before = time_of_releases();
    std::thread::sleep(Duration::from_secs(2));
    let used = time_of_releases() - before;
    assert!(used < 20, "{used} of 200 hundredths of a second");
}
