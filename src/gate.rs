//! The gate: the client, which creates all other types.

pub(crate) mod builder;
mod one_sided_tls;

pub use builder::GateBuilder;

use crate::clock::Clock;
use crate::engine::address::Address;
use crate::engine::counters::Counters;
use crate::engine::mode::{Mode, block};
use crate::error::{CallError, FailureKind};
use crate::latch::CountDownLatch;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::several::Several;
use crate::shared::Shared;
use luagate_core::failure::Failure;
use luagate_core::invalid::MOST;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long `flush` waits for the releases.
pub(crate) const LONGEST_FLUSH: Duration = Duration::from_secs(30);

/// A client of Redis or Valkey, for one server or a cluster. It creates semaphores, locks and latches by
/// name;
/// [`autocomplete`](crate::autocomplete) has its own constructors.
///
/// Open one gate in each process and clone it. Clones share everything. A permit keeps open the parts of the
/// gate that it needs. A forked child must open a gate in the child.
///
/// All threads and tasks share one connection to each server. The first wait in line opens a second one, for
/// messages. With [`min_replicas`](GateBuilder::min_replicas) there is a third one, for calls that replicas
/// must confirm.
///
/// A gate starts threads when they are first needed:
///
/// - one that renews leases, repeats releases, and reports lost permits,
/// - one for each connection, while nobody else reads it: for tasks, for waits that can be cancelled, and for
///   releases whose replies are missing,
/// - one for the callbacks of lost permits,
/// - with Sentinel, one that receives messages about a new master. It starts when the gate is opened.
///
/// ```no_run
/// use luagate::Lease;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), luagate::Error> {
/// let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let market = gate.semaphore("market:account:17", 5).lease(Lease::renewed(Duration::from_secs(10)));
/// let permit = market.acquire_timeout(Duration::from_secs(2))?;
/// println!("acquired, with fence {}", permit.fence());
/// permit.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gate {
    pub(crate) shared: Arc<Shared>,
}

impl Gate {
    /// Opens a gate at `url`. It connects once, and blocks meanwhile, so that a wrong address is an error
    /// here and not later:
    ///
    /// | url | server |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one server |
    /// | `unix:///path/to/socket`, `redis+unix:///path` | one server on this machine |
    /// | `redis+cluster://[user:password@]host:port,host:port` | a cluster; the url lists some of its nodes |
    /// | `redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]` | the server that these sentinels report as `master` |
    ///
    /// Write `rediss` in place of `redis` for TLS. This needs the feature `tls`. Database, user and password
    /// may also be
    /// [parameters](crate::guide::deployments#parameters-of-a-url), as in `redis://host?db=2`. An unknown
    /// parameter is an error.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `url` is not a valid URL. [`CallError::Failed`] if the server cannot be
    /// used.
    pub fn open(url: &str) -> Result<Gate, CallError> {
        Gate::builder(url).open()
    }

    /// As [`open`](Gate::open), without blocking.
    ///
    /// # Errors
    /// As [`open`](Gate::open).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays open.
    pub async fn open_async(url: &str) -> Result<Gate, CallError> {
        Gate::builder(url).open_async().await
    }

    /// Settings for a gate at `url`. It accepts the same URLs as [`open`](Gate::open).
    pub fn builder(url: &str) -> GateBuilder {
        GateBuilder::new(Address::parse(url), Clock::real())
    }

    /// The semaphore `name`, with a limit of `limit` permits (1 to 2^31-1) held at the same time. Sends
    /// nothing to the server: the first call that uses it reports an invalid name or limit.
    ///
    /// A name has 1 to 200 bytes without white space, control characters or braces. It may begin with a group
    /// in braces, as in `{group}:name`; the 200 bytes include the group. [`name_from`](crate::name_from)
    /// converts any text into a name. The first grant stores the limit on the server. While the semaphore is
    /// in use, that stored limit applies to all callers, even if they declare another one.
    pub fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(self.shared.clone(), "semaphore", name, Some(limit))
    }

    /// The semaphore `name`, with the limit that is stored on the server. This caller declares no limit.
    /// [`Semaphore::resize`] stores a limit that does not expire. If no limit is stored, acquiring returns
    /// the error [`Invalid`](crate::errors::Invalid) with the text `no limit`.
    pub fn stored_semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.shared.clone(), "semaphore", name, None)
    }

    /// The mutex `name`. A semaphore and a mutex of the same name are independent.
    pub fn mutex(&self, name: &str) -> Mutex {
        Mutex::new(Semaphore::new(self.shared.clone(), "mutex", name, Some(1)))
    }

    /// Permits of several semaphores, which are acquired together or not at all. Each pair is a semaphore and
    /// a number of permits. It takes 1 to 64 semaphores. A lock gives such a pair: [`Mutex::to_lock`],
    /// [`RwLock::to_read`] and
    /// [`RwLock::to_write`]. The semaphores and locks keep their settings. One with an [id](Semaphore::id)
    /// chosen by the application is not accepted. If they are of different gates, only `acquire` and
    /// `acquire_timeout` work.
    #[doc(alias = "multi_lock")]
    pub fn several<'a>(&self, semaphores: impl IntoIterator<Item = (&'a Semaphore, u32)>) -> Several {
        Several::new(semaphores.into_iter().map(|(semaphore, permits)| (semaphore.clone(), permits)))
    }

    /// Several mutexes, which are locked together or not at all: 1 to 64 names. The same as
    /// [`several`](Gate::several) with one permit of each mutex.
    pub fn mutexes<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Several {
        Several::new(names.into_iter().map(|name| (self.mutex(name.as_ref()).semaphore, 1)))
    }

    /// The reader-writer lock `name`.
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(Semaphore::new(self.shared.clone(), "rwlock", name, Some(MOST)))
    }

    /// The latch `name`, which opens after `count` (1 to 2^31-1) have counted down. Sends nothing to the
    /// server: the first call that uses it reports an invalid name or count.
    ///
    /// The rules for its name are those for a [semaphore](Gate::semaphore). The first `count_down` or wait
    /// stores the count on the server. While the latch is kept, that stored count applies to all callers,
    /// even if they declare another one.
    pub fn latch(&self, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch::new(self.shared.clone(), name, count)
    }

    /// Waits until the server has confirmed the releases of all dropped permits, or these have ended by
    /// themselves: for the end of a program. Blocks for at most 30 s. It does not end waits, and does not
    /// release permits that are still held.
    ///
    /// # Errors
    /// [`CallError::Failed`] of the kind [`TimedOut`](FailureKind::TimedOut) if some releases are not
    /// confirmed after that time. Their permits end with their leases. The call can be repeated.
    #[doc(alias("close", "shutdown"))]
    pub fn flush(&self) -> Result<(), CallError> {
        block(|mode| self.flush_by(mode))
    }

    /// As [`flush`](Gate::flush), without blocking.
    ///
    /// # Errors
    /// As [`flush`](Gate::flush).
    ///
    /// # Cancel safety
    /// If this is dropped, the gate continues with the releases.
    pub async fn flush_async(&self) -> Result<(), CallError> {
        self.flush_by(Mode::Async).await
    }

    async fn flush_by(&self, mode: Mode) -> Result<(), CallError> {
        self.shared.servers.check_process()?;
        if self.shared.releases.all_confirmed(self.shared.now() + LONGEST_FLUSH, mode).await {
            Ok(())
        } else {
            let text = format!("releases were not confirmed within {LONGEST_FLUSH:?}");
            Err(CallError::Failed(Failure::new(FailureKind::TimedOut, text).into()))
        }
    }

    /// The event counters of this gate and its clones since it was opened. Does not block and sends nothing
    /// to the server.
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
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("prefix", &self.shared.prefix)
            .field("label", &self.shared.label)
            .finish_non_exhaustive()
    }
}
