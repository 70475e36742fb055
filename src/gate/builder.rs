//! The settings of a gate.

use super::{Gate, one_sided_tls};
use crate::clock::Clock;
use crate::engine::address::Address;
use crate::engine::credentials::{Credentials, Source};
use crate::engine::mode::{Mode, block};
use crate::engine::server::Timeouts;
use crate::engine::servers::Servers;
use crate::engine::tls::Certificates;
use crate::engine::worker::Worker;
use crate::error::{CallError, Invalid};
use crate::foreign::Foreign;
use crate::lease::outbox::SharedOutbox;
use crate::lease::permits::Permits;
use crate::lease::releases::Releases;
use crate::shared::Shared;
use crate::trace;
use crate::wait::polled::Futures;
use crate::wait::{Registry, WaitDriver};
use luagate_core::exchange::MinReplicas;
use luagate_core::{id, keys};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The timeout for connecting, and for a reply, unless set.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a wait goes on without a server, unless set.
pub(crate) const OUTAGE: Duration = Duration::from_secs(10);

const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Settings of a [`Gate`]. [`Gate::builder`] creates it.
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder {
    clock: Clock,
    address: Result<Address, Invalid>,
    certificates: Certificates,
    credentials: Option<Source>,
    prefix: String,
    label: Option<String>,
    timeouts: Timeouts,
    outage: Duration,
    replicas: Option<MinReplicas>,
}

impl GateBuilder {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> GateBuilder {
        GateBuilder {
            clock,
            address,
            certificates: Certificates::default(),
            credentials: None,
            prefix: "luagate".to_owned(),
            label: None,
            timeouts: Timeouts { connect: TIMEOUT, read: TIMEOUT },
            outage: OUTAGE,
            replicas: None,
        }
    }

    /// Opens the gate and connects once. Blocks meanwhile.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if a setting is not valid. [`CallError::Failed`] if the server cannot be used.
    pub fn open(self) -> Result<Gate, CallError> {
        block(|mode| self.open_by(mode))
    }

    /// As [`open`](GateBuilder::open), without blocking.
    ///
    /// # Errors
    /// As [`open`](GateBuilder::open).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn open_async(self) -> Result<Gate, CallError> {
        self.open_by(Mode::Async).await
    }

    /// Checks all settings. Returns the address with the settings for TLS.
    fn checked(&self) -> Result<Address, CallError> {
        let mut address = self.address.clone()?;
        keys::check_prefix(&self.prefix)?;
        if let Some(label) = &self.label {
            id::new_id(Some(label), Uuid::nil())?;
        }
        let Timeouts { connect, read } = self.timeouts;
        for (what, timeout) in [("connect_timeout", connect), ("read_timeout", read)] {
            if !(Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
                let why = format!("{timeout:?} is out of range. Accepted: 1 ms to 24 hours");
                return Err(Invalid::new(what, why).into());
            }
        }
        if let Some(MinReplicas { count, timeout }) = self.replicas
            && (count == 0 || timeout.is_zero() || timeout >= read)
        {
            let why = format!(
                "got {count} replicas and {timeout:?}. Accepted: 1 replica or more, and a timeout above 0 and below the read timeout of {read:?}"
            );
            return Err(Invalid::new("min_replicas", why).into());
        }
        if let Some(source) = &self.credentials {
            address = address.with_credentials(source)?;
        }
        Ok(address.with_certificates(&self.certificates)?)
    }

    async fn open_by(self, mode: Mode) -> Result<Gate, CallError> {
        let address = self.checked()?;
        let GateBuilder { clock, timeouts, replicas, prefix, label, outage, .. } = self;
        let foreign = Foreign::new(trace::panicked);
        let worker = Worker::new(&foreign, &clock);
        let outbox = Arc::new(SharedOutbox::new(&foreign));
        let registry = Arc::new(Registry::new(&worker, outbox.clone()));
        let servers = Arc::new(Servers::new(address, &worker, timeouts, &prefix, registry.clone()));
        if let Err(error) = servers.check(mode).await {
            return Err(one_sided_tls::explained(&servers, error, mode).await.into());
        }
        let releases = Releases::new(servers.clone(), registry.all_waits.clone(), outbox);
        let permits = Permits::new(servers.clone(), replicas);
        let futures = Futures::new(&clock, &worker, &releases);
        let waits = WaitDriver {
            registry,
            retried: Arc::default(),
            servers: servers.clone(),
            releases: releases.clone(),
            outage,
        };
        let shared = Shared { servers, permits, releases, waits, futures, prefix, label };
        Ok(Gate { shared: Arc::new(shared) })
    }

    /// The user, the password and TLS of connections to the sentinels: those of this URL, for example
    /// `redis://finder:password@any`. Its host and port are ignored. By default these connections have no
    /// user and no password, and use TLS if those to the master do. Only for an address with sentinels.
    pub fn sentinels_as(mut self, url: &str) -> Self {
        self.address = self.address.and_then(|address| address.asking_as(url));
        self
    }

    /// The function that is asked for the user and the password of each new connection, for passwords that
    /// change while the program runs. The URL then has no password; its user counts if the function returns
    /// none. By default the user and the password are those of the URL. With sentinels the function is asked
    /// for the master;
    /// [`sentinels_as`](GateBuilder::sentinels_as) sets the password for the sentinels.
    ///
    /// It is called in a thread of the gate, after the server has accepted the connection, and without a lock
    /// of the gate. Two threads can call it at the same time. It should return quickly, for example a token
    /// that another thread renews: its time counts as time to connect. While it blocks, no connection to that
    /// server is made. Callers that need one wait for it, but not longer than they would wait for a server
    /// that does not answer. It must make no call of this gate that needs a server, since that call would
    /// wait for the same connection.
    ///
    /// If it fails or panics, or the server refuses what it returned, the attempt to connect has failed.
    /// Calls that do not wait in line return this at once, of the kind
    /// [`Authentication`](crate::errors::FailureKind::Authentication). The text contains the text of the
    /// function's error, which must not contain the password. Waits in line try again until
    /// [`outage_timeout`](GateBuilder::outage_timeout), renewals and releases until the lease has ended.
    ///
    /// ```no_run
    /// use luagate::{Credentials, Gate};
    /// use std::fs;
    ///
    /// # fn main() -> Result<(), luagate::Error> {
    /// let read = || fs::read_to_string("/run/secrets/redis").map(|text| Credentials::password(text.trim_end()));
    /// let gate = Gate::builder("redis://worker@127.0.0.1/").credentials(read).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<E>(mut self, ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.credentials = Some(Source::new(move || ask().map_err(E::into)));
        self
    }

    /// The start of every key, `luagate` by default. 1 to 64 characters: letters, digits, `.`, `_`, `-`, `:`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// A label at the start of every id, `<label>/<uuid>`. 1 to 163 bytes without white space. The label of a
    /// semaphore replaces it.
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// The CA certificates to trust, in PEM. One of them must have signed the server's certificate. By
    /// default the gate trusts the CAs of the system. It applies to all nodes of a cluster, and to both the
    /// sentinels and the master.
    ///
    /// For `rediss://`, with the feature `tls`. Your program chooses the cryptography library: add `rustls`
    /// to its dependencies, with the feature `ring` or `aws-lc-rs`. If several crates enable different ones,
    /// call `rustls::crypto::ring::default_provider().install_default()` at the start of the program, or the
    /// same function of `aws_lc_rs`. Without a choice, [`open`](GateBuilder::open) returns an error that
    /// explains this.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificates.trust(pem.as_ref());
        self
    }

    /// The certificate of this client with the chain to its CA, and its private key, each in PEM. For a
    /// server that requires client certificates. Everything else is as for
    /// [`root_certificates`](Self::root_certificates).
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.certificates.show(chain.as_ref(), key.as_ref());
        self
    }

    /// The maximum time to connect: 1 ms to a day, 2 s by default. Before that, the host name is looked up,
    /// for at most 10 s. A thread of the gate does both. A call waits for it until its own deadline, or for
    /// the connect timeout. When the caller has given up, the thread goes on, and later calls use the
    /// connection. Only [`open`](GateBuilder::open) waits for a look-up that takes longer.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// The maximum time to wait for a reply, and to send a call: 1 ms to a day, 2 s by default. A call that
    /// the server refuses
    /// [only for now](crate::guide::errors#errors-that-pass) is repeated for this time.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.read = timeout;
        self
    }

    /// How long a caller that is already in line continues to wait while the server cannot be reached: 10 s
    /// by default. When the server is back, the caller has its place in line again. Zero: a wait ends with
    /// its first failed call. If the first call of a wait cannot reach the server, it fails at once. If the
    /// server refuses it
    /// [only for now](crate::guide::errors#errors-that-pass), the wait continues for this time, too.
    pub fn outage_timeout(mut self, timeout: Duration) -> Self {
        self.outage = timeout;
        self
    }

    /// A grant or a new lease counts only after `count` replicas (1 or more) have confirmed it within
    /// `timeout`, 1 ms to less than the read timeout. A failover to one of these replicas then does not
    /// forget the permit. Each grant needs one more packet, with a refresh and `WAIT`.
    ///
    /// If too few replicas confirm a grant, the client releases it and returns an error of the kind
    /// [`TooFewReplicas`](crate::errors::FailureKind::TooFewReplicas). If they do not confirm a new lease,
    /// the permit keeps its old lease. Redis may promote a replica that did not confirm. Therefore this
    /// setting makes a loss rare, but does not exclude it. Only the fence protects in that case.
    pub fn min_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some(MinReplicas { count, timeout });
        self
    }
}
