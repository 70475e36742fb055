//! The mutex: a semaphore of one permit, under the verbs of locking.

use crate::error::{AcquireError, CallError, RefreshError, TryAcquireError};
use crate::guard::{guard, lock, settings};
use crate::inspection::Inspection;
use crate::semaphore::Semaphore;
use std::time::{Duration, Instant};

/// A lock that one process at a time holds, across machines.
///
/// Made by [`Gate::mutex`](crate::Gate::mutex). Fair: first come, first served. Not re-entrant: whoever holds it and locks
/// it again waits for itself. With nothing else chosen the lock has a lease of 30 s that is renewed while the guard lives.
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
    semaphore: Semaphore,
}

settings!(Mutex);
lock!(Mutex);

impl Mutex {
    pub(crate) fn into_semaphore(self) -> Semaphore {
        self.semaphore
    }

    /// The semaphore with one permit that it is, for [`Gate::several`](crate::Gate::several).
    pub fn as_semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    /// Locks, in line for as long as it takes. Blocks until it is granted.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn lock(&self) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire().map(MutexGuard)
    }

    /// Locks if it is free and nobody waits in front. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_lock(&self) -> Result<MutexGuard, TryAcquireError> {
        self.semaphore.try_acquire().map(MutexGuard)
    }

    /// Locks, in line for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.semaphore.acquire_timeout(timeout).map(MutexGuard)
    }

    /// Locks, in line until `deadline`. Where that has passed it tries once. Blocks until then at most, and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<MutexGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(1, deadline);
        permit.map(MutexGuard)
    }

    /// Takes over the lock that `id` holds; see [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<MutexGuard, RefreshError> {
        self.semaphore.adopt(id).map(MutexGuard)
    }

    /// Whether somebody, this process too, holds it at this moment. For display and monitoring: the answer may be outdated
    /// when it arrives, so to lock use [`try_lock`](Mutex::try_lock). Blocks for one round trip and writes nothing.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn is_locked(&self) -> Result<bool, CallError> {
        Ok(self.semaphore.look(0, 0)?.in_use > 0)
    }

    /// Who holds it and who waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect()
    }
}

guard! {
    /// The lock, held; dropping it unlocks.
    ///
    /// It tells everything that a [`Permit`](crate::Permit) tells, its fence say, and has [`unlock`](MutexGuard::unlock).
    #[must_use = "a mutex is unlocked as soon as its guard is dropped"]
    MutexGuard
}
