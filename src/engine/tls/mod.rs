//! TLS: checks before a connection is made, and the reasons why one could not be made.
//!
//! `redis` makes the handshake with the first bytes that it sends, so a failed handshake looks like a broken
//! connection. Therefore a new connection sends `PING` and waits for the reply. The error then contains the
//! reason.

#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod reason;
#[cfg(feature = "tls")]
mod stream;
#[cfg(all(test, feature = "tls"))]
pub(super) mod tests;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{Certificates, Config, config_for, failure_of};
#[cfg(feature = "tls")]
pub(crate) use config::{Certificates, Config, config_for};
#[cfg(feature = "tls")]
pub(crate) use reason::failure_of;
use redis::{ConnectionAddr, ConnectionInfo};
#[cfg(feature = "tls")]
pub(super) use stream::TlsStream;

/// Whether these connections use TLS.
pub(crate) fn is_used(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Without the feature `tls` there are no certificates, no settings, and no reasons.
#[cfg(not(feature = "tls"))]
mod absent {
    use luagate_core::failure::{CallError, Failure};
    use redis::{ConnectionAddr, RedisError};

    #[derive(Debug, Default)]
    pub(crate) struct Certificates {}

    impl Certificates {
        pub(crate) fn are_given(&self) -> bool {
            false
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) enum Config {}

    pub(crate) fn config_for(_: &[&ConnectionAddr], _: &Certificates) -> Result<Option<Config>, CallError> {
        Ok(None)
    }

    pub(crate) fn failure_of(_: &RedisError) -> Option<Failure> {
        None
    }
}
