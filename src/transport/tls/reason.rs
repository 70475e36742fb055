//! The reason why a connection with TLS could not be made, and what to do.

use crate::error::failure::{Failure, FailureKind};
use redis::{ErrorKind, RedisError};
use rustls::{AlertDescription, CertificateError, Error};
use std::sync::Arc;

/// The failure of a connection that could not be made because of TLS.
pub(crate) fn failure_of(error: &RedisError) -> Option<Failure> {
    let text = error.to_string();
    let reason = match error.kind() {
        ErrorKind::Io | ErrorKind::Client => of_cause(error)?,
        ErrorKind::InvalidClientConfig if text.contains("TLS parameters") => {
            "this client's certificate and key do not belong together; look at `client_certificate`"
        }
        ErrorKind::InvalidClientConfig if text.contains("insecure client") => {
            "an address that ends in #insecure needs the feature `tls-rustls-insecure` of `redis`"
        }
        _ => return None,
    };
    let text = format!("{reason} ({text})");
    Some(Failure::of_error(FailureKind::Tls, text, error.clone()))
}

/// `None` if the network failed.
fn of_cause(error: &RedisError) -> Option<&'static str> {
    let cause = std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        return io.get_ref()?.downcast_ref().map(of_rustls);
    }
    // Errors that are not from the network occur before anything is sent.
    if cause.is::<rustls::pki_types::InvalidDnsNameError>() {
        return Some("the host in the address is no name that a certificate could have");
    }
    Some(
        "the certificates that this system trusts cannot be read; look at SSL_CERT_FILE and SSL_CERT_DIR, or what is in their place",
    )
}

fn of_rustls(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON,
        Error::InvalidMessage(_) => {
            "what answers there does not speak TLS; for a server without it write redis in place of rediss in its address"
        }
        _ => "the handshake failed",
    }
}

const NOTHING_IN_COMMON: &str = "server and client have no version of TLS, or no cipher, in common; the client has TLS 1.3, \
     and 1.2 only with the feature `tls12` of `rustls`";

fn of_certificate(error: &CertificateError) -> &'static str {
    use CertificateError::*;
    match error {
        Expired | ExpiredContext { .. } => {
            "the server's certificate has expired; renew it, or set this machine's clock"
        }
        NotValidYet | NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; set this machine's clock, or that of who made it"
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "the server's certificate is for another host; connect by a name that it has, or add this one to it"
        }
        // A bad signature: the client trusts another CA with the same name.
        UnknownIssuer | BadSignature => {
            "the server's certificate comes from a CA that is not trusted here; give that CA's with `root_certificates`"
        }
        Revoked => "the server's certificate was revoked",
        _ => "the server's certificate is not accepted",
    }
}

/// The message for an alert of the server.
fn of_alert(alert: AlertDescription) -> &'static str {
    use AlertDescription::*;
    match alert {
        CertificateRequired | NoCertificate => {
            "the server wants a certificate of this client; give one with `client_certificate`"
        }
        // Up to TLS 1.2 this alert is also sent if a certificate is missing.
        HandshakeFailure => {
            "the server wants a certificate of this client, which `client_certificate` gives, or has no cipher in common with it"
        }
        CertificateExpired => "this client's certificate has expired; renew it",
        UnknownCA
        | BadCertificate
        | UnsupportedCertificate
        | CertificateRevoked
        | CertificateUnknown
        | AccessDenied
        | DecryptError => {
            "the server refuses this client's certificate; give one with `client_certificate` that comes from a CA which it trusts"
        }
        ProtocolVersion | InsufficientSecurity => NOTHING_IN_COMMON,
        UnrecognisedName => "the server does not know the host in the address",
        _ => "the server ended the handshake",
    }
}
