//! The reader-writer lock: a semaphore with the highest possible limit. A reader takes one permit, a writer takes all.

use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, CallError, MOST, RefreshError, TryAcquireError};
use crate::guard::{guard, lock, settings, unlocking};
use crate::inspection::Inspection;
use crate::permit::{Permit, ReleaseError};
use crate::semaphore::Semaphore;
use std::time::{Duration, Instant};

/// A lock that many readers or one writer can hold at the same time, over all processes and machines.
///
/// [`Gate::rwlock`](crate::Gate::rwlock) creates it. It is fair: first come, first served. A waiting writer holds back
/// the readers that come after it, so neither readers nor writers starve. Each reader has a separate lease: the share
/// of a crashed reader becomes free when that lease ends, even if others continue to read. The lock is not re-entrant.
/// A writer can continue as a reader with [`downgrade`](RwLockWriteGuard::downgrade). A reader that asks to write waits
/// for its own release. By default the lock has a lease of 30 s, which is renewed until the guard is dropped.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let prices = gate.rwlock("prices");
/// let writing = prices.write()?; // no other reader or writer holds the lock
/// let reading = writing.downgrade()?; // no writer is granted in between
/// reading.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    pub(crate) semaphore: Semaphore,
}

settings!(RwLock);
lock!(RwLock);
unlocking!(RwLock: RwLockReadGuard RwLockWriteGuard);

impl RwLock {
    /// Locks for reading. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn read(&self) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire().map(RwLockReadGuard)
    }

    /// As [`read`](RwLock::read), without blocking.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn read_async(&self) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire_async().await.map(RwLockReadGuard)
    }

    /// Locks for reading if no writer holds the lock and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_read(&self) -> Result<RwLockReadGuard, TryAcquireError> {
        self.semaphore.try_acquire().map(RwLockReadGuard)
    }

    /// As [`try_read`](RwLock::try_read), without blocking.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_read_async(&self) -> Result<RwLockReadGuard, TryAcquireError> {
        self.semaphore.try_acquire_async().await.map(RwLockReadGuard)
    }

    /// Locks for reading. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_read_for(&self, timeout: Duration) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_timeout(timeout);
        permit.map(RwLockReadGuard)
    }

    /// As [`try_read_for`](RwLock::try_read_for), without blocking.
    ///
    /// # Errors
    /// As [`try_read_for`](RwLock::try_read_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_read_for_async(&self, timeout: Duration) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire_timeout_async(timeout).await.map(RwLockReadGuard)
    }

    /// Locks for reading. Waits in line until `deadline`, and blocks until then plus 50 ms at most. If `deadline` has
    /// passed, it tries once without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_read_until(&self, deadline: Instant) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(1, deadline);
        permit.map(RwLockReadGuard)
    }

    /// As [`try_read_until`](RwLock::try_read_until), without blocking.
    ///
    /// # Errors
    /// As [`try_read_until`](RwLock::try_read_until).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_read_until_async(&self, deadline: Instant) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire_many_until_async(1, deadline).await.map(RwLockReadGuard)
    }

    /// Locks for writing. Waits in line, and blocks until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn write(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many(MOST).map(RwLockWriteGuard)
    }

    /// As [`write`](RwLock::write), without blocking.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn write_async(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many_async(MOST).await.map(RwLockWriteGuard)
    }

    /// Locks for writing if the lock is free and no caller waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_write(&self) -> Result<RwLockWriteGuard, TryAcquireError> {
        self.semaphore.try_acquire_many(MOST).map(RwLockWriteGuard)
    }

    /// As [`try_write`](RwLock::try_write), without blocking.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_write_async(&self) -> Result<RwLockWriteGuard, TryAcquireError> {
        self.semaphore.try_acquire_many_async(MOST).await.map(RwLockWriteGuard)
    }

    /// Locks for writing. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_write_for(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_timeout(MOST, timeout);
        permit.map(RwLockWriteGuard)
    }

    /// As [`try_write_for`](RwLock::try_write_for), without blocking.
    ///
    /// # Errors
    /// As [`try_write_for`](RwLock::try_write_for).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_write_for_async(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many_timeout_async(MOST, timeout).await.map(RwLockWriteGuard)
    }

    /// Locks for writing. Waits in line until `deadline`, and blocks until then plus 50 ms at most. If `deadline` has
    /// passed, it tries once without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_write_until(&self, deadline: Instant) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(MOST, deadline);
        permit.map(RwLockWriteGuard)
    }

    /// As [`try_write_until`](RwLock::try_write_until), without blocking.
    ///
    /// # Errors
    /// As [`try_write_until`](RwLock::try_write_until).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire_async`].
    pub async fn try_write_until_async(&self, deadline: Instant) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many_until_async(MOST, deadline).await.map(RwLockWriteGuard)
    }

    /// Takes over the lock that `id` holds, for reading or for writing. See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<RwLockGuard, RefreshError> {
        self.semaphore.adopt(id).map(RwLockGuard::of)
    }

    /// As [`adopt`](RwLock::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](RwLock::adopt).
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt_async`].
    pub async fn adopt_async(&self, id: &str) -> Result<RwLockGuard, RefreshError> {
        self.semaphore.adopt_async(id).await.map(RwLockGuard::of)
    }

    /// Returns the number of readers, whether a writer holds the lock, and the number of waiters, at one instant. For
    /// display and monitoring only: the answer can be outdated when it arrives. Blocks for one round trip and writes
    /// nothing.
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

    /// Returns the holders and the waiters. A reader holds 1 permit, a writer 2,147,483,647. Blocks for one round trip.
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
}

/// Whether so many permits are those of a writer.
fn is_writing(permits: u32) -> bool {
    permits == MOST
}

/// The result of [`RwLock::usage`]. Leases that have ended are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RwLockUsage {
    /// The number of readers that hold the lock.
    pub readers: u32,
    /// Whether a writer holds the lock. Also true after keys of the lock were lost, until the last known lease has
    /// ended: nothing is granted until then.
    pub writing: bool,
    /// The number of waiters, readers and writers.
    pub waiting: u64,
}

impl RwLockUsage {
    /// The usage of the lock that consists of this semaphore.
    pub(crate) async fn of(semaphore: &Semaphore, mode: Mode) -> Result<RwLockUsage, CallError> {
        let state = semaphore.look(0, 0, mode).await?;
        let writing = is_writing(state.in_use);
        Ok(RwLockUsage { readers: if writing { 0 } else { state.in_use }, writing, waiting: state.waiter_count })
    }
}

/// The result of [`RwLock::adopt`].
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub enum RwLockGuard {
    /// The id holds the lock for reading.
    Read(RwLockReadGuard),
    /// The id holds the lock for writing.
    Write(RwLockWriteGuard),
}

impl RwLockGuard {
    fn of(permit: Permit) -> RwLockGuard {
        if is_writing(permit.permits()) {
            RwLockGuard::Write(RwLockWriteGuard(permit))
        } else {
            RwLockGuard::Read(RwLockReadGuard(permit))
        }
    }
}

guard! {
    /// A lock held for reading. Dropping the guard unlocks it.
    ///
    /// It has the functions of a [`Permit`](crate::Permit), and [`unlock`](RwLockReadGuard::unlock).
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockReadGuard
}

guard! {
    /// A lock held for writing. Dropping the guard unlocks it.
    ///
    /// It has the functions of a [`Permit`](crate::Permit), and [`unlock`](RwLockWriteGuard::unlock) and
    /// [`downgrade`](RwLockWriteGuard::downgrade). Its fence is higher than that of every earlier reader and writer.
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockWriteGuard
}

impl RwLockWriteGuard {
    /// Changes from writing to reading, with the same fence and lease. No writer is granted in between. The readers at
    /// the start of the line are granted. Blocks for one round trip.
    ///
    /// # Errors
    /// [`ReleaseError`] contains the guard, so that the caller can try again. After [`RefreshError::Lost`] another
    /// try cannot succeed.
    pub fn downgrade(mut self) -> Result<RwLockReadGuard, ReleaseError<RwLockWriteGuard>> {
        match self.0.release_some(MOST - 1) {
            Ok(()) => Ok(RwLockReadGuard(self.0)),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }

    /// As [`downgrade`](RwLockWriteGuard::downgrade), without blocking.
    ///
    /// # Errors
    /// As [`downgrade`](RwLockWriteGuard::downgrade).
    ///
    /// # Cancel safety
    /// If this is dropped, the lock is released in the background.
    pub async fn downgrade_async(mut self) -> Result<RwLockReadGuard, ReleaseError<RwLockWriteGuard>> {
        match self.0.release_some_async(MOST - 1).await {
            Ok(()) => Ok(RwLockReadGuard(self.0)),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }
}
