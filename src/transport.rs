//! Sends calls to a server and receives the replies: connections, packets, and the nodes of a cluster.

pub(crate) mod address;
pub(crate) mod attempts;
#[cfg(feature = "cluster")]
mod cluster;
pub(crate) mod connect;
mod connection;
mod connector;
pub(crate) mod eviction;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod route;
#[cfg(feature = "sentinel")]
pub(crate) mod sentinel;
pub(crate) mod servers;
#[cfg(feature = "cluster")]
pub(crate) mod slots;
pub(crate) mod subscription;
pub(crate) mod tls;
mod topology;

pub(crate) use connection::PendingConnection;

use std::time::Duration;

/// The number of a server: 0 if there is only one, otherwise one number for each node of a cluster.
pub(crate) type NodeId = usize;

/// The timeouts for connecting, reading and writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) read: Duration,
    pub(crate) write: Duration,
}
