//! TLS: what has to be so before a connection is made, and why one could not be made.
//!
//! `redis` makes the handshake with the first bytes that are sent, and what fails in it looks like a connection that broke. So
//! a connection is made up to its first reply, and what failed is read out of the error.

mod certificates;
#[cfg(feature = "tls")]
mod provider;
#[cfg(feature = "tls")]
mod reason;

use crate::error::{CallError, Invalid};
#[cfg(not(feature = "tls"))]
use crate::failure::Failure;
pub(crate) use certificates::Certificates;
#[cfg(feature = "tls")]
pub(crate) use reason::failure_of;
use redis::{Connection, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use std::time::Duration;

/// Whether connections are made with TLS.
pub(crate) fn is_used(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// What is wrong with the url of a server. It may hold a password, so it is not told.
pub(crate) fn url_error(url: &str, error: &RedisError) -> Invalid {
    let is_secure = ["rediss:", "valkeys:"].iter().any(|s| url.starts_with(s));
    let why = if is_secure && !cfg!(feature = "tls") {
        "rediss:// needs the feature `tls` of luagate".to_owned()
    } else {
        // The detail is a piece of the url.
        let text = error
            .to_string()
            .replace(error.detail().unwrap_or("\0"), "...");
        format!("{text}; takes redis[s]://[user:password@]host[:port][/db] or unix:///path")
    };
    Invalid::new("url", why)
}

/// Makes ready what connections are made of. Every address goes through here once, before the first connection to it.
pub(crate) fn prepare(
    info: ConnectionInfo,
    certificates: &Certificates,
) -> Result<ConnectionInfo, CallError> {
    #[cfg(feature = "tls")]
    if is_used(&info) {
        provider::check().map_err(CallError::Failed)?;
    }
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
