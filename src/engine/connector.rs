//! Connects to one server: at its address, or to the master that sentinels report.

use super::connect::connect;
use super::connection::{Connection, Receiver};
use super::endpoint::Endpoint;
use super::mode::MayBlock;
use super::sentinels::Sentinels;
use crate::clock::machine_now;
use crate::error::failure::Failure;
use redis::ConnectionAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) enum Connector {
    Address(Box<Endpoint>),
    Sentinels(Arc<Sentinels>),
}

impl Connector {
    /// The server for messages to people, without user and password: an address, or the name of the master.
    pub(super) fn address(&self) -> String {
        match self {
            Connector::Address(endpoint) => endpoint.address().to_string(),
            Connector::Sentinels(sentinels) => sentinels.master().to_owned(),
        }
    }

    /// Makes a connection by `until`, on this machine's clock. Also returns [`Connector::moves`] for it.
    pub(super) fn connect(
        &self,
        receiver: Option<Arc<dyn Receiver>>,
        read_timeout: Duration,
        until: Instant,
        may: MayBlock,
    ) -> Result<(Arc<Connection>, u64), Failure> {
        match self {
            Connector::Address(endpoint) => Ok((connect_to(endpoint, receiver, read_timeout, until, may)?, 0)),
            Connector::Sentinels(sentinels) => sentinels.connect(receiver, read_timeout, until, may),
        }
    }

    /// How many times another server became the master. Earlier connections must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Connector::Address(_) => 0,
            Connector::Sentinels(sentinels) => sentinels.moves(),
        }
    }

    /// The addresses at which connecting may have failed. Takes `within` at most if it must ask for them.
    pub(super) fn addresses(&self, within: Duration, may: MayBlock) -> Vec<ConnectionAddr> {
        match self {
            Connector::Address(endpoint) => vec![endpoint.address().clone()],
            Connector::Sentinels(sentinels) => sentinels.addresses(within, may),
        }
    }
}

/// Makes a connection to this address.
pub(super) fn connect_to(
    endpoint: &Endpoint,
    receiver: Option<Arc<dyn Receiver>>,
    read_timeout: Duration,
    until: Instant,
    _: MayBlock,
) -> Result<Arc<Connection>, Failure> {
    let within = until.saturating_duration_since(machine_now());
    let stream = connect(endpoint, read_timeout, within)?;
    Ok(Arc::new(Connection::new(stream, read_timeout, receiver)))
}
