//! The mutex: a semaphore of one permit, with the verbs of locking.

use super::permit::Permit;
use super::semaphore::Semaphore;
use crate::engine::mode::Mode;
use crate::error::{AcquireError, CallError, RefreshError, TryAcquireError};
use crate::guard::{guard, lock, settings, unlocking};
use crate::inspection::Inspection;
use std::time::{Duration, Instant};

/// A lock that only one caller at a time holds, over all processes and machines.
///
/// [`Gate::mutex`](crate::aio::Gate::mutex) creates it. It is fair: first come, first served. It is not re-entrant: a
/// caller that holds it and locks it again waits for its own release. By default the lock has a lease of 30 s, which is
/// renewed until the guard is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), luagate::Error> {
/// # let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
/// let item = gate.mutex("item:42");
/// let guard = item.lock().await?;
/// println!("changing the item under fence {}", guard.fence());
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    semaphore: Semaphore,
}

settings!(Mutex);
lock!(Mutex);
unlocking!(Mutex: MutexGuard);

impl Mutex {
    /// The mutex as a semaphore with one permit, for [`Gate::several`](crate::aio::Gate::several).
    pub fn as_semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    /// Locks. Waits in line until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn lock(&self) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire().await.map(MutexGuard)
    }

    /// Locks if the lock is free and no caller waits.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::try_acquire`].
    pub async fn try_lock(&self) -> Result<MutexGuard, TryAcquireError> {
        self.semaphore.try_acquire().await.map(MutexGuard)
    }

    /// Locks. Waits in line for at most `timeout`, and returns after at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_lock_for(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_timeout(timeout).await.map(MutexGuard)
    }

    /// Locks. Waits in line until `deadline`, and returns by then plus 50 ms. If `deadline` has passed, it tries once
    /// without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_lock_until(&self, deadline: Instant) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_many_until(1, deadline).await.map(MutexGuard)
    }

    /// Takes over the lock that `id` holds. See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt`].
    pub async fn adopt(&self, id: &str) -> Result<MutexGuard, RefreshError> {
        self.semaphore.adopt(id).await.map(MutexGuard)
    }

    /// Returns whether the lock is held now, by this process or another one. For display and monitoring only: the
    /// answer can be outdated when it arrives. To lock, use [`try_lock`](Mutex::try_lock). Writes nothing.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn is_locked(&self) -> Result<bool, CallError> {
        self.semaphore.0.is_in_use(Mode::Async).await
    }

    /// Returns the holder and the waiters.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect().await
    }
}

guard! {
    /// A locked mutex. Dropping the guard unlocks it, and never blocks.
    ///
    /// It has the functions of a [`Permit`](crate::aio::Permit), for example `fence` and `lost`, and
    /// [`unlock`](MutexGuard::unlock).
    #[must_use = "a mutex is unlocked as soon as its guard is dropped"]
    MutexGuard
}
