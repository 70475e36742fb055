//! Makes one connection within a given time.

use super::tls;
use crate::error::failure::{Failure, FailureKind};
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use redis::ConnectionAddr;
use redis::{Client, Connection, ConnectionInfo, ProtocolVersion, RedisError};
use std::time::Duration;

/// The settings of all connections of a gate. RESP2, since its `PubSub` can wait with a deadline. No greeting, since
/// each of its replies would have a separate timeout.
pub(crate) fn with_options(info: ConnectionInfo) -> ConnectionInfo {
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    info.set_tcp_settings(tcp).set_redis_settings(settings)
}

/// The same settings for another host.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(crate) fn moved_to(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Connects within `within`. Sets no timeouts for later calls.
pub(crate) fn open(client: &Client, within: Duration) -> Result<Connection, Failure> {
    // The timeout applies to each reply of the handshake. Therefore each reply gets a share of the time.
    let info = client.get_connection_info();
    let settings = info.redis_settings();
    let replies = [settings.password().is_some(), settings.db() != 0, tls::is_used(info)];
    let replies: u32 = replies.into_iter().map(u32::from).sum();
    let share = (within / replies.max(1)).max(Duration::from_millis(1));
    let connected = client.get_connection_with_timeout(share).and_then(|mut con| {
        if tls::is_used(info) {
            tls::shake_hands(&mut con, share)?;
        }
        Ok(con)
    });
    connected.map_err(|error| unconnected(error, within))
}

/// The failure of a connection that could not be made within `within`.
pub(crate) fn unconnected(error: RedisError, within: Duration) -> Failure {
    if let Some(failure) = tls::failure_of(&error) {
        return failure;
    }
    let failure = Failure::from(error);
    match failure.kind() {
        // The connection was never established, so it did not break, even if the socket reports that.
        FailureKind::Disconnected => Failure::new(FailureKind::Unreachable, failure.text()),
        FailureKind::TimedOut => {
            let text = format!("no answer within {within:.0?}: {}", failure.text());
            Failure::new(FailureKind::Unreachable, text)
        }
        _ => failure,
    }
}
