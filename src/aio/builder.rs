//! The settings of a gate.

use super::gate::Gate;
use crate::engine::mode::Mode;
use crate::error::CallError;
use std::time::Duration;

/// Settings of a [`Gate`]. [`Gate::builder`] creates it. They are those of [`luagate::GateBuilder`](crate::GateBuilder).
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder(pub(crate) crate::GateBuilder);

impl GateBuilder {
    /// Settings for a gate on a cluster. See [`luagate::GateBuilder::cluster`](crate::GateBuilder::cluster).
    pub fn cluster<S: AsRef<str>>(nodes: &[S]) -> Self {
        GateBuilder(crate::GateBuilder::cluster(nodes))
    }

    /// Settings for a gate on the server that these sentinels report as `master`. See
    /// [`luagate::GateBuilder::sentinel`](crate::GateBuilder::sentinel).
    pub fn sentinel<S: AsRef<str>>(sentinels: &[S], master: &str, like: &str) -> Self {
        GateBuilder(crate::GateBuilder::sentinel(sentinels, master, like))
    }

    /// The start of every key, `luagate` by default. See [`luagate::GateBuilder::prefix`](crate::GateBuilder::prefix).
    pub fn prefix(self, prefix: &str) -> Self {
        GateBuilder(self.0.prefix(prefix))
    }

    /// A label at the start of every id. See [`luagate::GateBuilder::label`](crate::GateBuilder::label).
    pub fn label(self, label: &str) -> Self {
        GateBuilder(self.0.label(label))
    }

    /// The CA certificates to trust, in PEM. See
    /// [`luagate::GateBuilder::root_certificates`](crate::GateBuilder::root_certificates).
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl AsRef<[u8]>) -> Self {
        GateBuilder(self.0.root_certificates(pem))
    }

    /// The certificate of this client with the chain to its CA, and its private key, each in PEM. See
    /// [`luagate::GateBuilder::client_certificate`](crate::GateBuilder::client_certificate).
    #[cfg(feature = "tls")]
    pub fn client_certificate(self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        GateBuilder(self.0.client_certificate(chain, key))
    }

    /// The maximum time to connect: 2 s by default. See
    /// [`luagate::GateBuilder::connect_timeout`](crate::GateBuilder::connect_timeout).
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        GateBuilder(self.0.connect_timeout(timeout))
    }

    /// The maximum time to wait for a reply: 2 s by default. See
    /// [`luagate::GateBuilder::read_timeout`](crate::GateBuilder::read_timeout).
    pub fn read_timeout(self, timeout: Duration) -> Self {
        GateBuilder(self.0.read_timeout(timeout))
    }

    /// How long a caller that is already in line continues to wait while the server cannot be reached: 10 s by default.
    /// See [`luagate::GateBuilder::outage`](crate::GateBuilder::outage).
    pub fn outage(self, outage: Duration) -> Self {
        GateBuilder(self.0.outage(outage))
    }

    /// A grant or a new lease counts only after `count` replicas have confirmed it within `timeout`. See
    /// [`luagate::GateBuilder::min_replicas`](crate::GateBuilder::min_replicas).
    pub fn min_replicas(self, count: u32, timeout: Duration) -> Self {
        GateBuilder(self.0.min_replicas(count, timeout))
    }

    /// Opens the gate and connects once.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if a setting is not valid. [`CallError::Failed`] if the server cannot be used.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn open(self) -> Result<Gate, CallError> {
        self.0.open_by(Mode::Async).await.map(Gate)
    }
}
