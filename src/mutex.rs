//! The mutex: a semaphore of one permit, with the verbs of locking.

use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, CallError, RefreshError, TryAcquireError};
use crate::guard::{guard, lock, settings, unlocking};
use crate::inspection::Inspection;
use crate::permit::Permit;
use crate::semaphore::Semaphore;
use std::time::{Duration, Instant};

/// A lock that only one caller at a time holds, over all processes and machines.
///
/// [`Gate::mutex`](crate::Gate::mutex) creates it. It is fair: first come, first served. It is not re-entrant: a caller
/// that holds it and locks it again waits for its own release. By default the lock has a lease of 30 s, which is
/// renewed until the guard is dropped.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let item = gate.mutex("item:42");
/// let guard = item.lock()?;
/// println!("changing the item under fence {}", guard.fence());
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    pub(crate) semaphore: Semaphore,
}

settings!(Mutex);
lock!(Mutex);
unlocking!(Mutex: MutexGuard);

impl Mutex {
    /// The mutex as a semaphore with one permit, for [`Gate::several`](crate::Gate::several).
    pub fn as_semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    /// Locks. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn lock(&self) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire().map(MutexGuard)
    }

    /// As [`lock`](Mutex::lock), without blocking.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn lock_async(&self) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_async().await.map(MutexGuard)
    }

    /// Locks if the lock is free and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_lock(&self) -> Result<MutexGuard, TryAcquireError> {
        self.semaphore.try_acquire().map(MutexGuard)
    }

    /// As [`try_lock`](Mutex::try_lock), without blocking.
    ///
    /// # Errors
    /// As [`try_lock`](Mutex::try_lock).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_lock_async(&self) -> Result<MutexGuard, TryAcquireError> {
        self.semaphore.try_acquire_async().await.map(MutexGuard)
    }

    /// Locks. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_timeout(timeout).map(MutexGuard)
    }

    /// As [`try_lock_for`](Mutex::try_lock_for), without blocking.
    ///
    /// # Errors
    /// As [`try_lock_for`](Mutex::try_lock_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_lock_for_async(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_timeout_async(timeout).await.map(MutexGuard)
    }

    /// Locks. Waits in line until `deadline`, and blocks until then plus 50 ms at most. If `deadline` has passed, it
    /// tries once without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<MutexGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(1, deadline);
        permit.map(MutexGuard)
    }

    /// As [`try_lock_until`](Mutex::try_lock_until), without blocking.
    ///
    /// # Errors
    /// As [`try_lock_until`](Mutex::try_lock_until).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_lock_until_async(&self, deadline: Instant) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_many_until_async(1, deadline).await.map(MutexGuard)
    }

    /// Takes over the lock that `id` holds. See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<MutexGuard, RefreshError> {
        self.semaphore.adopt(id).map(MutexGuard)
    }

    /// As [`adopt`](Mutex::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](Mutex::adopt).
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt_async`].
    pub async fn adopt_async(&self, id: &str) -> Result<MutexGuard, RefreshError> {
        self.semaphore.adopt_async(id).await.map(MutexGuard)
    }

    /// Returns whether the lock is held now, by this process or another one. For display and monitoring only: the
    /// answer can be outdated when it arrives. To lock, use [`try_lock`](Mutex::try_lock). Blocks for one round trip
    /// and writes nothing.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn is_locked(&self) -> Result<bool, CallError> {
        block(|mode| self.semaphore.is_in_use(mode))
    }

    /// As [`is_locked`](Mutex::is_locked), without blocking.
    ///
    /// # Errors
    /// As [`is_locked`](Mutex::is_locked).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn is_locked_async(&self) -> Result<bool, CallError> {
        self.semaphore.is_in_use(Mode::Async).await
    }

    /// Returns the holder and the waiters. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect()
    }

    /// As [`inspect`](Mutex::inspect), without blocking.
    ///
    /// # Errors
    /// As [`inspect`](Mutex::inspect).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect_async(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect_async().await
    }
}

guard! {
    /// A locked mutex. Dropping the guard unlocks it.
    ///
    /// It has the functions of a [`Permit`](crate::Permit), for example `fence`, and [`unlock`](MutexGuard::unlock).
    #[must_use = "a mutex is unlocked as soon as its guard is dropped"]
    MutexGuard
}
