//! The settings of a gate.

use super::Gate;
use crate::clock::Clock;
use crate::error::{CallError, Invalid};
use crate::lease::permits::Permits;
use crate::lease::releases::Releases;
use crate::protocol::replicas::MinReplicas;
use crate::protocol::{id, keys};
use crate::shared::Shared;
use crate::transport::Timeouts;
use crate::transport::address::Address;
use crate::transport::servers::Servers;
use crate::transport::tls::Certificates;
use crate::wait::blocking::Waits;
use crate::wait::inboxes::Inboxes;
#[cfg(feature = "r2d2")]
use redis::Client;
use std::sync::Arc;
use std::time::Duration;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Settings of a [`Gate`]. [`Gate::builder`] creates it.
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct GateBuilder {
    clock: Clock,
    address: Result<Address, Invalid>,
    certificates: Certificates,
    prefix: String,
    label: Option<String>,
    timeouts: Timeouts,
    connections: usize,
    outage: Duration,
    replicas: Option<MinReplicas>,
    drop_bound: Duration,
}

/// The maximum time that dropping a permit blocks, unless it never waits.
const DROP_BOUND: Duration = Duration::from_millis(100);

impl GateBuilder {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> GateBuilder {
        GateBuilder {
            clock,
            address,
            certificates: Certificates::default(),
            prefix: "luagate".to_owned(),
            label: None,
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                read: Duration::from_secs(2),
                write: Duration::from_secs(2),
            },
            connections: 8,
            outage: Duration::from_secs(10),
            replicas: None,
            drop_bound: DROP_BOUND,
        }
    }

    /// Settings for a gate on a cluster. `nodes` are the URLs of some of its nodes:
    /// `redis://[user:password@]host:port`. One reachable node is enough. User and password of the first URL are used
    /// for all nodes. With `rediss` in the URLs, all nodes are reached over TLS.
    #[cfg(feature = "cluster")]
    pub fn cluster<S: AsRef<str>>(nodes: &[S]) -> GateBuilder {
        GateBuilder::new(Address::of_cluster(nodes), Clock::real())
    }

    /// Settings for a gate on the server that these sentinels (`redis://[user:password@]host[:port]`) report as
    /// `master`. The URL `like` contains the settings for connections to that server: user, password, database and TLS.
    /// Its host and port are ignored.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<S: AsRef<str>>(sentinels: &[S], master: &str, like: &str) -> GateBuilder {
        let like = crate::transport::address::info(like);
        let address = like.and_then(|like| Address::of_sentinels(sentinels, master, like));
        GateBuilder::new(address, Clock::real())
    }

    /// Settings for a gate that sends its calls over connections of `pool`. It borrows a connection for each call. The
    /// subscriber connection is separate, with the settings of `client`. [`connections`](GateBuilder::connections)
    /// limits the number of connections borrowed at the same time.
    ///
    /// The gate sets its timeouts on a borrowed connection and removes them again. `test_on_check_out(false)` saves a
    /// round trip for each call. If a connection is broken, the call that uses it notices this, and the client repeats
    /// the call.
    #[cfg(feature = "r2d2")]
    pub fn pool(pool: r2d2::Pool<Client>, client: &Client) -> GateBuilder {
        let info = client.get_connection_info().clone();
        let most = usize::try_from(pool.max_size()).unwrap_or(usize::MAX);
        GateBuilder::new(Ok(Address::Pool(pool, info)), Clock::real()).connections(most)
    }

    /// The start of every key, `luagate` by default. 1 to 64 characters: letters, digits, `.`, `_`, `-`, `:`.
    pub fn prefix(mut self, prefix: &str) -> GateBuilder {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The label of every id. See [`Semaphore::label`](crate::Semaphore::label).
    pub fn label(mut self, label: &str) -> GateBuilder {
        self.label = Some(label.to_owned());
        self
    }

    /// The CA certificates to trust, in PEM. One of them must have signed the server's certificate. By default the gate
    /// trusts the CAs of the system. This setting replaces the certificates of a client that was passed to
    /// [`Gate::builder_with`]. It applies to all nodes of a cluster, and to both the sentinels and the master.
    ///
    /// For `rediss://`, with the feature `tls`. Your program chooses the cryptography library: add `rustls` to its
    /// dependencies, with the feature `ring` or `aws-lc-rs`. If several crates enable different ones, call
    /// `rustls::crypto::ring::default_provider().install_default()` at the start of the program, or the same function
    /// of `aws_lc_rs`. Without a choice, [`open`](GateBuilder::open) returns an error that explains this.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl AsRef<[u8]>) -> GateBuilder {
        self.certificates.trust(pem.as_ref());
        self
    }

    /// The certificate of this client with the chain to its CA, and its private key, each in PEM. For a server that
    /// requires client certificates. Everything else is as for [`root_certificates`](GateBuilder::root_certificates).
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> GateBuilder {
        self.certificates.show(chain.as_ref(), key.as_ref());
        self
    }

    /// The maximum time to connect: 1 ms to a day, 2 s by default. The operating system does not apply such a limit to
    /// two cases: a unix socket whose server does not respond, and the resolution of a host name.
    pub fn connect_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.connect = timeout;
        self
    }

    /// The maximum time to wait for a reply: 1 ms to a day, 2 s by default.
    pub fn read_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.read = timeout;
        self
    }

    /// The maximum time to send a call: 1 ms to a day, 2 s by default.
    pub fn write_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.write = timeout;
        self
    }

    /// The maximum number of connections in the pool: 1 or more, 8 by default. Threads that wait in line need no
    /// connection. Calls of several threads share a packet, so the pool does not have to grow with the number of
    /// threads.
    pub fn connections(mut self, most: usize) -> GateBuilder {
        self.connections = most;
        self
    }

    /// How long a caller that is already in line continues to wait while the server cannot be reached: 10 s by default.
    /// When the server is back, the caller has its place in line again.
    pub fn outage(mut self, outage: Duration) -> GateBuilder {
        self.outage = outage;
        self
    }

    /// A grant or a new lease counts only after `count` replicas (1 or more) have confirmed it within `timeout`, 1 ms
    /// to less than the read timeout. A failover to one of these replicas then does not forget the permit. Each grant
    /// needs one more packet, with a refresh and `WAIT`.
    ///
    /// If too few replicas confirm a grant, the client releases it and returns an error of the kind
    /// [`TooFewReplicas`](crate::errors::FailureKind::TooFewReplicas). If they do not confirm a new lease, the permit
    /// keeps its old lease. Redis may promote a replica that did not confirm. Therefore this setting makes a loss rare,
    /// but does not exclude it. Only the fence protects in that case.
    pub fn min_replicas(mut self, count: u32, timeout: Duration) -> GateBuilder {
        self.replicas = Some(MinReplicas { count, timeout });
        self
    }

    /// Dropping a permit never waits for the server: a background thread sends the release. By default, dropping sends
    /// the release itself and waits for the reply, for at most 100 ms.
    ///
    /// For programs whose threads must not block, such as [async programs](crate::guide::async_programs). The first
    /// waiter gets the permit a little later, usually by less than a round trip. If the process ends directly after the
    /// drop, the release may not be sent; then the permit ends with its lease. The setting applies to guards of all
    /// locks. [`Permit::release`](crate::Permit::release) still waits for the reply.
    pub fn drop_in_background(mut self) -> GateBuilder {
        self.drop_bound = Duration::ZERO;
        self
    }

    /// Opens the gate and connects once. Blocks meanwhile.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if a setting is not valid. [`CallError::Failed`] if the server cannot be used.
    pub fn open(self) -> Result<Gate, CallError> {
        let address = self.address?;
        keys::check_prefix(&self.prefix)?;
        if let Some(label) = &self.label {
            id::new_id(Some(label))?;
        }
        let Timeouts { connect, read, write } = self.timeouts;
        for (what, timeout) in [("connect_timeout", connect), ("read_timeout", read), ("write_timeout", write)] {
            if !(Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
                let why = format!("{timeout:?} is out of range. Accepted: 1 ms to 24 hours");
                return Err(Invalid::new(what, why).into());
            }
        }
        if self.connections == 0 {
            return Err(Invalid::new("connections", "got 0. Accepted: 1 or more").into());
        }
        if let Some(MinReplicas { count, timeout }) = self.replicas
            && (count == 0 || timeout.is_zero() || timeout >= read)
        {
            let why = format!(
                "got {count} replicas and {timeout:?}. Accepted: 1 replica or more, and a timeout above 0 and below the read timeout of {read:?}"
            );
            return Err(Invalid::new("min_replicas", why).into());
        }
        let address = address.prepared(&self.certificates)?;
        let servers = Servers::open(address, self.clock, self.timeouts, self.connections)?;
        let servers = Arc::new(servers);
        servers.check()?;
        let releases = Arc::new(Releases::new(servers.clone()));
        let shared = Shared {
            permits: Permits::new(servers.clone(), self.replicas),
            waits: Waits {
                servers: servers.clone(),
                inboxes: Inboxes::new(servers.clone(), releases.clone(), &self.prefix),
                releases: releases.clone(),
                outage: self.outage,
            },
            releases,
            servers,
            prefix: self.prefix,
            label: self.label,
            has_replicas: self.replicas.is_some(),
            drop_bound: self.drop_bound,
        };
        Ok(Gate { shared: Arc::new(shared) })
    }
}
