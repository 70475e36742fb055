//! The mutex: a semaphore of one permit, with the verbs of locking.

use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, CallError, PermitError, TryAcquireError};
use crate::permit::Permit;
use crate::semaphore::inspection::Inspection;
use crate::semaphore::{Revoked, Semaphore};
use std::time::Duration;

/// A lock that only one caller at a time holds, over all processes and machines.
///
/// [`Gate::mutex`](crate::Gate::mutex) creates it. It is fair: first come, first served. It is not
/// re-entrant: a caller that holds it and locks it again waits for its own release. By default the lock has a
/// lease of 30 s, which is renewed until its [`Permit`] is dropped. The permit also unlocks it, with
/// [`release`](Permit::release).
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let item = gate.mutex("item:42");
/// let locked = item.lock()?;
/// println!("changing the item under fence {}", locked.fence());
/// locked.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(crate) semaphore: Semaphore,
}

impl Mutex {
    pub(crate) fn new(semaphore: Semaphore) -> Mutex {
        Mutex { semaphore }
    }

    /// Changes the settings, which are those of a [`Semaphore`]: [`lease`](Semaphore::lease),
    /// [`label`](Semaphore::label),
    /// [`id`](Semaphore::id), [`max_waiting`](Semaphore::max_waiting), [`head_start`](Semaphore::head_start),
    /// [`at_least`](Semaphore::at_least), [`cancelled_by`](Semaphore::cancelled_by) and
    /// [`on_lost`](Semaphore::on_lost). Name and limit stay, whatever `set` returns:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let job = gate.mutex("report:nightly").with(|settings| settings.max_waiting(10).label("host-7"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("lease", "label", "max_waiting", "cancelled_by", "on_lost"))]
    #[must_use]
    pub fn with(self, set: impl FnOnce(Semaphore) -> Semaphore) -> Mutex {
        Mutex::new(self.semaphore.with(set))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// The mutex as one of [`several`](crate::Gate::several). Use it only for that.
    pub fn to_lock(&self) -> (&Semaphore, u32) {
        (&self.semaphore, 1)
    }

    /// Locks. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn lock(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire()
    }

    /// As [`lock`](Mutex::lock), without blocking.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn lock_async(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_async().await
    }

    /// Locks if the lock is free and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_lock(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire()
    }

    /// As [`try_lock`](Mutex::try_lock), without blocking.
    ///
    /// # Errors
    /// As [`try_lock`](Mutex::try_lock).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_lock_async(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire_async().await
    }

    /// Locks. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_lock_for(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_timeout(timeout)
    }

    /// As [`try_lock_for`](Mutex::try_lock_for), without blocking.
    ///
    /// # Errors
    /// As [`try_lock_for`](Mutex::try_lock_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_lock_for_async(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_timeout_async(timeout).await
    }

    /// Takes over the lock that `id` holds. See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<Permit, PermitError> {
        self.semaphore.adopt(id)
    }

    /// As [`adopt`](Mutex::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](Mutex::adopt).
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt_async`].
    pub async fn adopt_async(&self, id: &str) -> Result<Permit, PermitError> {
        self.semaphore.adopt_async(id).await
    }

    /// Returns whether the lock is held now, by this process or another one. For display and monitoring only:
    /// the answer can be outdated when it arrives. To lock, use [`try_lock`](Mutex::try_lock). Blocks for one
    /// round trip and writes nothing.
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

    /// Takes the lock, or the place in line, away from `id`. See [`Semaphore::revoke`].
    ///
    /// # Errors
    /// As [`Semaphore::revoke`].
    pub fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        self.semaphore.revoke(id)
    }

    /// As [`revoke`](Mutex::revoke), without blocking.
    ///
    /// # Errors
    /// As [`revoke`](Mutex::revoke).
    ///
    /// # Cancel safety
    /// As [`Semaphore::revoke_async`].
    pub async fn revoke_async(&self, id: &str) -> Result<Revoked, CallError> {
        self.semaphore.revoke_async(id).await
    }
}
