//! The mutex: a semaphore of one permit, under the verbs of locking.

use crate::cancel::Cancel;
use crate::error::{AcquireError, CallError, Lost, RefreshError, TryAcquireError};
use crate::inspection::Inspection;
use crate::permit::{Permit, ReleaseError, Released};
use crate::semaphore::{Revoked, Semaphore};
use std::fmt;
use std::ops::Deref;
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

impl Mutex {
    pub(crate) fn new(semaphore: Semaphore) -> Mutex {
        Mutex { semaphore }
    }

    /// How long the lock is held unless refreshed: 1 ms to 100 years; see [`Semaphore::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Mutex {
        Mutex::new(self.semaphore.lease(lease))
    }

    /// Renews the lease while the guard lives; see [`Semaphore::auto_renew`].
    #[must_use]
    pub fn auto_renew(self) -> Mutex {
        Mutex::new(self.semaphore.auto_renew())
    }

    /// A lock without an end; see [`Semaphore::permanent`].
    #[must_use]
    pub fn permanent(self) -> Mutex {
        Mutex::new(self.semaphore.permanent())
    }

    /// A label in front of each id; see [`Semaphore::label`].
    #[must_use]
    pub fn label(self, label: &str) -> Mutex {
        Mutex::new(self.semaphore.label(label))
    }

    /// An identity of the application's own; see [`Semaphore::id`].
    #[must_use]
    pub fn id(self, id: &str) -> Mutex {
        Mutex::new(self.semaphore.id(id))
    }

    /// Lets `cancel` end the waits for this mutex from another thread.
    #[must_use]
    pub fn cancelled_by(self, cancel: &Cancel) -> Mutex {
        Mutex::new(self.semaphore.cancelled_by(cancel))
    }

    /// Calls `on_lost` when the lock turns out to be lost; see [`Semaphore::on_lost`].
    #[must_use]
    pub fn on_lost(self, on_lost: impl Fn(&Lost) + Send + Sync + 'static) -> Mutex {
        Mutex::new(self.semaphore.on_lost(on_lost))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.semaphore.name()
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

    /// Locks, in line until `deadline`; an instant that has passed is a timeout of zero.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<MutexGuard, AcquireError> {
        self.try_lock_for(deadline.saturating_duration_since(Instant::now()))
    }

    /// Takes over the lock that `id` holds; see [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<MutexGuard, RefreshError> {
        self.semaphore.adopt(id).map(MutexGuard)
    }

    /// Takes the lock, or the place in line, away from `id`; see [`Semaphore::revoke`].
    ///
    /// # Errors
    /// As [`Semaphore::revoke`].
    pub fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        self.semaphore.revoke(id)
    }

    /// Who holds it and who waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect()
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The lock, held. Everything that a [`Permit`] tells, and [`unlock`](MutexGuard::unlock); dropping it unlocks.
#[must_use = "a mutex is unlocked as soon as its guard is dropped"]
#[derive(Debug)]
pub struct MutexGuard(Permit);

impl MutexGuard {
    /// Unlocks. Blocks for one round trip; whoever is first in line has the lock when this returns.
    ///
    /// # Errors
    /// [`UnlockError`] when the server did not confirm: it has the guard, to try again with.
    pub fn unlock(self) -> Result<Released, UnlockError> {
        self.0.release().map_err(UnlockError)
    }

    /// Lets go without unlocking, and returns the id for [`Mutex::adopt`]; see [`Permit::into_id`].
    pub fn into_id(self) -> String {
        self.0.into_id()
    }
}

impl Deref for MutexGuard {
    type Target = Permit;

    fn deref(&self) -> &Permit {
        &self.0
    }
}

impl fmt::Display for MutexGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An unlock that could not be confirmed. It has the guard, so that it can be tried again.
#[derive(Debug)]
pub struct UnlockError(ReleaseError);

impl UnlockError {
    /// The guard, still to be unlocked.
    pub fn into_guard(self) -> MutexGuard {
        MutexGuard(self.0.into_permit())
    }

    /// Why it could not be unlocked.
    pub fn error(&self) -> &CallError {
        self.0.error()
    }
}

impl fmt::Display for UnlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not unlocked, try again with the guard in this error: {}",
            self.error()
        )
    }
}

impl std::error::Error for UnlockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl From<UnlockError> for crate::Error {
    fn from(error: UnlockError) -> crate::Error {
        error.0.into()
    }
}
