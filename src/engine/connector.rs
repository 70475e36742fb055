//! How the connections to one server are made: at its address, or to the master that sentinels report.

use super::connection::Connection;
use super::credentials::Source;
use super::endpoint::{ConnectOptions, Endpoint, connect_to};
use super::mode::MayBlock;
use super::sentinels::Sentinels;
use luagate_core::failure::Failure;
use redis::ConnectionAddr;
use std::sync::Arc;
use std::time::Duration;

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

    /// Makes a connection. Also returns [`Connector::moves`] for it.
    pub(super) fn connect(&self, options: &mut ConnectOptions) -> Result<(Arc<Connection>, u64), Failure> {
        match self {
            Connector::Address(endpoint) => Ok((connect_to(endpoint, options)?, 0)),
            Connector::Sentinels(sentinels) => sentinels.connect(options),
        }
    }

    /// The function that returns the user and the password, if the program gave one.
    pub(super) fn credentials(&self) -> Option<&Source> {
        match self {
            Connector::Address(endpoint) => endpoint.credentials.as_ref(),
            Connector::Sentinels(sentinels) => sentinels.credentials(),
        }
    }

    /// How many times another server became the master. Earlier connections must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Connector::Address(_) => 0,
            Connector::Sentinels(sentinels) => sentinels.moves(),
        }
    }

    /// How many names may have to be looked up for a connection.
    pub(super) fn look_ups(&self) -> u32 {
        match self {
            Connector::Address(_) => 1,
            Connector::Sentinels(sentinels) => sentinels.look_ups(),
        }
    }

    /// The server may have another address now: a connection to it has ended.
    pub(super) fn forget_address(&self) {
        match self {
            Connector::Address(endpoint) => endpoint.forget_names(),
            Connector::Sentinels(sentinels) => sentinels.forget_master(),
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
