//! The source of a pool's connections: one address, or the current master of the sentinels.

use super::Timeouts;
use super::connect::{open, with_options};
use super::connection::Inner;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::error::failure::Failure;
#[cfg(feature = "r2d2")]
use crate::error::failure::FailureKind;
use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::time::Duration;

pub(crate) enum Connector {
    Client(Box<Client>),
    #[cfg(feature = "sentinel")]
    Sentinels(std::sync::Arc<Sentinels>),
    /// The user's pool, for calls. The client makes all other connections.
    #[cfg(feature = "r2d2")]
    Pool(r2d2::Pool<Client>, Box<Client>),
}

impl Connector {
    /// The server for messages to people, without user and password: an address, or the name of the master.
    pub(crate) fn address(&self) -> String {
        match self {
            Connector::Client(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.master().to_owned(),
            #[cfg(feature = "r2d2")]
            Connector::Pool(_, client) => client.get_connection_info().addr().to_string(),
        }
    }

    /// Connections to this server.
    pub(super) fn at(info: ConnectionInfo) -> Result<Connector, Failure> {
        let client = Client::open(with_options(info).into_connection_info()?)?;
        Ok(Connector::Client(Box::new(client)))
    }

    #[cfg(feature = "r2d2")]
    pub(crate) fn of_pool(pool: r2d2::Pool<Client>, info: ConnectionInfo) -> Result<Connector, Failure> {
        let client = Client::open(with_options(info).into_connection_info()?)?;
        Ok(Connector::Pool(pool, Box::new(client)))
    }

    /// A connection for calls, obtained within `within`, and whether it is lent.
    pub(super) fn pooled(&self, timeouts: &Timeouts, within: Duration) -> Result<(Inner, bool), Failure> {
        #[cfg(feature = "r2d2")]
        if let Connector::Pool(pool, _) = self {
            let con = pool.get_timeout(within).map_err(|error| {
                let failed = match pool.state().connections {
                    0 => FailureKind::Unreachable,
                    _ => FailureKind::PoolExhausted,
                };
                Failure::new(failed, error.to_string())
            })?;
            con.set_read_timeout(Some(timeouts.read))?;
            con.set_write_timeout(Some(timeouts.write))?;
            return Ok((Box::new(con), true));
        }
        let con = self.connect(timeouts, within)?;
        Ok((Box::new(Box::new(con)), false))
    }

    /// Makes a connection within `within`.
    pub(crate) fn connect(&self, timeouts: &Timeouts, within: Duration) -> Result<Connection, Failure> {
        let con = match self {
            Connector::Client(client) => open(client, within),
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.connect(within),
            #[cfg(feature = "r2d2")]
            Connector::Pool(_, client) => open(client, within),
        }?;
        con.set_read_timeout(Some(timeouts.read))?;
        con.set_write_timeout(Some(timeouts.write))?;
        Ok(con)
    }

    /// How many times another server became the master. Earlier connections must not be used any more.
    pub(crate) fn moves(&self) -> u64 {
        match self {
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.moves(),
            _ => 0,
        }
    }

    /// The addresses at which connecting may have failed. Takes `within` at most if it must ask for them.
    pub(crate) fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        match self {
            Connector::Client(client) => {
                let _ = within;
                vec![client.get_connection_info().addr().clone()]
            }
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.addresses(within),
            #[cfg(feature = "r2d2")]
            Connector::Pool(_, client) => vec![client.get_connection_info().addr().clone()],
        }
    }
}
