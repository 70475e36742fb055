//! The reason why a connection with TLS could not be made, and what to do.

use luagate_core::failure::Failure;
use luagate_core::kind::FailureKind;
use luagate_core::meaning::Meaning;
use redis::{ErrorKind, RedisError};
use rustls::{AlertDescription, CertificateError, Error};
use std::sync::Arc;

/// The failure for this reason. `error`: what rustls or the system reports.
pub(super) fn failed(reason: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Tls, format!("{reason} ({error})"))
}

pub(super) const INSECURE: &str = "an address that ends in #insecure would trust every server. Remove #insecure, and pass the certificate of the server's CA with `root_certificates`";

pub(super) const MIXED_UP: &str =
    "the client's certificate and key do not belong together. Correct `client_certificate`";

pub(super) const UNREADABLE: &str = "the certificates that this system trusts cannot be read. Check SSL_CERT_FILE, SSL_CERT_DIR and the system's certificates";

/// The failure of a connection that could not be made because of TLS.
pub(crate) fn failure_of(error: &RedisError) -> Option<Failure> {
    let text = error.to_string();
    let reason = match error.kind() {
        ErrorKind::Io | ErrorKind::Client => of_cause(error)?,
        ErrorKind::InvalidClientConfig if text.contains("TLS parameters") => MIXED_UP,
        _ => return None,
    };
    let text = format!("{reason} ({text})");
    Some(Failure::caused_by(Meaning { kind: FailureKind::Tls, may_have_run: false }, text, error.clone()))
}

/// `None` if the network failed.
fn of_cause(error: &RedisError) -> Option<&'static str> {
    let cause =
        std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        return io.get_ref()?.downcast_ref().map(of_rustls);
    }
    // Errors that are not from the network occur before anything is sent.
    if cause.is::<rustls::pki_types::InvalidDnsNameError>() {
        return Some(
            "the host in the address is not a valid name for a certificate. Use a DNS name or an IP address",
        );
    }
    Some(UNREADABLE)
}

pub(super) fn of_rustls(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON,
        Error::InvalidMessage(_) => {
            "the server does not use TLS at this port. Write redis instead of rediss in its address, or use its TLS port"
        }
        _ => "the handshake failed. Compare the TLS settings of server and client",
    }
}

const NOTHING_IN_COMMON: &str = "server and client have no TLS version or cipher in common. Enable TLS 1.3 at the server, \
     or the feature `tls12` of `rustls`";

fn of_certificate(error: &CertificateError) -> &'static str {
    use CertificateError::*;
    match error {
        Expired | ExpiredContext { .. } => {
            "the server's certificate has expired. Renew it, or correct this machine's clock"
        }
        NotValidYet | NotValidYetContext { .. } => {
            "the server's certificate is not valid yet. Correct the clock of this machine or of the issuer"
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "the server's certificate is for another host. Connect by a name in the certificate, or add this name to it"
        }
        // A bad signature: the client trusts another CA with the same name.
        UnknownIssuer | BadSignature => {
            "the CA of the server's certificate is not trusted. Pass the certificate of that CA with `root_certificates`"
        }
        _ => "the server's certificate is not accepted. Replace it",
    }
}

/// The message for an alert of the server.
fn of_alert(alert: AlertDescription) -> &'static str {
    use AlertDescription::*;
    match alert {
        CertificateRequired | NoCertificate => {
            "the server requires a certificate of this client. Pass one with `client_certificate`"
        }
        // Up to TLS 1.2 this alert is also sent if a certificate is missing.
        HandshakeFailure => {
            "the server requires a certificate of this client, or has no cipher in common. Pass one with `client_certificate`, or compare the ciphers"
        }
        CertificateExpired => "the client's certificate has expired. Renew it",
        UnknownCA
        | BadCertificate
        | UnsupportedCertificate
        | CertificateRevoked
        | CertificateUnknown
        | AccessDenied
        | DecryptError => {
            "the server refuses the client's certificate. Pass one of a CA that the server trusts with `client_certificate`"
        }
        ProtocolVersion | InsufficientSecurity => NOTHING_IN_COMMON,
        UnrecognisedName => {
            "the server does not know the host in the address. Use a name that the server knows"
        }
        _ => "the server ended the handshake. Read the log of the server",
    }
}
