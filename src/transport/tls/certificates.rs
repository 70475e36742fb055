//! The user's certificates: those that the client trusts, and the one that it presents.

use crate::error::Invalid;
use redis::ConnectionInfo;

/// Certificates in PEM. By default the client trusts those of the system and presents none.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    #[cfg(feature = "tls")]
    given: Option<redis::TlsCertificates>, // its `Debug` output contains no key
}

#[cfg(not(feature = "tls"))]
impl Certificates {
    pub(crate) fn are_given(&self) -> bool {
        false
    }

    /// Changes nothing, since there are no certificates.
    pub(super) fn give_to(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Invalid> {
        Ok(info)
    }
}

#[cfg(feature = "tls")]
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

    fn given(&mut self) -> &mut redis::TlsCertificates {
        self.given.get_or_insert(redis::TlsCertificates { client_tls: None, root_cert: None })
    }

    /// Adds the certificates to the settings of connections. If none were given, the settings keep theirs.
    pub(super) fn give_to(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Invalid> {
        let Some(given) = &self.given else {
            return Ok(info);
        };
        // `redis` would continue without certificates.
        check("root_certificates", given.root_cert.as_deref())?;
        let chain = given.client_tls.as_ref().map(|client| &*client.client_cert);
        check("client_certificate", chain)?;
        match redis::Client::build_with_tls(info, given.clone()) {
            Ok(client) => Ok(client.get_connection_info().clone()),
            Err(error) => {
                let why = format!("not readable ({error}). Accepted: certificates and a private key in PEM");
                Err(Invalid::new("certificates", why))
            }
        }
    }
}

#[cfg(feature = "tls")]
fn check(what: &str, pem: Option<&[u8]>) -> Result<(), Invalid> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    match pem {
        Some(pem) if CertificateDer::pem_slice_iter(pem).next().is_none() => {
            let why = "no certificate found. Accepted: certificates in PEM";
            Err(Invalid::new(what, why))
        }
        _ => Ok(()),
    }
}
