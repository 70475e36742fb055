//! Where a pool's connections come from: one address, or whatever server the sentinels call master.

use super::address::Address;
use super::connection::Line;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::{Timeouts, tls};
use crate::error::failure::{Failure, FailureKind};
use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
};
use std::time::Duration;

pub(crate) enum Connector {
    Client(Box<Client>),
    #[cfg(feature = "sentinel")]
    Sentinels(std::sync::Arc<Sentinels>),
    /// The user's pool; whatever is not for calls is connected by itself.
    #[cfg(feature = "r2d2")]
    Pool(r2d2::Pool<Client>, Box<Client>),
}

impl Connector {
    /// Where that is, as people write it; no user and no password.
    pub(crate) fn address(&self) -> String {
        match self {
            Connector::Client(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.master().to_owned(),
            #[cfg(feature = "r2d2")]
            Connector::Pool(_, client) => client.get_connection_info().addr().to_string(),
        }
    }

    pub(super) fn new(address: Address) -> Result<Connector, Failure> {
        match address {
            Address::One(info) => Connector::at(info),
            #[cfg(feature = "r2d2")]
            Address::Pool(pool, info) => Connector::of_pool(pool, info),
            #[cfg(feature = "sentinel")]
            Address::Sentinel {
                sentinels,
                master,
                like,
            } => Sentinels::new(sentinels, master, like).map(Connector::Sentinels),
            #[cfg(feature = "cluster")]
            Address::Cluster(_) => Err(Failure::new(
                FailureKind::Other,
                "a cluster has no one address",
            )),
        }
    }

    /// Connections to this server.
    pub(crate) fn at(info: ConnectionInfo) -> Result<Connector, Failure> {
        let client = Client::open(settled(info).into_connection_info()?)?;
        Ok(Connector::Client(Box::new(client)))
    }

    #[cfg(feature = "r2d2")]
    pub(crate) fn of_pool(
        pool: r2d2::Pool<Client>,
        info: ConnectionInfo,
    ) -> Result<Connector, Failure> {
        let client = Client::open(settled(info).into_connection_info()?)?;
        Ok(Connector::Pool(pool, Box::new(client)))
    }

    /// A connection for calls, had within `within`.
    pub(super) fn line(&self, timeouts: &Timeouts, within: Duration) -> Result<Line, Failure> {
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
            return Ok(Line::Lent(Box::new(con)));
        }
        let con = self.connect(timeouts, within)?;
        Ok(Line::Own(Box::new(con)))
    }

    /// A connection that is made within `within`.
    pub(crate) fn connect(
        &self,
        timeouts: &Timeouts,
        within: Duration,
    ) -> Result<Connection, Failure> {
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

    /// How often another server became the master: connections of before are not to be used any more.
    pub(crate) fn moves(&self) -> u64 {
        match self {
            #[cfg(feature = "sentinel")]
            Connector::Sentinels(sentinels) => sentinels.moves(),
            _ => 0,
        }
    }

    /// The places where connecting can have failed. What has to be asked for takes no longer than `within`.
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

/// How all connections of a gate are made: RESP2, where the subscriber can wait with a deadline; and no greeting, each
/// part of which would be awaited for a timeout of its own.
pub(crate) fn settled(info: ConnectionInfo) -> ConnectionInfo {
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    info.set_tcp_settings(tcp).set_redis_settings(settings)
}

/// The same way to another host.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(crate) fn moved_to(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Connects, without timeouts for what follows.
pub(crate) fn open(client: &Client, within: Duration) -> Result<Connection, Failure> {
    // Each part of the handshake is awaited for the whole timeout, so they get a share each.
    let info = client.get_connection_info();
    let settings = info.redis_settings();
    let replies = [
        settings.password().is_some(),
        settings.db() != 0,
        tls::is_used(info),
    ];
    let replies: u32 = replies.into_iter().map(u32::from).sum();
    let share = (within / replies.max(1)).max(Duration::from_millis(1));
    let connected = client
        .get_connection_with_timeout(share)
        .and_then(|mut con| {
            if tls::is_used(info) {
                tls::shake_hands(&mut con, share)?;
            }
            Ok(con)
        });
    connected.map_err(|error| {
        if let Some(failure) = tls::failure_of(&error) {
            return failure;
        }
        let failure = Failure::from(error);
        match failure.kind() {
            // Whatever the socket said: a connection that was never made is not one that broke.
            FailureKind::Disconnected | FailureKind::TimedOut => {
                Failure::new(FailureKind::Unreachable, failure.to_string())
            }
            _ => failure,
        }
    })
}
