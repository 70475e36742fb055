//! A server with TLS, its certificates, and the errors of connections to it.

use crate::clock::{machine_now, since};
use crate::engine::address::Address;
use crate::engine::endpoint::connect;
use crate::engine::socket::TimeLimit;
use crate::engine::stream::Stream;
use crate::engine::tests::{Ends, SOON, Server, receive, serve, socket_to};
use crate::engine::tls::{Certificates, Config, TlsStream};
use crate::error::failure::Failure;
use luagate_core::failure::CallError;
use luagate_core::kind::FailureKind;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A CA.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct ClientIdentity {
    chain: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for this host, valid from one year to another.
    fn sign(&self, host: &str, years: (i32, i32)) -> ClientIdentity {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        ClientIdentity {
            chain: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn identity(&self) -> ClientIdentity {
        self.sign("127.0.0.1", (2020, 4000))
    }

    /// The settings of a server with this certificate. `requires`: each client must show a certificate of
    /// this CA.
    fn server(
        &self,
        identity: &ClientIdentity,
        version: &'static SupportedProtocolVersion,
        requires: bool,
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = if requires {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_slice(identity.chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}

/// The settings of a client that trusts this CA.
fn trusting(authority: &Authority) -> Certificates {
    let mut certificates = Certificates::default();
    certificates.trust(authority.pem.as_bytes());
    certificates
}

/// The same, which also shows this certificate.
fn showing(authority: &Authority, own: &ClientIdentity) -> Certificates {
    let mut certificates = trusting(authority);
    certificates.show(own.chain.as_bytes(), own.key.as_bytes());
    certificates
}

/// The server's end of a connection on `stream`.
fn accept(config: &Arc<ServerConfig>, stream: TcpStream) -> Box<dyn Server> {
    let connection = ServerConnection::new(config.clone()).unwrap();
    Box::new(StreamOwned::new(connection, stream))
}

impl Server for StreamOwned<ServerConnection, TcpStream> {
    fn change_keys(&mut self) {
        self.conn.refresh_traffic_keys().unwrap();
    }

    fn close(&mut self) {
        self.conn.send_close_notify();
        while self.conn.wants_write() {
            self.conn.write_tls(&mut self.sock).unwrap();
        }
    }

    fn cut(&mut self) {
        self.sock.cut();
    }

    fn send_raw(&mut self, bytes: &[u8]) {
        self.sock.write_all(bytes).unwrap();
    }
}

/// Both ends of a connection with this version of TLS.
pub(in crate::engine) fn tls(version: &'static SupportedProtocolVersion, write_timeout: Duration) -> Ends {
    let authority = Authority::new("one");
    let config = authority.server(&authority.identity(), version, false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener, write_timeout);
    let stream = listener.accept().unwrap().0;
    let mut server = accept(&config, stream);
    let certificates = trusting(&authority);
    let client = Config::new(certificates.roots().unwrap(), None).unwrap().connection("127.0.0.1").unwrap();
    std::thread::scope(|scope| {
        // The server makes the handshake before it sends its first byte.
        let thread = scope.spawn(move || {
            server.write_all(b"!").unwrap();
            server
        });
        let stream = TlsStream::connect(socket, client, TimeLimit::new(SOON)).unwrap();
        let mut first = [0];
        assert_eq!(receive(&stream, &mut first, SOON).unwrap(), 1);
        let ends: Ends = (Box::new(stream), thread.join().unwrap());
        ends
    })
}

/// Starts a server that answers one packet. Returns the address of its clients.
fn answering(config: Arc<ServerConfig>) -> String {
    let port = serve(move |stream| {
        let mut server = accept(&config, stream);
        let _ = server.read(&mut [0; 1_000]).and_then(|_| server.write_all(b"+PONG\r\n"));
    });
    format!("rediss://127.0.0.1:{port}/")
}

fn open(url: &str, certificates: &Certificates, within: Duration) -> Result<Box<dyn Stream>, CallError> {
    let Address::One(endpoint) = Address::parse(url)?.with_certificates(certificates)? else {
        panic!("several servers")
    };
    connect(&endpoint, SOON, &mut TimeLimit::new(within)).map_err(CallError::Failed)
}

#[track_caller]
fn failure(opened: Result<Box<dyn Stream>, CallError>) -> Failure {
    match opened {
        Err(CallError::Failed(failure)) => failure.into(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("connected"),
    }
}

#[track_caller]
fn assert_fails(opened: Result<Box<dyn Stream>, CallError>, words: &str) {
    let failure = failure(opened);
    assert_eq!(failure.kind(), FailureKind::Tls, "{failure}");
    assert!(failure.to_string().contains(words), "no {words:?} in: {failure}");
}

#[test]
fn a_server_with_an_unacceptable_certificate_is_reported_with_the_reason() {
    let (authority, other, same_name) =
        (Authority::new("one"), Authority::new("other"), Authority::new("one"));
    let current = (2020, 4000);
    for version in [&TLS13, &TLS12] {
        let url = |identity: &ClientIdentity| answering(authority.server(identity, version, false));
        let good = url(&authority.identity());
        open(&good, &trusting(&authority), SOON).unwrap();
        assert_fails(open(&good, &trusting(&other), SOON), "CA of the server's certificate is not trusted");
        assert_fails(
            open(&good, &trusting(&same_name), SOON),
            "CA of the server's certificate is not trusted",
        );
        assert_fails(
            open(&good, &Certificates::default(), SOON),
            "CA of the server's certificate is not trusted",
        );
        for (host, years, words) in [
            ("127.0.0.1", (2001, 2002), "the server's certificate has expired"),
            ("127.0.0.1", (3001, 3002), "the server's certificate is not valid yet"),
            ("redis.example", current, "the server's certificate is for another host"),
        ] {
            assert_fails(open(&url(&authority.sign(host, years)), &trusting(&authority), SOON), words);
        }
    }
}

#[test]
fn a_server_that_refuses_the_certificate_of_the_client_is_reported_with_the_reason() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let expired = authority.sign("client", (2001, 2002));
    for version in [&TLS13, &TLS12] {
        let url = answering(authority.server(&authority.identity(), version, true));
        open(&url, &showing(&authority, &authority.identity()), SOON).unwrap();
        assert_fails(open(&url, &trusting(&authority), SOON), "requires a certificate of this client");
        assert_fails(
            open(&url, &showing(&authority, &other.identity()), SOON),
            "refuses the client's certificate",
        );
        assert_fails(
            open(&url, &showing(&authority, &expired), SOON),
            "the client's certificate has expired",
        );
    }
}

#[test]
fn a_server_without_tls_is_reported() {
    let port = serve(|mut stream| {
        let _ =
            stream.read(&mut [0; 1_000]).and_then(|_| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    });
    let opened = open(&format!("rediss://127.0.0.1:{port}/"), &trusting(&Authority::new("one")), SOON);
    assert_fails(opened, "the server does not use TLS at this port");
}

#[test]
fn a_server_that_never_answers_the_handshake_or_the_first_command_is_unreachable_after_the_time_limit() {
    let authority = Authority::new("one");
    let config = authority.server(&authority.identity(), &TLS13, false);
    let mute = serve(|mut stream| while stream.read(&mut [0; 1_000]).is_ok_and(|count| count > 0) {});
    let shaking = serve(move |stream| {
        let mut server = accept(&config, stream);
        while server.read(&mut [0; 1_000]).is_ok_and(|count| count > 0) {}
    });
    let within = Duration::from_millis(300);
    for port in [mute, shaking] {
        let start = machine_now();
        let failure = failure(open(&format!("rediss://127.0.0.1:{port}/"), &trusting(&authority), within));
        assert_eq!(failure.kind(), FailureKind::Unreachable, "{failure}");
        assert!(failure.to_string().contains("no answer within 300ms"), "{failure}");
        assert!(since(start) >= within && since(start) < SOON / 2, "{:?}", since(start));
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let authority = Authority::new("one");
    let (own, other) = (authority.identity(), authority.identity());
    let nobody = "rediss://127.0.0.1:1/";
    let mixed = ClientIdentity { chain: own.chain.clone(), key: other.key };
    assert_fails(open(nobody, &showing(&authority, &mixed), SOON), "do not belong together");
    assert_fails(open("rediss://a..b/", &trusting(&authority), SOON), "not a valid name for a certificate");
    assert_fails(
        open("rediss://127.0.0.1:1/#insecure", &trusting(&authority), SOON),
        "would trust every server",
    );
    let no_pem = "no PEM".to_owned();
    let mut no_roots = Certificates::default();
    no_roots.trust(no_pem.as_bytes());
    let no_chain = showing(&authority, &ClientIdentity { chain: no_pem.clone(), key: own.key.clone() });
    let no_key = showing(&authority, &ClientIdentity { chain: own.chain.clone(), key: no_pem });
    for (url, certificates, what) in [
        (nobody, no_roots, "root_certificates"),
        (nobody, no_chain, "client_certificate"),
        (nobody, no_key, "certificates"),
        ("redis://127.0.0.1:1/", showing(&authority, &own), "url"),
    ] {
        match open(url, &certificates, SOON) {
            Err(CallError::Invalid(invalid)) => assert_eq!(invalid.what(), what, "{invalid}"),
            _ => panic!("{what}"),
        }
    }
}

#[test]
fn the_settings_of_connections_show_no_key() {
    let authority = Authority::new("one");
    let own = authority.identity();
    let endpoints = Address::parse("rediss://me:hunter2@127.0.0.1/")
        .unwrap()
        .with_certificates(&showing(&authority, &own));
    let shown = format!("{:?}", endpoints.unwrap());
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let bytes = format!("{:?}", &key.secret_der()[40..60]);
    for secret in ["hunter2", own.key.lines().nth(1).unwrap(), bytes.trim_matches(['[', ']'])] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// A record that cannot be decrypted.
const GARBAGE: [u8; 9] = [23, 3, 3, 0, 4, 1, 2, 3, 4];

#[test]
fn bytes_before_an_error_are_not_lost() {
    for version in [&TLS13, &TLS12] {
        let (stream, mut server) = tls(version, SOON);
        server.write_all(b"last").unwrap();
        server.send_raw(&GARBAGE);
        let mut bytes = [0; 10];
        assert_eq!(receive(&*stream, &mut bytes, SOON).unwrap(), 4);
        for _ in 0..2 {
            assert_eq!(receive(&*stream, &mut bytes, SOON).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }
}

#[test]
fn the_server_learns_why_the_client_refuses_its_certificate() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let config = authority.server(&authority.identity(), &TLS13, false);
    let (sender, errors) = std::sync::mpsc::channel();
    let port = serve(move |stream| {
        let error = accept(&config, stream).read(&mut [0; 10]).unwrap_err();
        sender.send(error.to_string()).unwrap();
    });
    open(&format!("rediss://127.0.0.1:{port}/"), &trusting(&other), SOON).map(drop).unwrap_err();
    let error = errors.recv().unwrap();
    assert!(error.contains("fatal alert: UnknownCA"), "{error}");
}

#[test]
fn the_server_learns_why_the_client_ends_the_connection_also_while_a_thread_writes() {
    for version in [&TLS13, &TLS12] {
        // The size of each write: none, one that is encrypted at once, and one that is encrypted in parts.
        for size in [0, 10_000, 300_000] {
            let is_writing = size > 0;
            let (stream, mut server) = tls(version, SOON);
            let (written, is_over) = (AtomicUsize::new(0), AtomicBool::new(!is_writing));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) && stream.write_all(&vec![7; size]).is_ok() {
                        written.fetch_add(1, Relaxed);
                    }
                });
                // Until the writer is blocked: it makes no progress for a while.
                let mut seen = usize::MAX;
                while is_writing && seen != written.load(Relaxed) {
                    seen = written.load(Relaxed);
                    std::thread::sleep(Duration::from_millis(200));
                }
                is_over.store(true, Relaxed);
                server.send_raw(&GARBAGE);
                let start = machine_now();
                let error = receive(&*stream, &mut [0; 10], SOON).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                assert!(since(start) < SOON / 2, "the reader waits for the writer");
                let mut received = Vec::new();
                let error = server.read_to_end(&mut received).unwrap_err();
                assert!(error.to_string().contains("BadRecordMac"), "{error}");
                assert!(received.iter().all(|byte| *byte == 7));
                assert_eq!(received.is_empty(), !is_writing);
            });
        }
    }
}
