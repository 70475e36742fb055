//! TLS: what has to be so before a connection is made, and why one could not be made.
//!
//! `redis` makes the handshake with the first bytes that are sent, and what fails in it looks like a connection that broke. So
//! a connection is made up to its first reply, and what failed is read out of the error.

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

/// Whether connections are made with TLS.
pub(crate) fn is_used(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Makes ready what connections are made of. Every address goes through here once, before the first connection to it.
pub(crate) fn prepare(info: ConnectionInfo, certificates: &Certificates) -> Result<ConnectionInfo, CallError> {
    if !is_used(&info) {
        return Ok(info);
    }
    #[cfg(feature = "tls")]
    provider::check().map_err(CallError::Failed)?;
    Ok(certificates.give_to(info)?)
}

/// Makes the handshake. A server that refuses the client's certificate says so after it, in place of the first reply.
pub(crate) fn shake_hands(con: &mut Connection, timeout: Duration) -> RedisResult<()> {
    con.set_read_timeout(Some(timeout))?;
    con.set_write_timeout(Some(timeout))?;
    match redis::cmd("PING").exec(con) {
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        _ => Ok(()), // an error of the server came through, too
    }
}

/// Nothing can be told without rustls.
#[cfg(not(feature = "tls"))]
pub(crate) fn failure_of(_: &RedisError) -> Option<Failure> {
    None
}
