//! The nodes of a cluster. Each has its own connection, so that a node that does not answer delays no calls
//! to other nodes.

use super::connector::Connector;
use super::endpoint::Endpoint;
use super::mode::Mode;
use super::server::{Server, ServerOptions};
use super::slot::Slot;
use crate::sync::lock;
use luagate_core::routing::slots::SlotMap;
use luagate_core::routing::{HostPort, NodeId};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) struct Cluster {
    options: ServerOptions,
    /// The settings of all connections, except the address.
    like: Endpoint,
    state: Mutex<ClusterState>,
    /// Whether a caller asks for the slots.
    is_learning: Slot<bool>,
}

struct ClusterState {
    slots: SlotMap,
    /// By their numbers.
    servers: Vec<Arc<Server>>,
}

impl Cluster {
    /// Stores these addresses. Does not connect yet.
    pub(super) fn new(options: ServerOptions, nodes: Vec<HostPort>, like: Endpoint) -> Cluster {
        let state = Mutex::new(ClusterState { slots: SlotMap::new(nodes), servers: Vec::new() });
        let is_learning = Slot::of_machine(&options.foreign, false);
        let cluster = Cluster { options, like, state, is_learning };
        cluster.change(|_| {});
        cluster
    }

    /// All nodes that were ever reported.
    pub(super) fn nodes(&self) -> Vec<Arc<Server>> {
        lock(&self.state).servers.clone()
    }

    pub(super) fn server(&self, node: NodeId) -> Option<Arc<Server>> {
        lock(&self.state).servers.get(node).cloned()
    }

    /// Runs `look` on the slots, which may not add or retire nodes.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut SlotMap) -> T) -> T {
        look(&mut lock(&self.state).slots)
    }

    /// Changes the slots. New nodes get a server; nodes that are not masters need no connection.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SlotMap) -> T) -> T {
        let mut state = lock(&self.state);
        let result = change(&mut state.slots);
        let ClusterState { slots, servers } = &mut *state;
        for (number, (host, port)) in slots.nodes().iter().enumerate().skip(servers.len()) {
            let endpoint = Box::new(self.like.moved_to(host.clone(), *port));
            servers.push(Server::new(self.options.clone(), number, Connector::Address(endpoint)));
        }
        let retired: Vec<_> =
            servers.iter().map(|server| (server.clone(), slots.is_retired(server.node))).collect();
        drop(state);
        retired.iter().for_each(|(server, is_retired)| server.retire(*is_retired)); // without the lock
        result
    }

    /// The turn to ask for the slots. `None`: another caller asks, and this one does not wait, or not until
    /// it has ended.
    pub(super) async fn take_turn(&self, waits: bool, latest: Instant, mode: Mode) -> Option<Turn<'_>> {
        let take = |is_learning: &mut bool| {
            let is_taken = std::mem::replace(is_learning, true);
            (!is_taken || !waits).then_some(!is_taken)
        };
        let is_mine = self.is_learning.until(Some(latest), mode, take).await?;
        is_mine.then(|| Turn(self))
    }
}

/// The turn to ask for the slots, until this is dropped.
pub(super) struct Turn<'a>(&'a Cluster);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.0.options.foreign.is_own_process() {
            self.0.is_learning.change(|is_learning| *is_learning = false);
        }
    }
}
