//! How calls reach a server.

pub(crate) mod address;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod connections;
pub(crate) mod line;
pub(crate) mod listening;
pub(crate) mod node;
pub(crate) mod probe;
#[cfg(feature = "sentinel")]
pub(crate) mod sentinel;
pub(crate) mod servers;
pub(crate) mod source;
pub(crate) mod tls;
pub(crate) mod warning;
