//! Makes one connection within a given time.

#[cfg(test)]
mod tests;

use super::endpoint::Endpoint;
use super::greeting::{Greeted, Greeting};
use super::socket::Socket;
use super::stream::Stream;
use super::time_limit::TimeLimit;
use super::tls;
use crate::error::failure::{Failure, FailureKind};
use redis::{ConnectionAddr, ErrorKind, RedisError, RedisResult};
use std::time::Duration;

/// Connects within `within`, logs in, and selects the database. Sends nothing else that needs a permission.
pub(crate) fn connect(
    endpoint: &Endpoint,
    write_timeout: Duration,
    within: Duration,
) -> Result<Box<dyn Stream>, Failure> {
    let limit = TimeLimit::new(within);
    let connected = open(endpoint, write_timeout, limit).and_then(|stream| {
        greet(endpoint, &*stream, limit)?;
        Ok(stream)
    });
    connected.map_err(|error| unconnected(error, within))
}

/// Connects, without the first commands.
fn open(endpoint: &Endpoint, write_timeout: Duration, limit: TimeLimit) -> RedisResult<Box<dyn Stream>> {
    match (endpoint.info.addr(), &endpoint.tls) {
        (ConnectionAddr::Tcp(host, port), _) => Ok(Box::new(open_tcp(host, *port, write_timeout, limit)?)),
        #[cfg(feature = "tls")]
        (ConnectionAddr::TcpTls { host, port, .. }, Some(config)) => {
            let tls = config.connection(host)?; // before anything is sent: the host may be no valid name
            let socket = open_tcp(host, *port, write_timeout, limit)?;
            Ok(Box::new(tls::TlsStream::connect(socket, tls, limit)?))
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), _) => Ok(Box::new(Socket::unix(path, write_timeout)?)),
        _ => Err((ErrorKind::InvalidClientConfig, "this program cannot connect to an address of this kind").into()),
    }
}

fn open_tcp(host: &str, port: u16, write_timeout: Duration, limit: TimeLimit) -> RedisResult<Socket> {
    // A node of a cluster may report it. It would mean this machine.
    if matches!(host, "0.0.0.0" | "::") {
        return Err((ErrorKind::InvalidClientConfig, "Cannot connect to a wildcard address (0.0.0.0 or ::)").into());
    }
    Ok(Socket::tcp(host, port, write_timeout, limit)?)
}

/// Sends the first commands and checks their replies.
fn greet(endpoint: &Endpoint, stream: &dyn Stream, limit: TimeLimit) -> RedisResult<()> {
    let settings = endpoint.info.redis_settings();
    let uses_tls = tls::is_used(&endpoint.info);
    let greeting = Greeting::new(settings, settings.username(), uses_tls);
    match greeting.exchange(stream, limit)? {
        Greeted::Done => Ok(()),
        Greeted::WithoutUser => Greeting::new(settings, None, uses_tls).exchange(stream, limit).map(drop),
    }
}

/// The same settings for another host.
pub(crate) fn moved_to(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
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
