//! The settings of TLS, made once for all connections of a gate.

use super::certificates::Identity;
use super::{provider, reason};
use crate::error::failure::Failure;
use redis::RedisResult;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Config(Arc<ClientConfig>);

impl Config {
    /// `roots`: the certificates to trust, by default those of the system. `own`: the certificate of this client.
    pub(super) fn new(roots: Option<RootCertStore>, own: Option<Identity>) -> Result<Config, Failure> {
        let provider = provider::chosen()?;
        let roots = roots.map_or_else(of_system, Ok)?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| reason::of_settings(&error))?;
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            Some(Identity { chain, key }) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| reason::of_own(&error))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Config(Arc::new(config)))
    }

    /// The state of a new connection to this host.
    pub(in crate::engine) fn connection(&self, host: &str) -> RedisResult<ClientConnection> {
        let name = ServerName::try_from(host)?.to_owned();
        let connection = ClientConnection::new(self.0.clone(), name);
        connection.map_err(|error| io::Error::new(ErrorKind::InvalidData, error).into())
    }
}

/// The certificates that the system trusts. All of them must be readable.
fn of_system() -> Result<RootCertStore, Failure> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(reason::of_system(&error));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Ok(roots)
}

/// Without the key of the client.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}
