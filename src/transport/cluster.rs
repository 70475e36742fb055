//! The nodes of a cluster, and which of them has a key.
//!
//! Each node has a separate pool, so that a node that does not answer delays no calls to other nodes. A
//! `ClusterConnection` of `redis` would ask every node, one after the other, whenever slots have moved.

#[cfg(test)]
mod tests;

use super::connect::moved_to;
use super::connector::Connector;
use super::pool::{Pool, PoolOptions, Sending};
use super::{NodeId, tls};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Invalid};
use crate::sync::lock;
use redis::cluster_routing::Slot;
use redis::{ConnectionAddr, ConnectionInfo, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The minimum time between two requests for the slots because of a failure.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// How long one node may take to report the slots, before another one is asked.
const REPORTED_WITHIN: Duration = Duration::from_millis(500);

pub(crate) struct Cluster {
    options: PoolOptions,
    /// The settings of connections, except the address.
    like: ConnectionInfo,
    map: Mutex<Map>,
    /// Held by the thread that asks for the slots. The others use its result.
    asking: Mutex<()>,
}

#[derive(Default)]
struct Map {
    owners: HashMap<Slot, usize>,
    /// All nodes that were ever reported. The index of a node is its number.
    nodes: Vec<Arc<Pool>>,
    numbers: BTreeMap<(String, u16), usize>,
    /// This node failed or answered in a way that may mean that slots have moved.
    doubted: Option<NodeId>,
    asked: Option<Instant>,
    /// How many times the owners were updated.
    version: u64,
}

impl Cluster {
    /// Stores these addresses. Does not connect yet.
    pub(crate) fn new(nodes: &[ConnectionInfo], options: PoolOptions) -> Result<Cluster, CallError> {
        let Some(like) = nodes.first().cloned() else {
            return Err(Invalid::new("nodes", "got none. Accepted: the address of 1 node or more").into());
        };
        if nodes.iter().any(|info| info.redis_settings().db() != 0) {
            let why = "the database is not 0. Accepted: no database, since a cluster has only the database 0";
            return Err(Invalid::new("url", why).into());
        }
        if nodes.iter().any(|info| tls::is_used(info) != tls::is_used(&like)) {
            let why = "some addresses use TLS and some do not. Accepted: TLS for all nodes of a cluster, or for none";
            return Err(Invalid::new("url", why).into());
        }
        let cluster = Cluster { options, like, map: Mutex::default(), asking: Mutex::default() };
        let mut map = lock(&cluster.map);
        for info in nodes {
            let address = match info.addr() {
                ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
                ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
                _ => {
                    let why = "a node has no host and port. Accepted: host and port for each node of a cluster";
                    return Err(Invalid::new("url", why).into());
                }
            };
            cluster.number(&mut map, address).map_err(CallError::Failed)?;
        }
        drop(map);
        Ok(cluster)
    }

    /// Asks for the slots. This detects a wrong address.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.ask_for_slots(None, None)
    }

    /// The number of the node at this address. A new node gets the next number.
    fn number(&self, map: &mut Map, address: (String, u16)) -> Result<usize, Failure> {
        if let Some(number) = map.numbers.get(&address) {
            return Ok(*number);
        }
        let number = map.nodes.len();
        let to = moved_to(self.like.addr(), address.0.clone(), address.1);
        let source = Connector::at(self.like.clone().set_addr(to))?;
        let connections = Pool::new(self.options.clone(), number, source);
        map.nodes.push(Arc::new(connections));
        map.numbers.insert(address, number);
        Ok(number)
    }

    /// All nodes that were ever reported.
    pub(crate) fn nodes(&self) -> Vec<Arc<Pool>> {
        lock(&self.map).nodes.clone()
    }

    /// The node with this number.
    pub(crate) fn node(&self, number: usize) -> Option<Arc<Pool>> {
        lock(&self.map).nodes.get(number).cloned()
    }

    /// The node that has the key, as far as the stored slots show it.
    pub(crate) fn node_of(&self, key: &[u8]) -> NodeId {
        self.known(key).unwrap_or(0)
    }

    pub(super) fn known(&self, key: &[u8]) -> Option<NodeId> {
        lock(&self.map).owners.get(&Slot::for_key(key)).copied()
    }

    /// The node that has the key. Asks for the slots if the node is unknown; also if it is doubtful and no other thread
    /// asks already. Blocks until `until` at most.
    pub(super) fn owner(&self, key: &[u8], until: Option<Instant>) -> Result<Arc<Pool>, Failure> {
        let slot = Slot::for_key(key);
        let now = self.options.clock.now();
        let map = lock(&self.map);
        let is_due = map.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH_INTERVAL);
        let has_time = until.is_none_or(|until| now < until);
        let (doubted, is_known) = (map.doubted, map.owners.contains_key(&slot));
        drop(map);
        if !is_known {
            self.ask_for_slots(None, until)?;
        } else if doubted.is_some()
            && is_due
            && has_time
            && let Ok(asking) = self.asking.try_lock()
        {
            let _ = self.ask_nodes(&asking, doubted, until);
        }
        let map = lock(&self.map);
        let owner = map.owners.get(&slot);
        let owner = owner.and_then(|number| map.nodes.get(*number));
        owner.cloned().ok_or_else(|| {
            let text = "no node of the cluster has the slot of this key";
            Failure::new(FailureKind::NotReady, text)
        })
    }

    /// The slot of this key has moved to node `to`.
    pub(super) fn moved(&self, key: &[u8], from: NodeId, to: &str) -> Result<(), Failure> {
        let mut map = lock(&self.map);
        let number = self.number_at(&mut map, from, to)?;
        map.owners.insert(Slot::for_key(key), number);
        // Other slots may have moved too. The next call with enough time asks.
        map.doubted = Some(from);
        Ok(())
    }

    /// This node failed, so the slots may have moved.
    pub(super) fn doubt(&self, node: NodeId) {
        lock(&self.map).doubted = Some(node);
    }

    /// The node at `to`.
    pub(super) fn at(&self, from: NodeId, to: &str) -> Result<Arc<Pool>, Failure> {
        let mut map = lock(&self.map);
        let number = self.number_at(&mut map, from, to)?;
        let node = map.nodes.get(number).cloned();
        node.ok_or_else(|| no_address(to))
    }

    /// The number of the node at `to`, which is `host:port`, or `:port` on the host of node `from`.
    fn number_at(&self, map: &mut Map, from: NodeId, to: &str) -> Result<NodeId, Failure> {
        let (host, port) = to.rsplit_once(':').ok_or_else(|| no_address(to))?;
        let port = port.parse().map_err(|_| no_address(to))?;
        let host = match host {
            "" | "?" => host_of(map, from),
            host => host.to_owned(),
        };
        self.number(map, (host, port))
    }

    /// Asks for the slots, or waits while another thread asks. Node `last` has just failed and is asked last.
    pub(super) fn ask_for_slots(&self, last: Option<NodeId>, until: Option<Instant>) -> Result<(), Failure> {
        let before = lock(&self.map).version;
        let asking = lock(&self.asking);
        if lock(&self.map).version != before {
            return Ok(()); // another thread has updated the slots
        }
        self.ask_nodes(&asking, last, until)
    }

    /// Asks one node after the other for the slots, until one answers or until `until`.
    fn ask_nodes(&self, _asking: &MutexGuard<()>, last: Option<NodeId>, until: Option<Instant>) -> Result<(), Failure> {
        let mut nodes = self.nodes();
        nodes.sort_by_key(|node| (Some(node.node()) == last, node.is_retired()));
        let mut failure = Failure::new(FailureKind::Unreachable, "no node is known");
        for node in nodes {
            let latest = self.options.clock.now() + REPORTED_WITHIN;
            match slots(&node, until.map_or(latest, |until| until.min(latest))) {
                Ok(ranges) => return self.learn(&node, ranges),
                Err(other) => failure = other,
            }
            if until.is_some_and(|until| until <= self.options.clock.now()) {
                break;
            }
        }
        lock(&self.map).asked = Some(self.options.clock.now());
        Err(failure)
    }

    fn learn(&self, source: &Pool, ranges: Vec<Range>) -> Result<(), Failure> {
        let mut map = lock(&self.map);
        let mut owners = HashMap::with_capacity(16_384);
        for Range { first, last, host, port } in ranges {
            let host = match host.as_str() {
                "" | "?" => host_of(&map, source.node()),
                _ => host,
            };
            let number = self.number(&mut map, (host, port))?;
            owners.extend((first..=last).filter_map(Slot::new).map(|slot| (slot, number)));
        }
        let masters: std::collections::BTreeSet<usize> = owners.values().copied().collect();
        for node in &map.nodes {
            node.retire(!masters.contains(&node.node()));
        }
        map.owners = owners;
        map.doubted = None;
        map.asked = Some(self.options.clock.now());
        map.version += 1;
        Ok(())
    }
}

fn no_address(to: &str) -> Failure {
    let text = format!("a node of the cluster redirects to {to:?}, which is not an address");
    Failure::new(FailureKind::UnexpectedReply, text)
}

fn host_of(map: &Map, number: usize) -> String {
    let mut numbers = map.numbers.iter();
    let found = numbers.find(|(_, other)| **other == number);
    found.map(|((host, _), _)| host.clone()).unwrap_or_default()
}

/// A range of slots of one master.
struct Range {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

fn slots(node: &Pool, until: Instant) -> Result<Vec<Range>, Failure> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let sending = Sending { until: Some(until), ..Sending::default() };
    let reply = node.command(&command, sending)??;
    let unreadable = || {
        let text = "the reply to CLUSTER SLOTS has an unknown form";
        Failure::new(FailureKind::UnexpectedReply, text)
    };
    let Value::Array(rows) = reply else {
        return Err(unreadable());
    };
    let ranges: Option<Vec<Range>> = rows.iter().map(range).collect();
    match ranges {
        Some(ranges) if ranges.is_empty() => {
            let text = "the cluster has not assigned slots to its nodes yet";
            Err(Failure::new(FailureKind::NotReady, text))
        }
        Some(ranges) => Ok(ranges),
        None => Err(unreadable()),
    }
}

/// Reads a row: first slot, last slot, the master as host, port and more, then the replicas.
fn range(row: &Value) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = row.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(), // the host of the node that was asked
        _ => return None,
    };
    Some(Range {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        host,
        port: u16::try_from(*port).ok()?,
    })
}
