//! The reader-writer lock: a semaphore with the highest possible limit. A reader takes one permit, a writer takes all.

use super::permit::Permit;
use super::semaphore::Semaphore;
use crate::engine::mode::Mode;
use crate::error::{AcquireError, CallError, MOST, RefreshError, TryAcquireError};
use crate::guard::{guard, lock, settings, unlocking};
use crate::inspection::Inspection;
use crate::rwlock::{DowngradeError, RwLockUsage, is_writing};
use std::time::{Duration, Instant};

/// A lock that many readers or one writer can hold at the same time, over all processes and machines.
///
/// [`Gate::rwlock`](crate::aio::Gate::rwlock) creates it. It is fair: first come, first served. A waiting writer holds back
/// the readers that come after it, so neither readers nor writers starve. Each reader has a separate lease: the share
/// of a crashed reader becomes free when that lease ends, even if others continue to read. The lock is not re-entrant.
/// A writer can continue as a reader with [`downgrade`](RwLockWriteGuard::downgrade). A reader that asks to write waits
/// for its own release. By default the lock has a lease of 30 s, which is renewed until the guard is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), luagate::Error> {
/// # let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
/// let prices = gate.rwlock("prices");
/// let writing = prices.write().await?; // no other reader or writer holds the lock
/// let reading = writing.downgrade().await?; // no writer is granted in between
/// reading.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    semaphore: Semaphore,
}

settings!(RwLock);
lock!(RwLock);
unlocking!(RwLock: RwLockReadGuard RwLockWriteGuard);

impl RwLock {
    /// Locks for reading. Waits in line until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn read(&self) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire().await.map(RwLockReadGuard)
    }

    /// Locks for reading if no writer holds the lock and no caller waits.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::try_acquire`].
    pub async fn try_read(&self) -> Result<RwLockReadGuard, TryAcquireError> {
        self.semaphore.try_acquire().await.map(RwLockReadGuard)
    }

    /// Locks for reading. Waits in line for at most `timeout`, and returns after at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_read_for(&self, timeout: Duration) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_timeout(timeout).await;
        permit.map(RwLockReadGuard)
    }

    /// Locks for reading. Waits in line until `deadline`, and returns by then plus 50 ms. If `deadline` has
    /// passed, it tries once without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_read_until(&self, deadline: Instant) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(1, deadline).await;
        permit.map(RwLockReadGuard)
    }

    /// Locks for writing. Waits in line until the lock is granted. See [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn write(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many(MOST).await.map(RwLockWriteGuard)
    }

    /// Locks for writing if the lock is free and no caller waits.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::try_acquire`].
    pub async fn try_write(&self) -> Result<RwLockWriteGuard, TryAcquireError> {
        self.semaphore.try_acquire_many(MOST).await.map(RwLockWriteGuard)
    }

    /// Locks for writing. Waits in line for at most `timeout`, and returns after at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_write_for(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_timeout(MOST, timeout).await;
        permit.map(RwLockWriteGuard)
    }

    /// Locks for writing. Waits in line until `deadline`, and returns by then plus 50 ms. If `deadline` has
    /// passed, it tries once without waiting.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn try_write_until(&self, deadline: Instant) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(MOST, deadline).await;
        permit.map(RwLockWriteGuard)
    }

    /// Takes over the lock that `id` holds, for reading or for writing. See [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::adopt`].
    pub async fn adopt(&self, id: &str) -> Result<RwLockGuard, RefreshError> {
        let permit = self.semaphore.adopt(id).await?;
        Ok(match is_writing(permit.permits()) {
            true => RwLockGuard::Write(RwLockWriteGuard(permit)),
            false => RwLockGuard::Read(RwLockReadGuard(permit)),
        })
    }

    /// Returns the number of readers, whether a writer holds the lock, and the number of waiters, at one instant. For
    /// display and monitoring only: the answer can be outdated when it arrives. Writes nothing.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), luagate::Error> {
    /// # let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
    /// let usage = gate.rwlock("prices").usage().await?;
    /// println!("{} read, {} wait", usage.readers, usage.waiting);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn usage(&self) -> Result<RwLockUsage, CallError> {
        RwLockUsage::of(&self.semaphore.0, Mode::Async).await
    }

    /// Returns the holders and the waiters. A reader holds 1 permit, a writer 2,147,483,647.
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

/// The result of [`RwLock::adopt`].
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub enum RwLockGuard {
    /// The id holds the lock for reading.
    Read(RwLockReadGuard),
    /// The id holds the lock for writing.
    Write(RwLockWriteGuard),
}

guard! {
    /// A lock held for reading. Dropping the guard unlocks it.
    ///
    /// It has the functions of a [`Permit`](crate::aio::Permit), and [`unlock`](RwLockReadGuard::unlock).
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockReadGuard
}

guard! {
    /// A lock held for writing. Dropping the guard unlocks it.
    ///
    /// It has the functions of a [`Permit`](crate::aio::Permit), and [`unlock`](RwLockWriteGuard::unlock) and
    /// [`downgrade`](RwLockWriteGuard::downgrade). Its fence is higher than that of every earlier reader and writer.
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockWriteGuard
}

impl RwLockWriteGuard {
    /// Changes from writing to reading, with the same fence and lease. No writer is granted in between. The readers at
    /// the start of the line are granted.
    ///
    /// # Errors
    /// [`DowngradeError`] contains the guard, so that the caller can try again. After [`RefreshError::Lost`] another
    /// try cannot succeed.
    ///
    /// # Cancel safety
    /// If this is dropped, the lock is released in the background.
    pub async fn downgrade(mut self) -> Result<RwLockReadGuard, DowngradeError<RwLockWriteGuard>> {
        match self.0.release_some(MOST - 1).await {
            Ok(()) => Ok(RwLockReadGuard(self.0)),
            Err(error) => Err(DowngradeError::new(self, error)),
        }
    }
}
