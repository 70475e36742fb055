//! The gate: the client, which creates all other types.

use super::builder::GateBuilder;
use super::latch::CountDownLatch;
use super::mutex::Mutex;
use super::rwlock::RwLock;
use super::semaphore::Semaphore;
use super::several::Several;
use crate::counters::Counters;
use crate::engine::eviction::Warning;
use crate::engine::mode::Mode;
use crate::error::CallError;
use std::fmt;

/// A client of Redis or Valkey for async code, for one server or a cluster. It creates semaphores, locks and latches by
/// name.
///
/// Open one gate in each process and clone it: clones are cheap and share everything. A gate has the connections and the
/// threads of [`luagate::Gate`](crate::Gate): none of them belongs to an async runtime, so the gate works in every one,
/// and continues when a runtime ends. A forked child must open a gate in the child.
#[derive(Clone)]
pub struct Gate(pub(super) crate::Gate);

impl Gate {
    /// Opens a gate at `url`. It connects once, so that a wrong address is an error here and not later. The addresses
    /// are those of [`luagate::Gate::open`](crate::Gate::open).
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
        GateBuilder(crate::Gate::builder(url))
    }

    /// The semaphore `name`, with a limit of `limit` permits (1 to 2^31-1) held at the same time. Sends nothing to the
    /// server. See [`luagate::Gate::semaphore`](crate::Gate::semaphore) for names and limits.
    pub fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, limit))
    }

    /// The semaphore `name`, with the limit that is stored on the server. See
    /// [`luagate::Gate::stored_semaphore`](crate::Gate::stored_semaphore).
    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore(self.0.stored_semaphore(name))
    }

    /// The mutex `name`. A semaphore and a mutex of the same name are independent.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Semaphore(self.0.mutex(name).semaphore))
    }

    /// Permits of several semaphores, which are acquired together or not at all. See
    /// [`luagate::Gate::several`](crate::Gate::several).
    pub fn several<'a>(&self, semaphores: impl IntoIterator<Item = (&'a Semaphore, u32)>) -> Several {
        Several(self.0.several(semaphores.into_iter().map(|(semaphore, permits)| (&semaphore.0, permits))))
    }

    /// Several mutexes, which are locked together or not at all: 1 to 64 names. The same as [`several`](Gate::several)
    /// with one permit of each mutex.
    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Several {
        Several(self.0.mutexes(names))
    }

    /// The reader-writer lock `name`.
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(Semaphore(self.0.rwlock(name).semaphore))
    }

    /// The latch `name`, which opens after `count` (1 to 2^31-1) have counted down. See
    /// [`luagate::Gate::latch`](crate::Gate::latch).
    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch(self.0.latch(name, count))
    }

    /// Waits until all releases are confirmed, or their permits have ended by themselves: at the end of a program, after
    /// its permits were dropped. Waits for at most 30 s. Other clones of the gate can still be used.
    ///
    /// # Errors
    /// [`CallError::Failed`] if some releases are not confirmed after that time. Their permits end with their leases.
    ///
    /// # Cancel safety
    /// If this is dropped, the gate continues with the releases.
    pub async fn close(self) -> Result<(), CallError> {
        self.0.close_by(Mode::Async).await
    }

    /// How many connections for calls are open now. Connections for messages do not count. Does not block.
    pub fn open_connections(&self) -> usize {
        self.0.open_connections()
    }

    /// The event counters of this gate and its clones since it was opened. Does not block and sends nothing to the
    /// server.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// Warnings about the settings of the servers, which work nevertheless. See
    /// [`luagate::Gate::warnings`](crate::Gate::warnings).
    pub fn warnings(&self) -> Vec<Warning> {
        self.0.warnings()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
