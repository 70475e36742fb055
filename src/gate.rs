//! The gate: where everything begins.

mod builder;

pub use builder::GateBuilder;

use crate::clock::Clock;
use crate::counters::Counters;
use crate::error::{CallError, MOST};
use crate::latch::CountDownLatch;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::several::Several;
use crate::shared::Shared;
use crate::transport::address::Address;
use crate::transport::eviction::Warning;
use redis::Client;
use std::fmt;
use std::sync::Arc;

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
    pub(crate) shared: Arc<Shared>,
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
        Semaphore::new(self.shared.clone(), "semaphore", name, Some(limit))
    }

    /// The semaphore `name`, of which at most as many permits are held at once as somebody else has said:
    /// [`Semaphore::resize`] stores a limit that stays. Where none is stored, acquiring is
    /// [`Invalid`](crate::errors::Invalid): `no limit`.
    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.shared.clone(), "semaphore", name, None)
    }

    /// The mutex `name`. It is not the semaphore of the same name.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Semaphore::new(self.shared.clone(), "mutex", name, Some(1)))
    }

    /// Permits of these semaphores, 1 to 64, to be acquired together or not at all: each with how many. For a mutex there is
    /// [`Mutex::as_semaphore`]. They keep their settings, but none may have an [id](Semaphore::id) of its own.
    pub fn several<'a>(&self, semaphores: impl IntoIterator<Item = (&'a Semaphore, u32)>) -> Several {
        Several::new(semaphores.into_iter().map(|(semaphore, permits)| (semaphore.clone(), permits)))
    }

    /// The mutexes of these names, 1 to 64, to be locked together: short for [`several`](Gate::several) with one permit of each.
    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Several {
        Several::new(names.into_iter().map(|name| (self.mutex(name.as_ref()).into_semaphore(), 1)))
    }

    /// The reader-writer lock `name`.
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(Semaphore::new(self.shared.clone(), "rwlock", name, Some(MOST)))
    }

    /// The latch `name`, which opens once `count` (1 to 2^31-1) have counted down. Asks nobody: a name or count that cannot be
    /// is told by the first call that uses it.
    ///
    /// A name is as a semaphore's. The first `count_down` or wait stores the count; while the latch is kept, that one is in
    /// force for all, whatever else they declare.
    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch::new(self.shared.clone(), name, count)
    }

    /// How many connections of the pools are open now; subscribers are not among them.
    pub fn open_connections(&self) -> usize {
        self.shared.servers.open_connections()
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
        self.shared.servers.counts.read()
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
        self.shared.servers.warnings()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("prefix", &self.shared.prefix)
            .field("label", &self.shared.label)
            .finish_non_exhaustive()
    }
}
