//! Why a TLS connection cannot be made.

use super::Printed;
use super::forged::{self, replying};
use crate::support::process;
use crate::tls_server::{Authority, Identity};

use luagate::GateBuilder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::net::TcpListener;
use std::sync::Arc;

fn gate(address: &str) -> GateBuilder {
    forged::patient(&format!("rediss://{address}/"))
}

pub(super) fn print(printed: &mut Printed) {
    certificates_of_the_server(printed);
    certificates_of_the_client(printed);
    alerts(printed);
    let address = replying("+OK\r\n");
    // A server without TLS reads the handshake as the start of a long command and waits for the rest.
    let waits = forged::server(|words| {
        Some(if words.starts_with("PING") { b"+PONG\r\n".to_vec() } else { Vec::new() })
    });
    printed.call(forged::soon(&format!("rediss://{waits}/")).open());
    printed.call(gate(&forged::server(|_| Some(b"-ERR what?\r\n".to_vec()))).open());
    let alert = forged::server(|_| Some(vec![21, 3, 1, 0, 2, 2, 50]));
    printed.call(forged::patient(&format!("redis://{alert}/")).open());
    // The end of a handshake that has not begun.
    printed.call(gate(&forged::server(|_| Some(vec![22, 3, 3, 0, 4, 20, 0, 0, 0]))).open());
    printed.call(gate("a..b").open());
    printed.call(forged::patient(&format!("rediss://{address}/#insecure")).open());
    let url = format!("rediss://{address}/");
    let output = process("open", &[&url]).env("SSL_CERT_FILE", "/no/such/file").output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = output.lines().find(|line| line.contains("TLS connection"));
    printed.text(text.unwrap_or_else(|| panic!("{output}")));
}

/// The address of a server that makes handshakes with this certificate, and answers nothing after them.
fn server(identity: &Identity) -> String {
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(
                move || while connection.complete_io(&mut stream).is_ok_and(|(read, _)| read > 0) {},
            );
        }
    });
    address
}

fn certificates_of_the_server(printed: &mut Printed) {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let trusting = |identity: &Identity| gate(&server(identity)).root_certificates(&authority.pem);
    printed.call(gate(&server(&authority.identity())).root_certificates(&other.pem).open());
    for (host, years) in
        [("127.0.0.1", (2001, 2002)), ("127.0.0.1", (3001, 3002)), ("redis.example", (2020, 4000))]
    {
        printed.call(trusting(&authority.sign(host, years)).open());
    }
    // The certificate of a CA is not one of a server.
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "itself");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let chain = params.self_signed(&key).unwrap().pem();
    let itself = Identity { chain, key: key.serialize_pem() };
    printed.call(gate(&server(&itself)).root_certificates(&itself.chain).open());
}

fn certificates_of_the_client(printed: &mut Printed) {
    let authority = Authority::new("one");
    let (own, other) = (authority.identity(), authority.identity());
    let builder = || gate(&server(&own)).root_certificates(&authority.pem);
    printed.call(builder().client_certificate(&own.chain, &other.key).open());
    printed.call(builder().client_certificate("no PEM", &own.key).open());
    printed.call(builder().client_certificate(&own.chain, "no PEM").open());
    printed.call(builder().root_certificates("no PEM").open());
    printed.call(forged::patient("redis://127.0.0.1:1/").root_certificates(&authority.pem).open());
}

/// The alerts of a server, by their number in the protocol.
fn alerts(printed: &mut Printed) {
    for alert in [116, 40, 45, 48, 112, 70, 80] {
        printed.call(gate(&forged::server(move |_| Some(vec![21, 3, 3, 0, 2, 2, alert]))).open());
    }
}
