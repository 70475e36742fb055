//! The gate: the client, which creates all other types.

use super::builder::GateBuilder;
use super::latch::CountDownLatch;
use super::mutex::Mutex;
use super::rwlock::RwLock;
use super::semaphore::Semaphore;
use super::several::Several;
use super::shared::Shared;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, MOST};
use crate::transport::address::Address;
use crate::transport::eviction::Warning;
use redis::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long [`Gate::close`] waits at most.
const CLOSE: Duration = Duration::from_secs(30);

/// A client of Redis or Valkey for tokio, for one server or a cluster. It creates semaphores, locks and latches by name.
///
/// Open one gate in each process and clone it: clones are cheap and share everything. A gate has one connection for each
/// server, and one task, which renews permits, repeats releases and re-establishes connections. With
/// [`min_replicas`](GateBuilder::min_replicas), each server has one more connection, on which calls wait for the
/// replicas. The first callback for a lost permit starts one thread. A forked child must open a gate in the child.
#[derive(Clone)]
pub struct Gate {
    pub(super) shared: Arc<Shared>,
}

impl Gate {
    /// Opens a gate at `url`. It connects once, so that a wrong address is an error here and not later. The addresses
    /// are those of [`luagate::Gate::open`](crate::Gate::open). For `rediss` enable the feature `tokio-tls`.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `url` is not a valid URL. [`CallError::Failed`] if the server cannot be used.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn open(url: &str) -> Result<Gate, CallError> {
        Gate::builder(url).open().await
    }

    /// Settings for a gate at `url`. It accepts the same URLs as [`open`](Gate::open).
    pub fn builder(url: &str) -> GateBuilder {
        GateBuilder::new(Address::parse(url), Clock::real())
    }

    /// Settings for a gate that connects like `client`, with the certificates of `client` if it has any.
    pub fn builder_with(client: Client) -> GateBuilder {
        let info = client.get_connection_info().clone();
        GateBuilder::new(Ok(Address::One(info)), Clock::real())
    }

    /// The semaphore `name`, with a limit of `limit` permits (1 to 2^31-1) held at the same time. Sends nothing to the
    /// server. See [`luagate::Gate::semaphore`](crate::Gate::semaphore) for names and limits.
    pub fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(self.shared.clone(), "semaphore", name, Some(limit))
    }

    /// The semaphore `name`, with the limit that is stored on the server. See
    /// [`luagate::Gate::stored_semaphore`](crate::Gate::stored_semaphore).
    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.shared.clone(), "semaphore", name, None)
    }

    /// The mutex `name`. A semaphore and a mutex of the same name are independent.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Semaphore::new(self.shared.clone(), "mutex", name, Some(1)))
    }

    /// Permits of several semaphores, which are acquired together or not at all. See
    /// [`luagate::Gate::several`](crate::Gate::several).
    pub fn several<'a>(&self, semaphores: impl IntoIterator<Item = (&'a Semaphore, u32)>) -> Several {
        Several::new(semaphores.into_iter().map(|(semaphore, permits)| (semaphore.clone(), permits)))
    }

    /// Several mutexes, which are locked together or not at all: 1 to 64 names. The same as [`several`](Gate::several)
    /// with one permit of each mutex.
    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Several {
        Several::new(names.into_iter().map(|name| (self.mutex(name.as_ref()).into_semaphore(), 1)))
    }

    /// The reader-writer lock `name`.
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(Semaphore::new(self.shared.clone(), "rwlock", name, Some(MOST)))
    }

    /// The latch `name`, which opens after `count` (1 to 2^31-1) have counted down. See
    /// [`luagate::Gate::latch`](crate::Gate::latch).
    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch::new(self.shared.clone(), name, count)
    }

    /// Waits until all releases that were handed to the gate's task are confirmed, or their permits have ended by
    /// themselves: at the end of a program, after its permits were dropped. Waits for at most 30 s. Other clones of the
    /// gate can still be used.
    ///
    /// # Errors
    /// [`CallError::Failed`] if some releases are not confirmed after that time. Their permits end with their leases.
    ///
    /// # Cancel safety
    /// If this is dropped, the task continues with the releases.
    pub async fn close(self) -> Result<(), CallError> {
        self.shared.check_process()?;
        let confirmed = self.shared.all_confirmed();
        tokio::time::timeout(CLOSE, confirmed).await.map_err(|_| {
            let text = format!("releases were not confirmed within {CLOSE:?}");
            CallError::Failed(Failure::new(FailureKind::TimedOut, text))
        })
    }

    /// How many connections are open now. Second connections for messages do not count. Does not block.
    pub fn open_connections(&self) -> usize {
        self.shared.servers.open_connections()
    }

    /// The event counters of this gate and its clones since it was opened. Does not block and sends nothing to the
    /// server.
    pub fn counters(&self) -> Counters {
        self.shared.servers.counts.read()
    }

    /// Warnings about the settings of the servers, which work nevertheless. See
    /// [`luagate::Gate::warnings`](crate::Gate::warnings).
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
