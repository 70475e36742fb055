//! The settings of TLS, made once for all connections of a gate: the certificates that the client trusts, the
//! one that it presents, and the cryptography.

use super::reason;
use luagate_core::failure::{CallError, Failure};
use luagate_core::invalid::Invalid;
use luagate_core::kind::FailureKind;
use redis::{ConnectionAddr, RedisResult};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// The settings of TLS for these addresses, which use it.
pub(crate) fn config_for(
    addresses: &[&ConnectionAddr],
    certificates: &Certificates,
) -> Result<Option<Config>, CallError> {
    if addresses.is_empty() {
        return Ok(None);
    }
    let insecure =
        |address: &&ConnectionAddr| matches!(address, ConnectionAddr::TcpTls { insecure: true, .. });
    let config = if addresses.iter().any(insecure) {
        Err(Failure::new(FailureKind::Tls, reason::INSECURE))
    } else {
        Config::new(certificates.roots()?, certificates.own()?)
    };
    config.map(Some).map_err(CallError::Failed)
}

/// Certificates in PEM. By default the client trusts those of the system and presents none.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    given: Option<redis::TlsCertificates>, // its `Debug` output contains no key
}

/// The certificate of the client with the chain to its CA, and its private key.
pub(super) struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificates {
    pub(crate) fn trust(&mut self, roots: &[u8]) {
        self.given().root_cert = Some(roots.to_vec());
    }

    pub(crate) fn show(&mut self, chain: &[u8], key: &[u8]) {
        self.given().client_tls =
            Some(redis::ClientTlsConfig { client_cert: chain.to_vec(), client_key: key.to_vec() });
    }

    pub(crate) fn are_given(&self) -> bool {
        self.given.is_some()
    }

    /// The certificates to trust, if they were given.
    pub(super) fn roots(&self) -> Result<Option<RootCertStore>, Invalid> {
        let Some(pem) = self.given.as_ref().and_then(|given| given.root_cert.as_deref()) else {
            return Ok(None);
        };
        check("root_certificates", pem)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| unreadable(format!("root certificates: {error}")))?;
            roots.add(certificate).map_err(|error| unreadable(format!("root certificates: {error}")))?;
        }
        Ok(Some(roots))
    }

    /// The certificate of the client, if it was given.
    fn own(&self) -> Result<Option<ClientIdentity>, Invalid> {
        let Some(client) = self.given.as_ref().and_then(|given| given.client_tls.as_ref()) else {
            return Ok(None);
        };
        check("client_certificate", &client.client_cert)?;
        let chain = CertificateDer::pem_slice_iter(&client.client_cert).collect::<Result<_, _>>();
        let chain = chain.map_err(|error| unreadable(format!("certificate of the client: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(&client.client_key);
        let key = key.map_err(|error| unreadable(format!("key of the client: {error}")))?;
        Ok(Some(ClientIdentity { chain, key }))
    }

    fn given(&mut self) -> &mut redis::TlsCertificates {
        self.given.get_or_insert(redis::TlsCertificates { client_tls: None, root_cert: None })
    }
}

fn unreadable(detail: impl std::fmt::Display) -> Invalid {
    let why = format!("not readable ({detail}). Accepted: certificates and a private key in PEM");
    Invalid::new("certificates", why)
}

fn check(what: &str, pem: &[u8]) -> Result<(), Invalid> {
    match CertificateDer::pem_slice_iter(pem).next() {
        Some(_) => Ok(()),
        None => Err(Invalid::new(what, "no certificate found. Accepted: certificates in PEM")),
    }
}

#[derive(Clone)]
pub(crate) struct Config(Arc<ClientConfig>);

impl Config {
    /// `roots`: the certificates to trust, by default those of the system. `own`: the certificate of this
    /// client.
    pub(super) fn new(roots: Option<RootCertStore>, own: Option<ClientIdentity>) -> Result<Config, Failure> {
        let provider = provider()?;
        let roots = roots.map_or_else(of_system, Ok)?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| reason::failed(reason::of_rustls(&error), error))?;
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            Some(ClientIdentity { chain, key }) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| reason::failed(reason::MIXED_UP, error))?,
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
        return Err(reason::failed(reason::UNREADABLE, error));
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

/// The provider that the application chose, or the only one that was compiled in.
fn provider() -> Result<Arc<CryptoProvider>, Failure> {
    match CryptoProvider::get_default() {
        Some(chosen) => Ok(chosen.clone()),
        None => only(compiled_in()).map(Arc::new).map_err(|text| Failure::new(FailureKind::Tls, text)),
    }
}

/// The only one, or the instruction for the application.
fn only<T>(compiled_in: [Option<T>; 2]) -> Result<T, &'static str> {
    match compiled_in {
        [Some(only), None] | [None, Some(only)] => Ok(only),
        [None, None] => Err(
            "rustls has no cryptography provider. Add `rustls` to your program with its feature `ring` or `aws-lc-rs`",
        ),
        [Some(_), Some(_)] => Err("rustls has several cryptography providers and none is chosen. Call \
             `rustls::crypto::ring::default_provider().install_default()` or the same of `aws_lc_rs` at the start of your program"),
    }
}

/// Replaces a provider that rustls was compiled without.
mod ring {
    pub(super) struct Absent;

    pub(super) fn default_provider() -> Absent {
        Absent
    }

    impl From<Absent> for Option<rustls::crypto::CryptoProvider> {
        fn from(_: Absent) -> Self {
            None
        }
    }
}
use ring as aws_lc_rs;

/// The providers that rustls was compiled with, for all crates of the program. No `cfg` of this crate shows
/// that. But a module that exists in rustls hides the one with the same name above.
fn compiled_in() -> [Option<CryptoProvider>; 2] {
    #[allow(unused_imports, reason = "neither may be there")]
    use rustls::crypto::*;
    [ring::default_provider().into(), aws_lc_rs::default_provider().into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_seen() {
        // The tests use rustls with `ring`.
        assert_eq!(compiled_in().map(|p| p.is_some()), [true, false]);
        assert!(provider().is_ok());
    }

    #[test]
    fn none_or_several_need_a_choice() {
        assert_eq!(only([Some(1), None]), Ok(1));
        assert_eq!(only([None, Some(2)]), Ok(2));
        assert!(only::<()>([None, None]).is_err_and(|text| text.contains("`ring` or `aws-lc-rs`")));
        assert!(only([Some(1), Some(2)]).is_err_and(|text| text.contains("install_default()")));
    }
}
