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

/// Settings of a [`Gate`]. Made by [`Gate::builder`].
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
}

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
        }
    }

    /// Settings for a gate on a cluster, of which these urls (`redis://[user:password@]host:port`) are some nodes. One that
    /// can be reached is enough; user and password of the first are those for all. With `rediss` all are reached by TLS.
    #[cfg(feature = "cluster")]
    pub fn cluster<S: AsRef<str>>(nodes: &[S]) -> GateBuilder {
        GateBuilder::new(Address::of_cluster(nodes), Clock::real())
    }

    /// Settings for a gate on the server that these sentinels (`redis://[user:password@]host[:port]`) call `master`. The url
    /// `like` tells how connections to that one are made, but for host and port: user, password, database, TLS.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<S: AsRef<str>>(sentinels: &[S], master: &str, like: &str) -> GateBuilder {
        let like = crate::transport::address::info(like);
        let address = like.and_then(|like| Address::of_sentinels(sentinels, master, like));
        GateBuilder::new(address, Clock::real())
    }

    /// Settings for a gate whose calls go over connections of `pool`, each borrowed for one call; a subscription is connected by
    /// itself, as `client` does. [`connections`](GateBuilder::connections) bounds how many it borrows at once.
    ///
    /// The gate sets its timeouts on what it borrows, and takes them off again. `test_on_check_out(false)` saves a round trip
    /// a call: a connection that broke is found out by the call that meets it, which is then made again.
    #[cfg(feature = "r2d2")]
    pub fn pool(pool: r2d2::Pool<Client>, client: &Client) -> GateBuilder {
        let info = client.get_connection_info().clone();
        let most = usize::try_from(pool.max_size()).unwrap_or(usize::MAX);
        GateBuilder::new(Ok(Address::Pool(pool, info)), Clock::real()).connections(most)
    }

    /// The start of every key, `luagate` unless chosen: 1 to 64 of letters, digits, `.`, `_`, `-`, `:`.
    pub fn prefix(mut self, prefix: &str) -> GateBuilder {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The label of every id, see [`Semaphore::label`](crate::Semaphore::label).
    pub fn label(mut self, label: &str) -> GateBuilder {
        self.label = Some(label.to_owned());
        self
    }

    /// The CAs, in PEM, one of which has to have signed the server's certificate; those that the system trusts unless given. Takes
    /// the place of what a client given to [`Gate::builder_with`] has of its own. They count for every node of a cluster, and for
    /// the sentinels and the master alike.
    ///
    /// For `rediss://`, with the feature `tls`. The cryptography is the program's choice: let it depend on `rustls` with the
    /// feature `ring` or `aws-lc-rs`. Where several crates chose otherwise, it begins with
    /// `rustls::crypto::ring::default_provider().install_default()`, or the same of `aws_lc_rs`. Without a choice
    /// [`open`](GateBuilder::open) fails and says so.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl AsRef<[u8]>) -> GateBuilder {
        self.certificates.trust(pem.as_ref());
        self
    }

    /// This client's own certificate with the chain that leads to its CA, and its private key, each in PEM: for a server that
    /// asks who connects. Otherwise as [`root_certificates`](GateBuilder::root_certificates).
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> GateBuilder {
        self.certificates.show(chain.as_ref(), key.as_ref());
        self
    }

    /// How long connecting may take, 1 ms to a day; 2 s unless chosen. The system has no such bound for unix sockets whose
    /// server stands still, nor for finding the address of a name.
    pub fn connect_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.connect = timeout;
        self
    }

    /// How long a reply may take, 1 ms to a day; 2 s unless chosen.
    pub fn read_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.read = timeout;
        self
    }

    /// How long sending a call may take, 1 ms to a day; 2 s unless chosen.
    pub fn write_timeout(mut self, timeout: Duration) -> GateBuilder {
        self.timeouts.write = timeout;
        self
    }

    /// How many connections the pool has at most; 8 unless chosen. Threads that wait in line need none. Calls of many
    /// threads share packets, so it need not grow with them.
    pub fn connections(mut self, most: usize) -> GateBuilder {
        self.connections = most;
        self
    }

    /// How long a caller who stands in line already goes on when the server cannot be reached; 10 s unless chosen. Its
    /// place comes back with the server.
    pub fn outage(mut self, outage: Duration) -> GateBuilder {
        self.outage = outage;
        self
    }

    /// Lets a grant, and every new lease, count only once `count` replicas (1 or more) have it, which they have to say within
    /// `timeout` (1 ms up to the read timeout): then a failover to one of them does not forget the permit. Each grant is
    /// followed by a refresh and `WAIT` in one more packet.
    ///
    /// Where too few confirm, a grant is given back, with an error of the kind
    /// [`TooFewReplicas`](crate::errors::FailureKind::TooFewReplicas), and a permit whose new lease they do not confirm counts by
    /// its old one. Redis may promote a replica that did not confirm, so this makes a loss rare and does not rule it out; the
    /// fence does.
    pub fn min_replicas(mut self, count: u32, timeout: Duration) -> GateBuilder {
        self.replicas = Some(MinReplicas { count, timeout });
        self
    }

    /// Opens the gate, and connects once.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a setting that cannot be; [`CallError::Failed`] when the server cannot be used.
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
        };
        Ok(Gate { shared: Arc::new(shared) })
    }
}
