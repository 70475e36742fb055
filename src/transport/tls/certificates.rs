//! The certificates that a user gives: whom the client trusts, and what it shows of itself.

use crate::error::Invalid;
use redis::ConnectionInfo;

/// In PEM. Without any the system's are trusted, and nothing is shown.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    #[cfg(feature = "tls")]
    given: Option<redis::TlsCertificates>, // its Debug has no key in it
}

#[cfg(not(feature = "tls"))]
impl Certificates {
    pub(crate) fn are_given(&self) -> bool {
        false
    }

    /// There are none, so nothing is changed.
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

    /// Puts them into what connections are made of. Where none were given, those that it has already stay.
    pub(super) fn give_to(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Invalid> {
        let Some(given) = &self.given else {
            return Ok(info);
        };
        // `redis` would go on with none.
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
