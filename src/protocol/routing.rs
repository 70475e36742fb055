//! Which server gets a call, and what follows if it does not answer. Nothing here sends anything.

mod attempts;
pub mod batch;
pub mod learning;
pub mod route;
pub mod sentinel;
pub mod slot;
pub mod slots;

/// The number of a server: 0 if there is only one, otherwise one number for each node of a cluster.
pub type NodeId = usize;

/// Host and port.
pub type HostPort = (String, u16);
