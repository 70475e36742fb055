//! Sends calls to a server and receives the replies, in tasks: one multiplexed connection for each server.

#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod connector;
mod queue;
mod route;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
pub(super) mod servers;
mod topology;

pub(super) use connection::Connection;
pub(super) use route::Unanswered;
pub(super) use server::{Listener, Server, ServerOptions};

use crate::protocol::replicas::MinReplicas;
use std::time::Instant;

/// How a call is sent.
#[derive(Clone, Copy, Default)]
pub(super) struct Sending {
    /// Stops waiting for the reply at this time on the gate's clock; `None`: after the read timeout.
    pub(super) until: Option<Instant>,
    /// The replicas that must confirm the call.
    pub(super) replicas: Option<MinReplicas>,
}
