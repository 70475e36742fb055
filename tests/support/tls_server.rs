//! TLS servers, and the certificates for both sides. Not in `mod.rs`: tests that do not use it need not
//! depend on rcgen.
#![allow(dead_code, reason = "each test program uses a part of this")]

use crate::support::{Environment, Server, binary, next_port};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A CA, and the folder with the certificates that it signed for servers.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in PEM.
pub struct Identity {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca"), &pem).unwrap();
        Authority { pem, issuer: Issuer::new(params, key), folder }
    }

    /// Signs a certificate for this host, valid from one year to another.
    pub fn sign(&self, host: &str, years: (i32, i32)) -> Identity {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a test");
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        Identity { chain: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// A valid certificate.
    pub fn identity(&self) -> Identity {
        self.sign("127.0.0.1", (2020, 4000))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The certificate that the server shows after its next start.
    pub fn put(&self, identity: &Identity) {
        std::fs::write(self.path("chain"), &identity.chain).unwrap();
        std::fs::write(self.path("key"), &identity.key).unwrap();
    }

    /// A private server that shows `identity`, and requires from each client a certificate of this CA. `None`
    /// if no server with TLS is available.
    pub fn server(&self, identity: &Identity, arguments: &[&str]) -> Option<Server> {
        self.server_in(identity, arguments, &|_| Environment::new())
    }

    /// A server of a group whose members also use TLS with each other.
    pub fn member(&self, arguments: &[&str], environment: &dyn Fn(&Path) -> Environment) -> Option<Server> {
        let among = ["--tls-cluster", "yes", "--tls-replication", "yes"];
        let arguments = [arguments, &among].concat();
        let mut server = self.server_in(&self.identity(), &arguments, environment)?;
        // A client without TLS would be redirected to ports without TLS, and there are none.
        server.client = Some(self.client(&server.url, &self.identity()));
        Some(server)
    }

    fn server_in(
        &self,
        identity: &Identity,
        arguments: &[&str],
        environment: &dyn Fn(&Path) -> Environment,
    ) -> Option<Server> {
        if !speaks_tls() {
            return None;
        }
        self.put(identity);
        let files = [("cert", "chain"), ("key", "key"), ("ca-cert", "ca")];
        loop {
            let port = next_port();
            let mut all = vec!["--tls-port".to_owned(), port.to_string()];
            for (what, file) in files {
                all.push(format!("--tls-{what}-file"));
                all.push(self.path(file).display().to_string());
            }
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let all = [arguments, &all].concat();
            let mut server = Server::start_in(&all, "0", environment)?;
            if server.becomes_ready() {
                server.url = format!("rediss://127.0.0.1:{port}/");
                return Some(server);
            }
        }
    }

    /// A client that trusts this CA and shows `own`.
    pub fn client(&self, url: &str, own: &Identity) -> Client {
        let certificates = TlsCertificates {
            client_tls: Some(ClientTlsConfig {
                client_cert: own.chain.clone().into_bytes(),
                client_key: own.key.clone().into_bytes(),
            }),
            root_cert: Some(self.pem.clone().into_bytes()),
        };
        Client::build_with_tls(url, certificates).unwrap()
    }
}

/// Whether the server supports TLS: if it does, it complains about the missing certificate.
fn speaks_tls() -> bool {
    let Some(binary) = binary() else { return false };
    let output = Command::new(binary).args(["--port", "0", "--tls-port", "1"]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).contains("No tls-cert-file")
}

/// A server with TLS; otherwise the test is skipped and prints so.
#[macro_export]
macro_rules! own_tls {
    ($server:expr) => {
        match $server {
            Some(server) => server,
            None => return $crate::support::skip_since("needs a server that was built with TLS"),
        }
    };
}
