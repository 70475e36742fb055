//! The source of a server's connections: one address, or the current master of the sentinels.

#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::error::failure::{Failure, FailureKind};
use crate::transport::connect::{unconnected, with_options};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use std::sync::Arc;
use std::time::Duration;

pub(super) enum Connector {
    Client(Box<Client>),
    #[cfg(feature = "sentinel")]
    Sentinels(Arc<Sentinels>),
}

/// The receiver of messages on a connection.
pub(super) type Push = Arc<dyn AsyncPushSender>;

/// A client with this protocol.
pub(super) fn client(info: &ConnectionInfo, protocol: ProtocolVersion) -> Result<Client, Failure> {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    Ok(Client::open(info.clone().set_redis_settings(settings))?)
}

/// Connects within `within`. Messages go to `push`, which needs RESP3.
pub(super) async fn open(
    client: &Client,
    push: Option<Push>,
    within: Duration,
) -> Result<MultiplexedConnection, Failure> {
    // Every call has its own time limit.
    let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    if let Some(push) = push {
        config = config.set_push_sender(push);
    }
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match tokio::time::timeout(within, connecting).await {
        Ok(connected) => connected.map_err(|error| unconnected(error, within)),
        Err(_) => Err(Failure::new(FailureKind::Unreachable, format!("no answer within {within:.0?}"))),
    }
}

impl Connector {
    /// Connections to this server.
    pub(super) fn at(info: ConnectionInfo) -> Result<Connector, Failure> {
        let client = Client::open(with_options(info).into_connection_info()?)?;
        Ok(Connector::Client(Box::new(client)))
    }

    /// The server for messages to people, without user and password: an address, or the name of the master.
    pub(super) fn address(&self) -> String {
        match self {
            Connector::Client(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.master().to_owned(),
        }
    }

    /// Makes a connection within `within`, with RESP3 if `push` is given.
    pub(super) async fn connect(&self, push: Option<Push>, within: Duration) -> Result<MultiplexedConnection, Failure> {
        match self {
            Connector::Client(known) if push.is_none() => open(known, None, within).await,
            Connector::Client(known) => {
                let client = client(known.get_connection_info(), ProtocolVersion::RESP3)?;
                open(&client, push, within).await
            }
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.connect(push, within).await,
        }
    }

    /// A client for the server at this time, for a second connection that only receives messages.
    pub(super) async fn client(&self, within: Duration) -> Result<Client, Failure> {
        match self {
            Connector::Client(client) => {
                let _ = within;
                Ok(Client::clone(client))
            }
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.client(within).await,
        }
    }

    /// How many times another server became the master. Earlier connections must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        match self {
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.moves(),
            Connector::Client(_) => 0,
        }
    }

    /// The addresses at which connecting may have failed. Takes `within` at most if it must ask for them.
    pub(super) async fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        match self {
            Connector::Client(client) => {
                let _ = within;
                vec![client.get_connection_info().addr().clone()]
            }
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.addresses(within).await,
        }
    }
}
