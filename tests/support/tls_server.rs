//! Servers that speak TLS, and the certificates for both sides. Not in `mod.rs`: who has no use for it need not have rcgen.
#![allow(dead_code, reason = "each test program uses a part of this")]

use crate::support::{Environment, Server, binary, next_port};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A CA, and the folder in which servers find what it signed.
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

    /// A certificate as it should be.
    pub fn identity(&self) -> Identity {
        self.sign("127.0.0.1", (2020, 4000))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// What the server shows from its next start on.
    pub fn put(&self, identity: &Identity) {
        std::fs::write(self.path("chain"), &identity.chain).unwrap();
        std::fs::write(self.path("key"), &identity.key).unwrap();
    }

    /// A server of the test's own that shows `identity`, and wants a certificate of this CA from each client. `None` where
    /// there is no server that can do TLS.
    pub fn server(&self, identity: &Identity, arguments: &[&str]) -> Option<Server> {
        self.server_in(identity, arguments, &|_| Environment::new())
    }

    /// A server of a group whose members speak TLS among each other, too.
    pub fn member(&self, arguments: &[&str], environment: &dyn Fn(&Path) -> Environment) -> Option<Server> {
        let among = ["--tls-cluster", "yes", "--tls-replication", "yes"];
        let arguments = [arguments, &among].concat();
        let mut server = self.server_in(&self.identity(), &arguments, environment)?;
        // Whoever asks without TLS is told ports without it, of which there are none.
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

    /// A client that trusts this CA, and shows `own`.
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

/// Whether the server can do TLS: one that can complains that it has no certificate.
fn speaks_tls() -> bool {
    let Some(binary) = binary() else { return false };
    let output = Command::new(binary).args(["--port", "0", "--tls-port", "1"]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).contains("No tls-cert-file")
}

/// A server that speaks TLS; or the test is skipped, and says so.
#[macro_export]
macro_rules! own_tls {
    ($server:expr) => {
        match $server {
            Some(server) => server,
            None => return $crate::support::skip_since("needs a server that was built with TLS"),
        }
    };
}
