//! The reader-writer lock: a semaphore with the highest possible limit. A reader takes one permit, a writer
//! takes all.

use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, CallError, PermitError, TryAcquireError};
use crate::permit::Permit;
use crate::semaphore::inspection::Inspection;
use crate::semaphore::{Revoked, Semaphore};
use luagate_core::invalid::MOST;
use std::time::Duration;

/// A lock that many readers or one writer can hold at the same time, over all processes and machines.
///
/// [`Gate::rwlock`](crate::Gate::rwlock) creates it. It is fair: first come, first served. A waiting writer
/// holds back the readers that come after it, so neither readers nor writers starve. Each reader has a
/// separate lease: the share of a crashed reader becomes free when that lease ends, even if others continue
/// to read. The lock is not re-entrant. A writer can continue as a reader with
/// [`downgrade`](Permit::downgrade). A reader that asks to write waits for its own release. By default the
/// lock has a lease of 30 s, which is renewed until its [`Permit`] is dropped. The permit also unlocks it,
/// with [`release`](Permit::release).
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let prices = gate.rwlock("prices");
/// let mut locked = prices.write()?; // no other reader or writer holds the lock
/// locked.downgrade()?; // now it reads; no writer is granted in between
/// locked.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(crate) semaphore: Semaphore,
}

impl RwLock {
    pub(crate) fn new(semaphore: Semaphore) -> RwLock {
        RwLock { semaphore }
    }

    /// Changes the settings, which are those of a [`Semaphore`]. See [`Mutex::with`](crate::Mutex::with).
    #[must_use]
    pub fn with(self, set: impl FnOnce(Semaphore) -> Semaphore) -> RwLock {
        RwLock::new(self.semaphore.with(set))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// The lock for reading, as one of [`several`](crate::Gate::several). Use it only for that.
    pub fn to_read(&self) -> (&Semaphore, u32) {
        (&self.semaphore, 1)
    }

    /// The lock for writing, as one of [`several`](crate::Gate::several). Use it only for that.
    pub fn to_write(&self) -> (&Semaphore, u32) {
        (&self.semaphore, MOST)
    }

    /// Locks for reading. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn read(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire()
    }

    /// As [`read`](RwLock::read), without blocking.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn read_async(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_async().await
    }

    /// Locks for reading if no writer holds the lock and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_read(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire()
    }

    /// As [`try_read`](RwLock::try_read), without blocking.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_read_async(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire_async().await
    }

    /// Locks for reading. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_read_for(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_timeout(timeout)
    }

    /// As [`try_read_for`](RwLock::try_read_for), without blocking.
    ///
    /// # Errors
    /// As [`try_read_for`](RwLock::try_read_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_read_for_async(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_timeout_async(timeout).await
    }

    /// Locks for writing. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn write(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_many(MOST)
    }

    /// As [`write`](RwLock::write), without blocking.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn write_async(&self) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_many_async(MOST).await
    }

    /// Locks for writing if the lock is free and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_write(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire_many(MOST)
    }

    /// As [`try_write`](RwLock::try_write), without blocking.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_write_async(&self) -> Result<Permit, TryAcquireError> {
        self.semaphore.try_acquire_many_async(MOST).await
    }

    /// Locks for writing. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_write_for(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_many_timeout(MOST, timeout)
    }

    /// As [`try_write_for`](RwLock::try_write_for), without blocking.
    ///
    /// # Errors
    /// As [`try_write_for`](RwLock::try_write_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_write_for_async(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.semaphore.acquire_many_timeout_async(MOST, timeout).await
    }

    /// Takes over the lock that `id` holds, for reading or for writing. A writer has more than one
    /// [permit](Permit::permits). See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<Permit, PermitError> {
        self.semaphore.adopt(id)
    }

    /// As [`adopt`](RwLock::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](RwLock::adopt).
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt_async`].
    pub async fn adopt_async(&self, id: &str) -> Result<Permit, PermitError> {
        self.semaphore.adopt_async(id).await
    }

    /// Returns the number of readers, whether a writer holds the lock, and the number of waiters, at one
    /// instant. For display and monitoring only: the answer can be outdated when it arrives. Blocks for one
    /// round trip and writes nothing.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let usage = gate.rwlock("prices").usage()?;
    /// println!("{} read, {} wait", usage.readers, usage.waiting);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn usage(&self) -> Result<RwLockUsage, CallError> {
        block(|mode| RwLockUsage::of(&self.semaphore, mode))
    }

    /// As [`usage`](RwLock::usage), without blocking.
    ///
    /// # Errors
    /// As [`usage`](RwLock::usage).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn usage_async(&self) -> Result<RwLockUsage, CallError> {
        RwLockUsage::of(&self.semaphore, Mode::Async).await
    }

    /// Returns the holders and the waiters. A reader holds 1 permit, a writer 2,147,483,647. Blocks for one
    /// round trip.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect()
    }

    /// As [`inspect`](RwLock::inspect), without blocking.
    ///
    /// # Errors
    /// As [`inspect`](RwLock::inspect).
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

    /// As [`revoke`](RwLock::revoke), without blocking.
    ///
    /// # Errors
    /// As [`revoke`](RwLock::revoke).
    ///
    /// # Cancel safety
    /// As [`Semaphore::revoke_async`].
    pub async fn revoke_async(&self, id: &str) -> Result<Revoked, CallError> {
        self.semaphore.revoke_async(id).await
    }
}

/// The result of [`RwLock::usage`]. Leases that have ended are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RwLockUsage {
    /// The number of readers that hold the lock.
    pub readers: u32,
    /// Whether a writer holds the lock. Also true after keys of the lock were lost, until the last known
    /// lease has ended: nothing is granted until then.
    pub writing: bool,
    /// The number of waiters, readers and writers.
    pub waiting: u64,
}

impl RwLockUsage {
    /// The usage of the lock that consists of this semaphore.
    pub(crate) async fn of(semaphore: &Semaphore, mode: Mode) -> Result<RwLockUsage, CallError> {
        let state = semaphore.look(0, 0, mode).await?;
        let writing = state.in_use == MOST;
        Ok(RwLockUsage {
            readers: if writing { 0 } else { state.in_use },
            writing,
            waiting: state.waiter_count,
        })
    }
}
