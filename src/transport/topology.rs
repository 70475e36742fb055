//! One server, or the nodes of a cluster.

use super::NodeId;
use super::address::Address;
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::connector::Connector;
use super::pool::{Pool, PoolOptions};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::error::CallError;
use std::sync::Arc;

pub(super) enum Topology {
    One(Arc<Pool>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

impl Topology {
    /// The servers at this address, each with a pool. Does not connect yet.
    pub(super) fn new(address: Address, options: PoolOptions) -> Result<Topology, CallError> {
        let connector = match address {
            Address::One(info) => Connector::at(info),
            #[cfg(feature = "r2d2")]
            Address::Pool(pool, info) => Connector::of_pool(pool, info),
            #[cfg(feature = "sentinel")]
            Address::Sentinel { sentinels, master, like } => {
                Sentinels::new(sentinels, master, like).map(Connector::Sentinels)
            }
            #[cfg(feature = "cluster")]
            Address::Cluster(nodes) => {
                return Ok(Topology::Cluster(Box::new(Cluster::new(&nodes, options)?)));
            }
        };
        let pool = Pool::new(options, 0, connector.map_err(CallError::Failed)?);
        Ok(Topology::One(Arc::new(pool)))
    }

    /// All known servers.
    pub(super) fn nodes(&self) -> Vec<Arc<Pool>> {
        match self {
            Topology::One(pool) => vec![pool.clone()],
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

    pub(super) fn pool(&self, node: NodeId) -> Option<Arc<Pool>> {
        match self {
            Topology::One(pool) => {
                let _ = node;
                Some(pool.clone())
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.node(node),
        }
    }
}
