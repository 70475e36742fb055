//! The countdown latch: waiters continue after a number of ids have counted down.

use crate::engine::mode::Mode;
use crate::error::{CallError, WaitError};
use crate::wait::cancel::Cancel;
use std::fmt;
use std::time::Duration;

/// A latch that opens after a number of ids have counted down. All processes that use its name share it.
///
/// [`Gate::latch`](crate::aio::Gate::latch) creates it. See [`luagate::CountDownLatch`](crate::CountDownLatch) for how
/// long it is kept and used.
///
/// ```no_run
/// # async fn example() -> Result<(), luagate::Error> {
/// let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
/// let done = gate.latch("import:2026-07-01", 3);
/// done.count_down_as("part-1").await?; // each worker; a worker that crashed and runs again counts once
/// done.wait().await?; // each task that needs all three
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountDownLatch(pub(super) crate::CountDownLatch);

impl CountDownLatch {
    /// How long the latch is kept after each `count_down` and wait: 1 ms to 100 years. The default is a day. The latch
    /// is never kept for less than another caller chose. Choose more than the longest pause between two calls, and more
    /// than the delay of the latest waiter.
    #[must_use]
    pub fn life(self, life: Duration) -> CountDownLatch {
        CountDownLatch(self.0.life(life))
    }

    /// Lets `cancel` end the waits for this latch, from another task or at a deadline. A [`Cancel`] stays cancelled,
    /// so use one for each request or job.
    #[must_use]
    pub fn cancelled_by(self, cancel: &Cancel) -> CountDownLatch {
        CountDownLatch(self.0.cancelled_by(cancel))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Counts down by one. Returns how many are left; 0 means that the latch is open. On an open latch it changes
    /// nothing. If the reply is lost, the client repeats the call, and it counts once.
    ///
    /// # Errors
    /// [`CallError`]. After [`CallError::Unknown`] it is unknown whether the call counted, and another call counts
    /// again. Use [`count_down_as`](CountDownLatch::count_down_as) to be able to repeat it.
    ///
    /// # Cancel safety
    /// If this is dropped, it is unknown whether the call counted.
    pub async fn count_down(&self) -> Result<u32, CallError> {
        self.0.count_down_by(&self.0.new_id()?, Mode::Async).await
    }

    /// As [`count_down`](CountDownLatch::count_down), with an id chosen by the caller (1 to 200 bytes without white
    /// space). An id counts once, so a worker that crashed and runs again is not counted twice.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the call can be repeated: an id counts once.
    pub async fn count_down_as(&self, id: &str) -> Result<u32, CallError> {
        self.0.count_down_by(id, Mode::Async).await
    }

    /// Returns how many have not counted down yet; 0 means that the latch is open. If the server does not store the
    /// latch, the result is the count that this caller declares. Changes nothing.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn count(&self) -> Result<u32, CallError> {
        self.0.count_by(Mode::Async).await
    }

    /// Deletes the latch with its count. Returns whether it existed, open or closed.
    ///
    /// The next `count_down` or wait starts a new latch, with the count that its caller declares. Current waiters
    /// continue to wait, for the new latch. The first 100 processes that wait ask again at once, the others within 5 s.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated. A second call also deletes what was counted after the first one. This
    /// is also true if the client repeats a call whose reply was lost.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not.
    pub async fn delete(&self) -> Result<bool, CallError> {
        self.0.delete_by(Mode::Async).await
    }

    /// Waits until the latch is open. Without a time limit.
    ///
    /// # Errors
    /// [`WaitError`]. If the server cannot be reached, the wait fails at once at its first call, and later after
    /// [`GateBuilder::outage`](crate::aio::GateBuilder::outage).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing of it stays on the server for longer than 15 s.
    pub async fn wait(&self) -> Result<(), WaitError> {
        self.0.wait_by(None, Mode::Async).await
    }

    /// Waits until the latch is open, for at most `timeout`. Returns after at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] contains how many are left. A timeout of zero is [`WaitError::Invalid`]. Otherwise as
    /// [`wait`](CountDownLatch::wait).
    ///
    /// # Cancel safety
    /// As [`wait`](CountDownLatch::wait).
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.0.wait_by(self.0.deadline(timeout)?, Mode::Async).await
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
