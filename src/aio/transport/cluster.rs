//! The nodes of a cluster, and which of them has a key. Each node has a separate connection.

use super::connector::Connector;
use super::server::{Server, ServerOptions};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::sync::lock;
use crate::transport::NodeId;
use crate::transport::connect::moved_to;
use crate::transport::slots::{self, Lookup, NodeAddress, Range, Slots, addresses_of};
use redis::ConnectionInfo;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long one node may take to report the slots, before another one is asked.
const REPORTED_WITHIN: Duration = Duration::from_millis(500);

pub(super) struct Cluster {
    options: ServerOptions,
    /// The settings of connections, except the address.
    like: ConnectionInfo,
    slots: Mutex<Slots<Arc<Server>>>,
    /// Locked by the task that asks for the slots. The others use its result.
    asking: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// Stores these addresses. Does not connect yet.
    pub(super) fn new(nodes: &[ConnectionInfo], options: ServerOptions) -> Result<Cluster, CallError> {
        let (like, addresses) = addresses_of(nodes)?;
        let cluster = Cluster { options, like, slots: Mutex::default(), asking: tokio::sync::Mutex::default() };
        let mut slots = lock(&cluster.slots);
        for address in addresses {
            slots.number(address, &mut |number, at| cluster.server(number, at)).map_err(CallError::Failed)?;
        }
        drop(slots);
        Ok(cluster)
    }

    /// The node at this address.
    fn server(&self, number: NodeId, address: &NodeAddress) -> Result<Arc<Server>, Failure> {
        let to = moved_to(self.like.addr(), address.0.clone(), address.1);
        let connector = Connector::at(self.like.clone().set_addr(to))?;
        Ok(Arc::new(Server::new(self.options.clone(), number, connector)))
    }

    /// All nodes that were ever reported.
    pub(super) fn nodes(&self) -> Vec<Arc<Server>> {
        lock(&self.slots).nodes().to_vec()
    }

    /// The node with this number.
    pub(super) fn node(&self, number: NodeId) -> Option<Arc<Server>> {
        lock(&self.slots).node(number)
    }

    /// The node that has the key, as far as the stored slots show it.
    pub(super) fn node_of(&self, key: &[u8]) -> NodeId {
        self.known(key).unwrap_or(0)
    }

    pub(super) fn known(&self, key: &[u8]) -> Option<NodeId> {
        lock(&self.slots).owner(key)
    }

    /// The node that has the key. Asks for the slots if the node is unknown; also if it is doubtful and no other task
    /// asks already. Waits until `until` at most.
    pub(super) async fn owner(&self, key: &[u8], until: Option<Instant>) -> Result<Arc<Server>, Failure> {
        let now = self.options.clock.now();
        let lookup = lock(&self.slots).look_up(key, now);
        match lookup {
            Lookup::Unknown => self.ask_for_slots(None, until).await?,
            Lookup::Doubtful(doubted) if until.is_none_or(|until| now < until) => {
                if let Ok(_asking) = self.asking.try_lock() {
                    let _ = self.ask_nodes(Some(doubted), until).await;
                }
            }
            Lookup::Doubtful(_) | Lookup::Known => {}
        }
        lock(&self.slots).owning_node(key)
    }

    /// The slot of this key has moved to node `to`.
    pub(super) fn moved(&self, key: &[u8], from: NodeId, to: &str) -> Result<(), Failure> {
        let mut slots = lock(&self.slots);
        let number = self.number_at(&mut slots, from, to)?;
        slots.moved(key, from, number);
        Ok(())
    }

    /// This node failed, so the slots may have moved.
    pub(super) fn doubt(&self, node: NodeId) {
        lock(&self.slots).doubt(node);
    }

    /// The node at `to`.
    pub(super) fn at(&self, from: NodeId, to: &str) -> Result<Arc<Server>, Failure> {
        let mut slots = lock(&self.slots);
        let number = self.number_at(&mut slots, from, to)?;
        let node = slots.node(number);
        node.ok_or_else(|| Failure::new(FailureKind::Other, "the node of a redirect is unknown"))
    }

    /// The number of the node at `to`, to which node `from` redirects.
    fn number_at(&self, slots: &mut Slots<Arc<Server>>, from: NodeId, to: &str) -> Result<NodeId, Failure> {
        let address = slots.address(from, to)?;
        slots.number(address, &mut |number, at| self.server(number, at))
    }

    /// Asks for the slots, or waits while another task asks. Node `last` has just failed and is asked last.
    pub(super) async fn ask_for_slots(&self, last: Option<NodeId>, until: Option<Instant>) -> Result<(), Failure> {
        let before = lock(&self.slots).version();
        let _asking = self.asking.lock().await;
        if lock(&self.slots).version() != before {
            return Ok(()); // another task has updated the slots
        }
        self.ask_nodes(last, until).await
    }

    /// Asks one node after the other for the slots, until one answers or until `until`. The caller has locked `asking`.
    async fn ask_nodes(&self, last: Option<NodeId>, until: Option<Instant>) -> Result<(), Failure> {
        let mut nodes = self.nodes();
        nodes.sort_by_key(|node| (Some(node.node()) == last, node.is_retired()));
        let mut failure = Failure::new(FailureKind::Unreachable, "no node is known");
        for node in nodes {
            let latest = self.options.clock.now() + REPORTED_WITHIN;
            match ask(&node, until.map_or(latest, |until| until.min(latest))).await {
                Ok(ranges) => return self.learn(&node, ranges),
                Err(other) => failure = other,
            }
            if until.is_some_and(|until| until <= self.options.clock.now()) {
                break;
            }
        }
        lock(&self.slots).not_learned(self.options.clock.now());
        Err(failure)
    }

    fn learn(&self, source: &Server, ranges: Vec<Range>) -> Result<(), Failure> {
        let mut slots = lock(&self.slots);
        let now = self.options.clock.now();
        let masters = slots.learn(source.node(), ranges, now, &mut |number, at| self.server(number, at))?;
        for node in slots.nodes() {
            node.retire(!masters.contains(&node.node()));
        }
        Ok(())
    }
}

/// Asks a node for the slots.
async fn ask(node: &Server, until: Instant) -> Result<Vec<Range>, Failure> {
    slots::read(node.command(&slots::command(), Some(until)).await??)
}
