//! Which node of a cluster has a key, as far as it is known. Sends nothing itself. `N`: the driver's data for a node.

use super::{NodeId, tls};
use crate::error::Invalid;
use crate::error::failure::{Failure, FailureKind};
use redis::cluster_routing::Slot;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The minimum time between two requests for the slots because of a failure.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// Host and port.
pub(crate) type NodeAddress = (String, u16);

pub(crate) struct Slots<N> {
    owners: HashMap<Slot, NodeId>,
    /// All nodes that were ever reported. The index of a node is its number.
    nodes: Vec<N>,
    numbers: BTreeMap<NodeAddress, NodeId>,
    /// This node failed or answered in a way that may mean that slots have moved.
    doubted: Option<NodeId>,
    asked: Option<Instant>,
    /// How many times the owners were updated.
    version: u64,
}

/// What to do before a call for a key is sent.
pub(crate) enum Lookup {
    /// Ask for the slots: the owner of the key is not known.
    Unknown,
    /// The owner is known. If possible, ask for the slots first, this node last.
    Doubtful(NodeId),
    Known,
}

impl<N> Default for Slots<N> {
    fn default() -> Slots<N> {
        Slots {
            owners: HashMap::new(),
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            doubted: None,
            asked: None,
            version: 0,
        }
    }
}

impl<N: Clone> Slots<N> {
    /// The number of the node at this address. A new node gets the next number, and `make` makes its data.
    pub(crate) fn number(
        &mut self,
        address: NodeAddress,
        make: &mut dyn FnMut(NodeId, &NodeAddress) -> Result<N, Failure>,
    ) -> Result<NodeId, Failure> {
        if let Some(number) = self.numbers.get(&address) {
            return Ok(*number);
        }
        let number = self.nodes.len();
        self.nodes.push(make(number, &address)?);
        self.numbers.insert(address, number);
        Ok(number)
    }

    /// All nodes that were ever reported.
    pub(crate) fn nodes(&self) -> &[N] {
        &self.nodes
    }

    pub(crate) fn node(&self, number: NodeId) -> Option<N> {
        self.nodes.get(number).cloned()
    }

    /// The node that has the key.
    pub(crate) fn owner(&self, key: &[u8]) -> Option<NodeId> {
        self.owners.get(&Slot::for_key(key)).copied()
    }

    /// The node that has the key, or the failure that no node has it.
    pub(crate) fn owning_node(&self, key: &[u8]) -> Result<N, Failure> {
        let node = self.owner(key).and_then(|number| self.node(number));
        node.ok_or_else(|| {
            let text = "no node of the cluster has the slot of this key";
            Failure::new(FailureKind::NotReady, text)
        })
    }

    /// Whether to ask for the slots before a call for this key.
    pub(crate) fn look_up(&self, key: &[u8], now: Instant) -> Lookup {
        let is_due = self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH_INTERVAL);
        match (self.owner(key), self.doubted) {
            (None, _) => Lookup::Unknown,
            (Some(_), Some(doubted)) if is_due => Lookup::Doubtful(doubted),
            _ => Lookup::Known,
        }
    }

    /// The slot of this key has moved from one node to another. Other slots may have moved too: the next call with
    /// enough time asks.
    pub(crate) fn moved(&mut self, key: &[u8], from: NodeId, to: NodeId) {
        self.owners.insert(Slot::for_key(key), to);
        self.doubted = Some(from);
    }

    /// This node failed, so the slots may have moved.
    pub(crate) fn doubt(&mut self, node: NodeId) {
        self.doubted = Some(node);
    }

    /// The address in a redirect by node `from`: `host:port`, or `:port` on the host of that node.
    pub(crate) fn address(&self, from: NodeId, to: &str) -> Result<NodeAddress, Failure> {
        let (host, port) = to.rsplit_once(':').ok_or_else(|| no_address(to))?;
        let port = port.parse().map_err(|_| no_address(to))?;
        Ok((self.host(host, from), port))
    }

    /// Without a host, it is the host of the node that reported it.
    fn host(&self, host: &str, source: NodeId) -> String {
        match host {
            "" | "?" => {
                let mut numbers = self.numbers.iter();
                let found = numbers.find(|(_, other)| **other == source);
                found.map(|((host, _), _)| host.clone()).unwrap_or_default()
            }
            host => host.to_owned(),
        }
    }

    /// The number of updates so far.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// No node has reported the slots.
    pub(crate) fn not_learned(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// Node `source` has reported these slots. Returns the numbers of all masters.
    pub(crate) fn learn(
        &mut self,
        source: NodeId,
        ranges: Vec<Range>,
        now: Instant,
        make: &mut dyn FnMut(NodeId, &NodeAddress) -> Result<N, Failure>,
    ) -> Result<BTreeSet<NodeId>, Failure> {
        let mut owners = HashMap::with_capacity(16_384);
        for Range { first, last, host, port } in ranges {
            let address = (self.host(&host, source), port);
            let number = self.number(address, make)?;
            owners.extend((first..=last).filter_map(Slot::new).map(|slot| (slot, number)));
        }
        let masters = owners.values().copied().collect();
        self.owners = owners;
        self.doubted = None;
        self.asked = Some(now);
        self.version += 1;
        Ok(masters)
    }
}

/// The address of each of these nodes, and the settings of connections to all of them.
pub(crate) fn addresses_of(nodes: &[ConnectionInfo]) -> Result<(ConnectionInfo, Vec<NodeAddress>), Invalid> {
    let Some(like) = nodes.first().cloned() else {
        return Err(Invalid::new("nodes", "got none. Accepted: the address of 1 node or more"));
    };
    if nodes.iter().any(|info| info.redis_settings().db() != 0) {
        let why = "the database is not 0. Accepted: no database, since a cluster has only the database 0";
        return Err(Invalid::new("url", why));
    }
    if nodes.iter().any(|info| tls::is_used(info) != tls::is_used(&like)) {
        let why = "some addresses use TLS and some do not. Accepted: TLS for all nodes of a cluster, or for none";
        return Err(Invalid::new("url", why));
    }
    let addresses = nodes.iter().map(|info| match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
        _ => {
            let why = "a node has no host and port. Accepted: host and port for each node of a cluster";
            Err(Invalid::new("url", why))
        }
    });
    Ok((like, addresses.collect::<Result<_, _>>()?))
}

fn no_address(to: &str) -> Failure {
    let text = format!("a node of the cluster redirects to {to:?}, which is not an address");
    Failure::new(FailureKind::UnexpectedReply, text)
}

/// A range of slots of one master.
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The command that asks a node for the slots.
pub(crate) fn command() -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

/// Reads the reply to [`command`].
pub(crate) fn read(reply: Value) -> Result<Vec<Range>, Failure> {
    let ranges: Option<Vec<Range>> = match &reply {
        Value::Array(rows) => rows.iter().map(range).collect(),
        _ => None,
    };
    match ranges {
        Some(ranges) if ranges.is_empty() => {
            let text = "the cluster has not assigned slots to its nodes yet";
            Err(Failure::new(FailureKind::NotReady, text))
        }
        Some(ranges) => Ok(ranges),
        None => {
            let text = "the reply to CLUSTER SLOTS has an unknown form";
            Err(Failure::new(FailureKind::UnexpectedReply, text))
        }
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
