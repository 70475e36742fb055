//! The countdown latch: whoever waits goes on once so many have counted down.

use crate::error::{CallError, Invalid, MOST, WaitError};
use crate::protocol::id;
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch::{Count, CountAnswer, CountDown, CountDownAnswer, Delete, DeleteAnswer};
use crate::protocol::lease::LONGEST_MS;
use crate::protocol::waiter::LatchTarget;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::cancel::Cancel;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a latch is kept after its last call when nothing was chosen.
const LIFE: Duration = Duration::from_secs(86_400);

/// A latch that opens once so many have counted down, across all processes that name it.
///
/// Made by [`Gate::latch`](crate::Gate::latch). It is a name and settings; cloning it is cheap, and it may be shared by any
/// number of threads. It takes the place of `java.util.concurrent.CountDownLatch` and Redisson's `RCountDownLatch`, with
/// two differences: everybody declares the count, so nobody has to set it before others wait; and who counts down has an id,
/// which counts once however often the call is repeated.
///
/// It is used once: open, it stays open. For another round take another name: a date, a build number. It is kept for a day
/// after the last `count_down` or wait, see [`life`](CountDownLatch::life); then it is forgotten, and whoever comes later
/// finds a new one. [`delete`](CountDownLatch::delete) ends it sooner. Each id takes a field of a hash on the server until the
/// latch opens.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let done = gate.latch("import:2026-07-01", 3);
/// done.count_down_as("part-1")?; // each worker; one that crashed and runs again counts once
/// done.wait()?; // whoever needs all three
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
        CountDownLatch {
            name: name.to_owned(),
            keys: LatchKeys::new(&shared.prefix, name),
            count,
            life: LIFE,
            cancel: None,
            shared,
        }
    }

    /// How long the latch is kept after each `count_down` and wait: 1 ms to 100 years, a day unless chosen. Never less than
    /// what another caller chose. It should be longer than the longest pause between two calls, and than late comers come late.
    #[must_use]
    pub fn life(mut self, life: Duration) -> CountDownLatch {
        self.life = life;
        self
    }

    /// Lets `cancel` end the waits for this latch, from another thread or at a time. Use one [`Cancel`] for each request or job,
    /// since it stays cancelled.
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

    /// Counts down by one, and says how many are left; 0: the latch is open. Blocks for one round trip. A call whose
    /// reply was lost is repeated, and counts once. On an open latch it changes nothing.
    ///
    /// # Errors
    /// [`CallError`]; after [`CallError::Unknown`] it may have counted or not, and calling again counts anew. To be able to
    /// repeat also that, use [`count_down_as`](CountDownLatch::count_down_as).
    pub fn count_down(&self) -> Result<u32, CallError> {
        self.count_down_as(&id::new_id(self.shared.label.as_deref())?)
    }

    /// As [`count_down`](CountDownLatch::count_down), with an id of the caller's own (1 to 200 bytes without white space),
    /// which counts once: so a worker that crashed and runs again is not counted twice. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn count_down_as(&self, id: &str) -> Result<u32, CallError> {
        id::check_id(id)?;
        let (keys, life_ms) = self.checked()?;
        Operation::CountDown.on([keys.latch.as_str()]).run(|| {
            let count_down = CountDown { keys, id, count: self.count, life_ms };
            match self.shared.call(&count_down)? {
                CountDownAnswer::Counted { left, .. } | CountDownAnswer::Already { left, .. } => Ok(left),
            }
        })
    }

    /// How many have still to count down; 0: the latch is open. Where nobody has counted down or waited yet, or the latch is
    /// forgotten, that is the count declared here. Changes nothing. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn count(&self) -> Result<u32, CallError> {
        let (keys, _) = self.checked()?;
        Operation::Count.on([keys.latch.as_str()]).run(|| {
            Ok(match self.shared.call(&Count { keys })? {
                CountAnswer::None { .. } => self.count,
                CountAnswer::Open { .. } => 0,
                CountAnswer::Closed { left, .. } => left,
            })
        })
    }

    /// Deletes the latch and everything that was counted; returns whether there was one, open or closed. Blocks for one round
    /// trip.
    ///
    /// The next `count_down` or wait starts it afresh, with the count that this caller declares. Callers that wait now wait on,
    /// for the new latch. The first hundred processes that wait ask again at once, the others within 5 s.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again. A second call, also the repetition of one whose reply was lost, deletes
    /// what was counted after the first.
    pub fn delete(&self) -> Result<bool, CallError> {
        let (keys, _) = self.checked()?;
        Operation::Delete.on([keys.latch.as_str()]).run(|| {
            let answer = self.shared.call(&Delete { keys })?;
            Ok(matches!(answer, DeleteAnswer::Deleted { .. }))
        })
    }

    /// Waits until the latch is open, for as long as it takes. Blocks until then; another thread may end that through
    /// [`cancelled_by`](CountDownLatch::cancelled_by).
    ///
    /// # Errors
    /// [`WaitError`]; an unreachable server is one after [`GateBuilder::outage`](crate::GateBuilder::outage), and at once
    /// where the first call fails.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_until(None)
    }

    /// Waits until the latch is open, for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], with how many are left. As [`wait`](CountDownLatch::wait) otherwise; a timeout of zero is
    /// [`WaitError::Invalid`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        if timeout.is_zero() {
            let why = "got 0. Accepted: more than 0. To read the state without waiting, use `count`";
            return Err(Invalid::new("timeout", why).into());
        }
        self.wait_until(self.shared.now().checked_add(timeout)) // past what the clock can hold is for ever
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let (keys, life_ms) = self.checked()?;
        let target = LatchTarget::new(keys, self.count, life_ms, self.shared.now());
        Operation::Wait.on([keys.latch.as_str()]).run(|| {
            let cancel = self.cancel.as_ref();
            let waits = &self.shared.waits;
            waits.until_open(target, &keys.latch, deadline, cancel)
        })
    }

    /// The keys and the life in ms, unless something about this latch cannot be.
    fn checked(&self) -> Result<(&LatchKeys, u64), Invalid> {
        let keys = self.keys.as_ref().map_err(Invalid::clone)?;
        if !(1..=MOST).contains(&self.count) {
            let why = format!("{} is out of range. Accepted: 1 to {MOST}", self.count);
            return Err(Invalid::new("count", why));
        }
        match u64::try_from(self.life.as_millis()) {
            Ok(ms) if (1..=LONGEST_MS).contains(&ms) => Ok((keys, ms)),
            _ => {
                let why = format!("{:?} is out of range. Accepted: 1 ms to 100 years", self.life);
                Err(Invalid::new("life", why))
            }
        }
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
