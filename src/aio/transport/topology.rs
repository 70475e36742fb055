//! One server, or the nodes of a cluster.

#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::connector::Connector;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::server::{Server, ServerOptions};
use crate::error::CallError;
use crate::transport::NodeId;
use crate::transport::address::Address;
use std::sync::Arc;

pub(super) enum Topology {
    One(Arc<Server>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

impl Topology {
    /// The servers at this address. Does not connect yet.
    pub(super) fn new(address: Address, options: ServerOptions) -> Result<Topology, CallError> {
        let connector = match address {
            Address::One(info) => Connector::at(info),
            #[cfg(feature = "r2d2")]
            Address::Pool(_, info) => Connector::at(info),
            #[cfg(feature = "sentinel")]
            Address::Sentinel { sentinels, master, like } => {
                Sentinels::new(sentinels, master, like).map(Connector::Sentinels)
            }
            #[cfg(feature = "cluster")]
            Address::Cluster(nodes) => {
                return Ok(Topology::Cluster(Box::new(Cluster::new(&nodes, options)?)));
            }
        };
        let server = Server::new(options, 0, connector.map_err(CallError::Failed)?);
        Ok(Topology::One(Arc::new(server)))
    }

    /// All known servers.
    pub(super) fn nodes(&self) -> Vec<Arc<Server>> {
        match self {
            Topology::One(server) => vec![server.clone()],
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The server that has the key, as far as it is known without asking.
    pub(super) fn node_of(&self, key: &[u8]) -> NodeId {
        match self {
            Topology::One(_) => {
                let _ = key;
                0
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.node_of(key),
        }
    }

    pub(super) fn node(&self, node: NodeId) -> Option<Arc<Server>> {
        match self {
            Topology::One(server) => {
                let _ = node;
                Some(server.clone())
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.node(node),
        }
    }
}
