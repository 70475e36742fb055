//! The user's certificates: those that the client trusts, and the one that it presents.

#[cfg(feature = "tls")]
use crate::error::Invalid;
#[cfg(feature = "tls")]
use rustls::RootCertStore;
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Certificates in PEM. By default the client trusts those of the system and presents none.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    #[cfg(feature = "tls")]
    given: Option<redis::TlsCertificates>, // its `Debug` output contains no key
}

/// The certificate of the client with the chain to its CA, and its private key.
#[cfg(feature = "tls")]
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

#[cfg(not(feature = "tls"))]
impl Certificates {
    pub(crate) fn are_given(&self) -> bool {
        false
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

    /// The certificates to trust, if they were given.
    pub(super) fn roots(&self) -> Result<Option<RootCertStore>, Invalid> {
        let Some(pem) = self.given.as_ref().and_then(|given| given.root_cert.as_deref()) else {
            return Ok(None);
        };
        check("root_certificates", Some(pem))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| unreadable(format!("root certificates: {error}")))?;
            roots.add(certificate).map_err(|error| unreadable(format!("root certificates: {error}")))?;
        }
        Ok(Some(roots))
    }

    /// The certificate of the client, if it was given.
    pub(super) fn own(&self) -> Result<Option<Identity>, Invalid> {
        let Some(client) = self.given.as_ref().and_then(|given| given.client_tls.as_ref()) else {
            return Ok(None);
        };
        check("client_certificate", Some(&client.client_cert))?;
        let chain = CertificateDer::pem_slice_iter(&client.client_cert).collect::<Result<_, _>>();
        let chain = chain.map_err(|error| unreadable(format!("certificate of the client: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(&client.client_key);
        let key = key.map_err(|error| unreadable(format!("key of the client: {error}")))?;
        Ok(Some(Identity { chain, key }))
    }

    fn given(&mut self) -> &mut redis::TlsCertificates {
        self.given.get_or_insert(redis::TlsCertificates { client_tls: None, root_cert: None })
    }
}

#[cfg(feature = "tls")]
fn unreadable(detail: impl std::fmt::Display) -> Invalid {
    let why = format!("not readable ({detail}). Accepted: certificates and a private key in PEM");
    Invalid::new("certificates", why)
}

#[cfg(feature = "tls")]
fn check(what: &str, pem: Option<&[u8]>) -> Result<(), Invalid> {
    match pem {
        Some(pem) if CertificateDer::pem_slice_iter(pem).next().is_none() => {
            let why = "no certificate found. Accepted: certificates in PEM";
            Err(Invalid::new(what, why))
        }
        _ => Ok(()),
    }
}
