//! TLS: checks before a connection is made, and the reasons why one could not be made.
//!
//! `redis` makes the handshake with the first bytes that it sends, so a failed handshake looks like a broken
//! connection. Therefore a new connection sends `PING` and waits for the reply. The error then contains the reason.

mod certificates;
#[cfg(feature = "tls")]
mod provider;
#[cfg(feature = "tls")]
mod reason;

use crate::error::CallError;
#[cfg(not(feature = "tls"))]
use crate::error::failure::Failure;
pub(crate) use certificates::Certificates;
#[cfg(feature = "tls")]
pub(crate) use reason::failure_of;
#[cfg(not(feature = "tls"))]
use redis::RedisError;
use redis::{Connection, ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult};
use std::time::Duration;

/// Whether these connections use TLS.
pub(crate) fn is_used(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Prepares the settings of connections. Called once for every address, before the first connection to it.
pub(crate) fn prepare(info: ConnectionInfo, certificates: &Certificates) -> Result<ConnectionInfo, CallError> {
    if !is_used(&info) {
        return Ok(info);
    }
    #[cfg(feature = "tls")]
    provider::check().map_err(CallError::Failed)?;
    Ok(certificates.give_to(info)?)
}

/// Makes the handshake. A server reports that it refuses the client's certificate after the handshake, in place of the
/// first reply.
pub(crate) fn shake_hands(con: &mut Connection, timeout: Duration) -> RedisResult<()> {
    con.set_read_timeout(Some(timeout))?;
    con.set_write_timeout(Some(timeout))?;
    match redis::cmd("PING").exec(con) {
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        _ => Ok(()), // an error reply also shows that the connection works
    }
}

/// Without rustls the reason is unknown.
#[cfg(not(feature = "tls"))]
pub(crate) fn failure_of(_: &RedisError) -> Option<Failure> {
    None
}
