//! The gate: where everything begins.

use crate::clock::Clock;
use crate::counters::{Counters, Counts};
use crate::error::{CallError, Invalid, MOST};
use crate::latch::CountDownLatch;
use crate::lease::cleanup::Cleanup;
use crate::lease::renewal::Renewal;
use crate::mutex::Mutex;
use crate::protocol::name;
use crate::protocol::replicas::MinReplicas;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::several::Mutexes;
use crate::shared::Engine;
use crate::transport::address::Address;
#[cfg(feature = "cluster")]
use crate::transport::cluster::{Cluster, Pools};
use crate::transport::connections::{Connections, Timeouts};
#[cfg(feature = "sentinel")]
use crate::transport::sentinel::Sentinels;
use crate::transport::servers::{Servers, Topology};
use crate::transport::source::Source;
use crate::transport::tls::Certificates;
use crate::transport::warning::Warning;
use crate::wait::inbox::Inbox;
use redis::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// A client of Redis or Valkey, one server or a cluster, from which everything is had by name.
///
/// Open one for a process and clone it: it has a small pool of connections, at most one subscriber connection, and at most
/// five threads (renewal, subscriber, losses to be told, callbacks, releases that are left over), each opened or started when
/// first needed; of connections, renewal and subscriber each node of a cluster has its own. Permits keep what they need of it
/// alive. A forked child must open its own.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), luagate::Error> {
/// let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let market = gate.semaphore("market:account:17", 5).lease(Duration::from_secs(10));
/// let permit = market.acquire_timeout(Duration::from_secs(2))?;
/// println!("inside with fence {}", permit.fence());
/// permit.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gate {
    pub(crate) engine: Arc<Engine>,
}

impl Gate {
    /// Opens a gate at `url`, and connects once, so that a wrong address is found out here:
    ///
    /// | url | where |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a server |
    /// | `unix:///path/to/socket`, `redis+unix:///path` | a server on this machine |
    /// | `redis+cluster://[user:password@]host:port,host:port` | a cluster, of which these are some nodes; needs the feature `cluster` |
    /// | `redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]` | the server that these sentinels call master; needs the feature `sentinel` |
    ///
    /// With `rediss` for `redis` by TLS, which needs the feature `tls`.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a url that is none; [`CallError::Failed`] when the server cannot be used.
    pub fn open(url: &str) -> Result<Gate, CallError> {
        Gate::builder(url).open()
    }

    /// Opens a gate on a server in this process, for the unit tests of a program: nobody else has that server, and its clock
    /// can be moved. Needs the feature `memory`, which has more to say in [`memory`](crate::memory).
    ///
    /// # Errors
    /// [`CallError::Failed`] when the system gives no port on the loopback, or no thread.
    #[cfg(feature = "memory")]
    pub fn in_memory() -> Result<(Gate, crate::memory::Memory), CallError> {
        let memory = crate::memory::Memory::new()?;
        Ok((memory.gate()?, memory))
    }

    /// Settings for a gate at `url`, as [`open`](Gate::open) takes it.
    pub fn builder(url: &str) -> GateBuilder {
        GateBuilder::new(Address::parse(url), Clock::real())
    }

    /// Settings for a gate that connects as `client` does, with its certificates if it has some.
    pub fn builder_with(client: Client) -> GateBuilder {
        let info = client.get_connection_info().clone();
        GateBuilder::new(Ok(Address::One(info)), Clock::real())
    }

    /// The semaphore `name`, of which at most `limit` permits (1 to 2^31-1) are held at once. Asks nobody: a name or limit
    /// that cannot be is told by the first call that uses it.
    ///
    /// A name is 1 to 200 bytes without white space, control characters or braces; [`name_from`](crate::name_from) makes one of
    /// any text. The first grant stores the limit; while
    /// somebody uses the semaphore, that one is in force for all, whatever else they declare.
    pub fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(self.engine.clone(), "semaphore", name, Some(limit))
    }

    /// The semaphore `name`, of which at most as many permits are held at once as somebody else has said:
    /// [`Semaphore::resize`] stores a limit that stays. Where none is stored, acquiring is
    /// [`Invalid`](crate::errors::Invalid): `no limit`.
    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.engine.clone(), "semaphore", name, None)
    }

    /// The mutex `name`. It is not the semaphore of the same name.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Semaphore::new(self.engine.clone(), "mutex", name, Some(1)))
    }

    /// The mutexes of these names, 1 to 64, to be locked together. Each is the same as [`Gate::mutex`] has by its name.
    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Mutexes {
        Mutexes::new(names.into_iter().map(|name| self.mutex(name.as_ref())))
    }

    /// The reader-writer lock `name`.
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(Semaphore::new(
            self.engine.clone(),
            "rwlock",
            name,
            Some(MOST),
        ))
    }

    /// The latch `name`, which opens once `count` (1 to 2^31-1) have counted down. Asks nobody: a name or count that cannot be
    /// is told by the first call that uses it.
    ///
    /// A name is as a semaphore's. The first `count_down` or wait stores the count; while the latch is kept, that one is in
    /// force for all, whatever else they declare.
    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch::new(self.engine.clone(), name, count)
    }

    /// How many connections of the pools are open now; subscribers are not among them.
    pub fn open_connections(&self) -> usize {
        self.engine.servers.open()
    }

    /// What this gate and its clones have counted since it was opened. Does not block and asks nobody.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// println!("lost since the start: {}", gate.counters().lost);
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Counters {
        self.engine.servers.counts.read()
    }

    /// What is wrong with how the servers are set up, though they serve: that they would evict. Each server is asked once
    /// (`INFO memory`), when the gate is opened, and in a cluster each master when it is first used; so what is changed there
    /// later does not show. A server that does not tell is not warned of. With the feature `tracing` each is also an event, at
    /// the moment when it is found. Does not block and asks nobody.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// for warning in gate.warnings() {
    ///     eprintln!("luagate: {warning}"); // or whatever the program logs by
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        self.engine.servers.warnings()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("prefix", &self.engine.prefix)
            .field("label", &self.engine.label)
            .finish_non_exhaustive()
    }
}

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

    /// The label of every id, see [`Semaphore::label`].
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
    pub fn client_certificate(
        mut self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> GateBuilder {
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
        name::check_prefix(&self.prefix)?;
        if let Some(label) = &self.label {
            name::new_id(Some(label))?;
        }
        let Timeouts {
            connect,
            read,
            write,
        } = self.timeouts;
        for (what, timeout) in [
            ("connect_timeout", connect),
            ("read_timeout", read),
            ("write_timeout", write),
        ] {
            if !(Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
                let why = format!("takes 1 ms to a day, got {timeout:?}");
                return Err(Invalid::new(what, why).into());
            }
        }
        if self.connections == 0 {
            return Err(Invalid::new("connections", "takes 1 or more, got 0").into());
        }
        if let Some(MinReplicas { count, timeout }) = self.replicas
            && (count == 0 || timeout.is_zero() || timeout >= read)
        {
            let why = format!(
                "takes 1 replica or more, and a timeout of 1 ms up to the read timeout of {read:?}, got {count} and {timeout:?}"
            );
            return Err(Invalid::new("min_replicas", why).into());
        }
        let address = address.prepared(&self.certificates)?;
        let counts = Arc::new(Counts::default());
        let topology = topology(
            address,
            &self.clock,
            &counts,
            self.timeouts,
            self.connections,
        )?;
        let servers = Arc::new(Servers::new(self.clock, counts, topology));
        servers.check()?;
        let cleanup = Arc::new(Cleanup::new(servers.clone()));
        let engine = Engine {
            inbox: Inbox::new(servers.clone(), cleanup.clone(), &self.prefix),
            renewal: Renewal::new(servers.clone(), self.replicas),
            cleanup,
            servers,
            prefix: self.prefix,
            label: self.label,
            outage: self.outage,
            replicas: self.replicas,
        };
        Ok(Gate {
            engine: Arc::new(engine),
        })
    }
}

fn topology(
    address: Address,
    clock: &Clock,
    counts: &Arc<Counts>,
    timeouts: Timeouts,
    most: usize,
) -> Result<Topology, CallError> {
    let source = match address {
        Address::One(info) => Source::at(info),
        #[cfg(feature = "r2d2")]
        Address::Pool(pool, info) => Source::of_pool(pool, info),
        #[cfg(feature = "sentinel")]
        Address::Sentinel {
            sentinels,
            master,
            like,
        } => Sentinels::new(sentinels, master, like).map(Source::Sentinels),
        #[cfg(feature = "cluster")]
        Address::Cluster(nodes) => {
            let pools = Pools {
                clock: clock.clone(),
                counts: counts.clone(),
                timeouts,
                most,
            };
            return Ok(Topology::Cluster(Box::new(Cluster::new(&nodes, pools)?)));
        }
    };
    let source = source.map_err(CallError::Failed)?;
    let (clock, counts) = (clock.clone(), counts.clone());
    let connections = Connections::new(clock, counts, 0, source, timeouts, most);
    Ok(Topology::One(Arc::new(connections)))
}
