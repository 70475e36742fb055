//! TLS: checks before a connection is made, and the reasons why one could not be made.
//!
//! `redis` makes the handshake with the first bytes that it sends, so a failed handshake looks like a broken
//! connection. Therefore a new connection sends `PING` and waits for the reply. The error then contains the reason.

mod certificates;
#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod provider;
#[cfg(feature = "tls")]
mod reason;
#[cfg(feature = "tls")]
mod stream;
#[cfg(all(test, feature = "tls"))]
pub(super) mod tests;

use crate::error::CallError;
#[cfg(not(feature = "tls"))]
use crate::error::failure::Failure;
pub(crate) use certificates::Certificates;
#[cfg(feature = "tls")]
pub(crate) use config::Config;
#[cfg(feature = "tls")]
pub(crate) use reason::failure_of;
#[cfg(not(feature = "tls"))]
use redis::RedisError;
use redis::{ConnectionAddr, ConnectionInfo};
#[cfg(feature = "tls")]
pub(super) use stream::TlsStream;

/// Whether these connections use TLS.
pub(crate) fn is_used(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// The settings of TLS for these addresses, if one of them uses it.
#[cfg(feature = "tls")]
pub(super) fn config_for(
    infos: &[&mut ConnectionInfo],
    certificates: &Certificates,
) -> Result<Option<Config>, CallError> {
    if !infos.iter().any(|info| is_used(info)) {
        return Ok(None);
    }
    let insecure = |info: &&mut ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. });
    let config = if infos.iter().any(insecure) {
        Err(reason::of_insecure())
    } else {
        Config::new(certificates.roots()?, certificates.own()?)
    };
    config.map(Some).map_err(CallError::Failed)
}

/// Without rustls there are no settings.
#[cfg(not(feature = "tls"))]
pub(super) fn config_for(_: &[&mut ConnectionInfo], _: &Certificates) -> Result<Option<Config>, CallError> {
    Ok(None)
}

/// The settings of TLS. There are none without the feature.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub(crate) enum Config {}

/// Without rustls the reason is unknown.
#[cfg(not(feature = "tls"))]
pub(crate) fn failure_of(_: &RedisError) -> Option<Failure> {
    None
}
