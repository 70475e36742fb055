//! The settings that the gates of both APIs have, and their checks.

use crate::clock::Clock;
use crate::error::{CallError, Invalid};
use crate::protocol::replicas::MinReplicas;
use crate::protocol::{id, keys};
use crate::transport::Timeouts;
use crate::transport::address::Address;
use crate::transport::tls::Certificates;
use std::time::Duration;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) clock: Clock,
    pub(crate) address: Result<Address, Invalid>,
    pub(crate) certificates: Certificates,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
    pub(crate) timeouts: Timeouts,
    pub(crate) outage: Duration,
    pub(crate) replicas: Option<MinReplicas>,
}

impl Options {
    pub(crate) fn new(address: Result<Address, Invalid>, clock: Clock) -> Options {
        Options {
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
            outage: Duration::from_secs(10),
            replicas: None,
        }
    }

    /// Checks all settings. Returns the address with the settings for TLS.
    pub(crate) fn checked(&self) -> Result<Address, CallError> {
        let address = self.address.clone()?;
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
        if let Some(MinReplicas { count, timeout }) = self.replicas
            && (count == 0 || timeout.is_zero() || timeout >= read)
        {
            let why = format!(
                "got {count} replicas and {timeout:?}. Accepted: 1 replica or more, and a timeout above 0 and below the read timeout of {read:?}"
            );
            return Err(Invalid::new("min_replicas", why).into());
        }
        address.prepared(&self.certificates)
    }
}

/// The public functions for these settings. The type must have a field `options`, and a function `new`.
macro_rules! options {
    ($builder:ident) => {
        impl $builder {
            /// Settings for a gate on a cluster. `nodes` are the URLs of some of its nodes:
            /// `redis://[user:password@]host:port`. One reachable node is enough. User and password of the first URL are used
            /// for all nodes. With `rediss` in the URLs, all nodes are reached over TLS.
            #[cfg(feature = "cluster")]
            pub fn cluster<S: AsRef<str>>(nodes: &[S]) -> Self {
                <$builder>::new($crate::transport::address::Address::of_cluster(nodes), $crate::clock::Clock::real())
            }

            /// Settings for a gate on the server that these sentinels (`redis://[user:password@]host[:port]`) report as
            /// `master`. The URL `like` contains the settings for connections to that server: user, password, database and TLS.
            /// Its host and port are ignored.
            #[cfg(feature = "sentinel")]
            pub fn sentinel<S: AsRef<str>>(sentinels: &[S], master: &str, like: &str) -> Self {
                let like = $crate::transport::address::info(like);
                let address =
                    like.and_then(|like| $crate::transport::address::Address::of_sentinels(sentinels, master, like));
                <$builder>::new(address, $crate::clock::Clock::real())
            }

            /// The start of every key, `luagate` by default. 1 to 64 characters: letters, digits, `.`, `_`, `-`, `:`.
            pub fn prefix(mut self, prefix: &str) -> Self {
                prefix.clone_into(&mut self.options.prefix);
                self
            }

            /// A label at the start of every id, `<label>/<uuid>`. 1 to 163 bytes without white space. The label of a semaphore
            /// replaces it.
            pub fn label(mut self, label: &str) -> Self {
                self.options.label = Some(label.to_owned());
                self
            }

            /// The CA certificates to trust, in PEM. One of them must have signed the server's certificate. By default the gate
            /// trusts the CAs of the system. This setting replaces the certificates of a client that was passed to
            /// [`Gate::builder_with`](Gate::builder_with). It applies to all nodes of a cluster, and to both the sentinels and the master.
            ///
            /// For `rediss://`, with the feature `tls`, or `tokio-tls` for tokio. Your program chooses the cryptography library: add `rustls` to its
            /// dependencies, with the feature `ring` or `aws-lc-rs`. If several crates enable different ones, call
            /// `rustls::crypto::ring::default_provider().install_default()` at the start of the program, or the same function
            /// of `aws_lc_rs`. Without a choice, [`open`](GateBuilder::open) returns an error that explains this.
            #[cfg(feature = "tls")]
            pub fn root_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
                self.options.certificates.trust(pem.as_ref());
                self
            }

            /// The certificate of this client with the chain to its CA, and its private key, each in PEM. For a server that
            /// requires client certificates. Everything else is as for [`root_certificates`](Self::root_certificates).
            #[cfg(feature = "tls")]
            pub fn client_certificate(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
                self.options.certificates.show(chain.as_ref(), key.as_ref());
                self
            }

            /// The maximum time to connect: 1 ms to a day, 2 s by default. In the synchronous API, the operating system does
            /// not apply such a limit to two cases: a unix socket whose server does not respond, and the resolution of a host
            /// name.
            pub fn connect_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.options.timeouts.connect = timeout;
                self
            }

            /// The maximum time to wait for a reply: 1 ms to a day, 2 s by default.
            pub fn read_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.options.timeouts.read = timeout;
                self
            }

            /// How long a caller that is already in line continues to wait while the server cannot be reached: 10 s by default.
            /// When the server is back, the caller has its place in line again.
            pub fn outage(mut self, outage: std::time::Duration) -> Self {
                self.options.outage = outage;
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
            pub fn min_replicas(mut self, count: u32, timeout: std::time::Duration) -> Self {
                self.options.replicas = Some($crate::protocol::replicas::MinReplicas { count, timeout });
                self
            }
        }
    };
}
pub(crate) use options;
