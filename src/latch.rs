//! The countdown latch: waiters continue after a number of ids have counted down.

use crate::engine::mode::{Mode, block};
use crate::error::{CallError, Invalid, WaitError};
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::Caller;
use crate::wait::cancel::Cancel;
use luagate_core::id;
use luagate_core::keys::LatchKeys;
use luagate_core::latch::{Count, CountAnswer, CountDown, CountDownAnswer, Delete, DeleteAnswer};
use luagate_core::latch_target::LatchTarget;
use luagate_core::lease::checked_ms;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a latch is kept after its last call by default.
const LIFE: Duration = Duration::from_secs(86_400);

/// A latch that opens after a number of ids have counted down. All processes that use its name share it.
///
/// [`Gate::latch`](crate::Gate::latch) creates it. It consists of a name and settings: clones are cheap, and
/// any number of threads can share it. It corresponds to `java.util.concurrent.CountDownLatch` and Redisson's
/// `RCountDownLatch`, with two differences:
///
/// - Every caller declares the count. No process has to set it before others can wait.
/// - Each caller that counts down has an id. An id counts once, even if the call is repeated.
///
/// A latch is used once: it stays open after it has opened. For another round, use another name, for example
/// with a date or a build number. The server keeps a latch for a day after the last `count_down` or wait, see
/// [`life`](CountDownLatch::life). Then it is removed, and the next call starts a new latch.
/// [`delete`](CountDownLatch::delete) removes it earlier. Until the latch opens, each id occupies a field of
/// a hash on the server.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let done = gate.latch("import:2026-07-01", 3);
/// done.count_down_as("part-1")?; // each worker; a worker that crashed and runs again counts once
/// done.wait()?; // each process that needs all three
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountDownLatch {
    shared: Arc<Shared>,
    name: String,
    keys: Result<LatchKeys, Invalid>,
    count: u32,
    life: Duration,
    cancel: Option<Cancel>,
}

impl CountDownLatch {
    pub(crate) fn new(shared: Arc<Shared>, name: &str, count: u32) -> CountDownLatch {
        let keys = LatchKeys::new(&shared.prefix, name);
        CountDownLatch { shared, name: name.to_owned(), keys, count, life: LIFE, cancel: None }
    }

    /// How long the latch is kept after each `count_down` and wait: 1 ms to 100 years. The default is a day.
    /// The latch is never kept for less than another caller chose. Choose more than the longest pause between
    /// two calls, and more than the delay of the latest waiter.
    #[must_use]
    pub fn life(mut self, life: Duration) -> CountDownLatch {
        self.life = life;
        self
    }

    /// Lets `cancel` end the waits for this latch, from another thread or at a deadline. A [`Cancel`] stays
    /// cancelled, so use one for each request or job.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> CountDownLatch {
        cancel.go_by(&self.shared.servers.clock);
        self.cancel = Some(cancel.clone());
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts down by one. Returns how many are left; 0 means that the latch is open. On an open latch it
    /// changes nothing. If the reply is lost, the client repeats the call, and it counts once. Blocks for one
    /// round trip.
    ///
    /// # Errors
    /// [`CallError`]. After [`CallError::Unknown`] it is unknown whether the call counted, and another call
    /// counts again. Use [`count_down_as`](CountDownLatch::count_down_as) to be able to repeat it.
    pub fn count_down(&self) -> Result<u32, CallError> {
        self.count_down_as(&self.new_id()?)
    }

    /// As [`count_down`](CountDownLatch::count_down), without blocking.
    ///
    /// # Errors
    /// As [`count_down`](CountDownLatch::count_down).
    ///
    /// # Cancel safety
    /// If this is dropped, it is unknown whether the call counted.
    pub async fn count_down_async(&self) -> Result<u32, CallError> {
        self.count_down_by(&self.new_id()?, Mode::Async).await
    }

    /// As [`count_down`](CountDownLatch::count_down), with an id chosen by the caller (1 to 200 bytes without
    /// white space). An id counts once, so a worker that crashed and runs again is not counted twice. Blocks
    /// for one round trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    pub fn count_down_as(&self, id: &str) -> Result<u32, CallError> {
        block(|mode| self.count_down_by(id, mode))
    }

    /// As [`count_down_as`](CountDownLatch::count_down_as), without blocking.
    ///
    /// # Errors
    /// As [`count_down_as`](CountDownLatch::count_down_as).
    ///
    /// # Cancel safety
    /// If this is dropped, the call can be repeated: an id counts once.
    pub async fn count_down_as_async(&self, id: &str) -> Result<u32, CallError> {
        self.count_down_by(id, Mode::Async).await
    }

    fn new_id(&self) -> Result<String, Invalid> {
        id::new_id(self.shared.label.as_deref(), Uuid::new_v4())
    }

    async fn count_down_by(&self, id: &str, mode: Mode) -> Result<u32, CallError> {
        id::check_id(id)?;
        let (keys, life_ms) = self.checked()?;
        let count_down = async {
            let count_down = CountDown { keys, id, count: self.count, life_ms };
            match self.shared.call(&count_down, mode).await? {
                CountDownAnswer::Counted { left, .. } | CountDownAnswer::Already { left, .. } => Ok(left),
            }
        };
        Operation::CountDown.on([keys.latch.as_str()]).run(count_down).await
    }

    /// Returns how many have not counted down yet; 0 means that the latch is open. If the server does not
    /// store the latch, the result is the count that this caller declares. Changes nothing. Blocks for one
    /// round trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    #[doc(alias("count", "getCount"))]
    pub fn left(&self) -> Result<u32, CallError> {
        block(|mode| self.left_by(mode))
    }

    /// As [`left`](CountDownLatch::left), without blocking.
    ///
    /// # Errors
    /// As [`left`](CountDownLatch::left).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn left_async(&self) -> Result<u32, CallError> {
        self.left_by(Mode::Async).await
    }

    async fn left_by(&self, mode: Mode) -> Result<u32, CallError> {
        let (keys, _) = self.checked()?;
        let count = async {
            Ok(match self.shared.call(&Count { keys }, mode).await? {
                CountAnswer::None { .. } => self.count,
                CountAnswer::Open { .. } => 0,
                CountAnswer::Closed { left, .. } => left,
            })
        };
        Operation::Left.on([keys.latch.as_str()]).run(count).await
    }

    /// Deletes the latch with its count. Returns whether it existed, open or closed. Blocks for one round
    /// trip.
    ///
    /// The next `count_down` or wait starts a new latch, with the count that its caller declares. Current
    /// waiters continue to wait, for the new latch. The first 100 processes that wait ask again at once, the
    /// others within 5 s.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated. A second call also deletes what was counted after the first
    /// one. This is also true if the client repeats a call whose reply was lost.
    pub fn delete(&self) -> Result<bool, CallError> {
        block(|mode| self.delete_by(mode))
    }

    /// As [`delete`](CountDownLatch::delete), without blocking.
    ///
    /// # Errors
    /// As [`delete`](CountDownLatch::delete).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not.
    pub async fn delete_async(&self) -> Result<bool, CallError> {
        self.delete_by(Mode::Async).await
    }

    async fn delete_by(&self, mode: Mode) -> Result<bool, CallError> {
        let (keys, _) = self.checked()?;
        let delete = async {
            let answer = self.shared.call(&Delete { keys }, mode).await?;
            Ok(matches!(answer, DeleteAnswer::Deleted { .. }))
        };
        Operation::Delete.on([keys.latch.as_str()]).run(delete).await
    }

    /// Waits until the latch is open. Blocks until then, without a time limit. Another thread can end the
    /// wait through
    /// [`cancelled_by`](CountDownLatch::cancelled_by).
    ///
    /// # Errors
    /// [`WaitError`]. If the server cannot be reached, the wait fails at once at its first call, and later
    /// after [`GateBuilder::outage_timeout`](crate::GateBuilder::outage_timeout).
    pub fn wait(&self) -> Result<(), WaitError> {
        block(|mode| self.wait_by(None, mode))
    }

    /// As [`wait`](CountDownLatch::wait), without blocking.
    ///
    /// # Errors
    /// As [`wait`](CountDownLatch::wait).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing of it stays on the server for longer than 15 s.
    pub async fn wait_async(&self) -> Result<(), WaitError> {
        self.wait_by(None, Mode::Async).await
    }

    /// Waits until the latch is open, for at most `timeout`. Blocks for at most `timeout` plus 50 ms. A
    /// timeout of zero only looks. The timeout of the async form begins when the future is polled for the
    /// first time.
    ///
    /// # Errors
    /// [`WaitError::StillClosed`] contains how many are left. Otherwise as [`wait`](CountDownLatch::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        block(|mode| self.wait_by(self.shared.deadline(timeout), mode))
    }

    /// As [`wait_timeout`](CountDownLatch::wait_timeout), without blocking.
    ///
    /// # Errors
    /// As [`wait_timeout`](CountDownLatch::wait_timeout).
    ///
    /// # Cancel safety
    /// As [`wait_async`](CountDownLatch::wait_async).
    pub async fn wait_timeout_async(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_by(self.shared.deadline(timeout), Mode::Async).await
    }

    /// The keys and the life in ms, if all settings of this latch are valid.
    fn checked(&self) -> Result<(&LatchKeys, u64), Invalid> {
        let keys = self.keys.as_ref().map_err(Invalid::clone)?;
        Invalid::check_count("count", self.count, "")?;
        Ok((keys, checked_ms("life", self.life)?))
    }

    async fn wait_by(&self, deadline: Option<Instant>, mode: Mode) -> Result<(), WaitError> {
        let (keys, life_ms) = self.checked()?;
        let target = LatchTarget::new(keys, self.count, life_ms, self.shared.now());
        let caller = Caller { cancel: self.cancel.as_ref(), ..Caller::of(mode) };
        let wait = self.shared.waits.until_open(target, &keys.latch, deadline, caller);
        Operation::Wait.on([keys.latch.as_str()]).run(wait).await
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("name", &self.name)
            .field("count", &self.count)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
