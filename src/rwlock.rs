//! The reader-writer lock: a semaphore of so many permits that they never run out, of which a reader takes one and a writer
//! all.

use crate::error::{AcquireError, CallError, MOST, RefreshError, TryAcquireError, try_again};
use crate::guard::{guard, lock, settings};
use crate::inspection::Inspection;
use crate::semaphore::Semaphore;
use std::time::{Duration, Instant};

/// A lock that many read under at once, or one writes under, across machines.
///
/// Made by [`Gate::rwlock`](crate::Gate::rwlock). Fair: first come, first served, so a writer that waits holds back the
/// readers who come after it, and neither side starves. Each reader has a lease of its own: the share of one that crashed
/// comes back alone, however long the others read. Not re-entrant; whoever writes may go on reading by
/// [`downgrade`](RwLockWriteGuard::downgrade), but a reader that asks to write waits for itself. With nothing else chosen
/// the lock has a lease of 30 s that is renewed while the guard lives.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let prices = gate.rwlock("prices");
/// let writing = prices.write()?; // nobody else is inside
/// let reading = writing.downgrade()?; // nobody writes in between
/// reading.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    semaphore: Semaphore,
}

settings!(RwLock);
lock!(RwLock);

impl RwLock {
    /// Locks for reading, in line for as long as it takes. Blocks until it is granted.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn read(&self) -> Result<RwLockReadGuard, AcquireError> {
        self.semaphore.acquire().map(RwLockReadGuard)
    }

    /// Locks for reading if nobody writes and nobody waits in front. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_read(&self) -> Result<RwLockReadGuard, TryAcquireError> {
        self.semaphore.try_acquire().map(RwLockReadGuard)
    }

    /// Locks for reading, in line for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_read_for(&self, timeout: Duration) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_timeout(timeout);
        permit.map(RwLockReadGuard)
    }

    /// Locks for reading, in line until `deadline`. Where that has passed it tries once. Blocks until then at most, and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_read_until(&self, deadline: Instant) -> Result<RwLockReadGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(1, deadline);
        permit.map(RwLockReadGuard)
    }

    /// Locks for writing, in line for as long as it takes. Blocks until it is granted.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub fn write(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.semaphore.acquire_many(MOST).map(RwLockWriteGuard)
    }

    /// Locks for writing if nobody is inside and nobody waits. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_write(&self) -> Result<RwLockWriteGuard, TryAcquireError> {
        self.semaphore.try_acquire_many(MOST).map(RwLockWriteGuard)
    }

    /// Locks for writing, in line for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_write_for(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_timeout(MOST, timeout);
        permit.map(RwLockWriteGuard)
    }

    /// Locks for writing, in line until `deadline`. Where that has passed it tries once. Blocks until then at most, and 50 ms.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`].
    pub fn try_write_until(&self, deadline: Instant) -> Result<RwLockWriteGuard, AcquireError> {
        let permit = self.semaphore.acquire_many_until(MOST, deadline);
        permit.map(RwLockWriteGuard)
    }

    /// Takes over what `id` has, its share or the whole lock; see [`Semaphore::adopt`].
    ///
    /// # Errors
    /// As [`Semaphore::adopt`].
    pub fn adopt(&self, id: &str) -> Result<RwLockGuard, RefreshError> {
        let permit = self.semaphore.adopt(id)?;
        Ok(match permit.permits() {
            MOST => RwLockGuard::Write(RwLockWriteGuard(permit)),
            _ => RwLockGuard::Read(RwLockReadGuard(permit)),
        })
    }

    /// How many read, whether somebody writes, and how many wait, at one instant. For display and monitoring: the answer may be
    /// outdated when it arrives. Blocks for one round trip and writes nothing.
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
        let state = self.semaphore.look(0, 0)?;
        let writing = state.in_use == MOST;
        Ok(RwLockUsage { readers: if writing { 0 } else { state.in_use }, writing, waiting: state.waiter_count })
    }

    /// Who is inside and who waits: a reader holds 1 permit, a writer 2,147,483,647. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`Semaphore::inspect`].
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.semaphore.inspect()
    }
}

/// What [`RwLock::usage`] returns. Leases that have ended are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RwLockUsage {
    /// How many read.
    pub readers: u32,
    /// Whether somebody writes. Also true where keys of the lock were lost, and nothing is granted until the last known lease
    /// has ended.
    pub writing: bool,
    /// How many wait, readers and writers.
    pub waiting: u64,
}

/// What [`RwLock::adopt`] takes over.
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub enum RwLockGuard {
    /// The id reads.
    Read(RwLockReadGuard),
    /// The id writes.
    Write(RwLockWriteGuard),
}

guard! {
    /// A share of the lock, held for reading; dropping it unlocks.
    ///
    /// It tells everything that a [`Permit`](crate::Permit) tells, and has [`unlock`](RwLockReadGuard::unlock).
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockReadGuard
}

guard! {
    /// The lock, held for writing; dropping it unlocks.
    ///
    /// It tells everything that a [`Permit`](crate::Permit) tells, and has [`unlock`](RwLockWriteGuard::unlock) and
    /// [`downgrade`](RwLockWriteGuard::downgrade). Its fence is higher than that of every reader and writer before.
    #[must_use = "the lock is given back as soon as its guard is dropped"]
    RwLockWriteGuard
}

impl RwLockWriteGuard {
    /// Writes no more but goes on reading, with the same fence and lease; nobody writes in between. The readers that wait
    /// in front come in. Blocks for one round trip.
    ///
    /// # Errors
    /// [`DowngradeError`] has the guard, to try again with; after [`RefreshError::Lost`] there is nothing to try.
    pub fn downgrade(mut self) -> Result<RwLockReadGuard, DowngradeError> {
        match self.0.release_some(MOST - 1) {
            Ok(()) => Ok(RwLockReadGuard(self.0)),
            Err(error) => Err(DowngradeError { guard: Box::new(self), error }),
        }
    }
}

/// A downgrade that could not be confirmed. It has the guard, so that it can be tried again; dropping it unlocks.
#[derive(Debug)]
pub struct DowngradeError {
    guard: Box<RwLockWriteGuard>,
    error: RefreshError,
}

impl DowngradeError {
    /// The guard. Whether it still keeps readers out is not known after [`RefreshError::Unknown`]; try again.
    #[must_use = "dropping the guard unlocks"]
    pub fn into_guard(self) -> RwLockWriteGuard {
        *self.guard
    }

    /// Why it could not be downgraded.
    pub fn error(&self) -> &RefreshError {
        &self.error
    }
}

try_again!(DowngradeError "the downgrade is not confirmed" "Call `into_guard` and try again");
