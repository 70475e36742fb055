//! Promise: on a Redis Cluster everything works as on one server, for keys on every node. A failing node does
//! not delay calls to other nodes. Slots can move while there are holders and waiters.

mod as_one_server;
mod failures;
mod slots;

#[cfg(target_os = "linux")]
pub use failures::wait_while_releases_are_pending;

use crate::support::cluster::Cluster;
use crate::support::eventually;
use crate::support::workers::Deployment;

use luagate::scripts::Keys;
use luagate::{Gate, GateBuilder, Lease};
use redis::Connection;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(600);

/// Lists only the last node. The client discovers the others.
fn url(cluster: &Cluster) -> String {
    let last = cluster.addresses().len() - 1;
    format!("redis+cluster://{}", cluster.addresses()[last])
}

fn builder(cluster: &Cluster) -> GateBuilder {
    Gate::builder(&url(cluster)).prefix(&cluster.prefix)
}

fn gate(cluster: &Cluster) -> Gate {
    builder(cluster).open().unwrap()
}

impl Deployment for Cluster {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn gate(&self) -> Gate {
        gate(self)
    }

    fn connection_for(&self, key: &str) -> Connection {
        self.connection(self.master(self.slot(key)))
    }
}

/// The slot of the semaphore with this name.
fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    let keys = Keys::semaphore(&cluster.prefix, name).unwrap();
    cluster.slot(keys.list()[0])
}

/// Waits in line in a thread, and returns what it was granted.
fn wait_in_line(gate: &Gate, name: &str) -> std::thread::JoinHandle<Instant> {
    let semaphore = gate.semaphore(name, 1).lease(Lease::fixed(LEASE));
    std::thread::spawn(move || {
        let permit = semaphore.acquire_timeout(MINUTE).unwrap();
        let granted = Instant::now();
        permit.release().unwrap();
        granted
    })
}

fn waits(gate: &Gate, name: &str, count: u64) {
    eventually("they wait", || {
        let state = gate.semaphore(name, 1).inspect().unwrap();
        (state.waiter_count == count).then_some(())
    });
}
