//! The countdown latch: whoever waits goes on once so many have counted down.

use crate::error::{CallError, Cancelled, Invalid, MOST, StillClosed, WaitError};
use crate::protocol::lease;
use crate::protocol::name::{self, LatchKeys};
use crate::scripts::latch::{self, CountAnswer, CountDownAnswer, DeleteAnswer, WaitAnswer};
use crate::shared::Engine;
use crate::trace::Operation;
use crate::transport::connections::Turn;
use crate::wait::cancel::Cancel;
use crate::wait::in_line::{OUTAGE_PAUSE, RECHECK, Registered};
use crate::wait::request::{LAST_WORD, PATIENCE};
use crate::wait::waits::{News, Wait};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a latch is kept after its last call when nothing was chosen.
const LIFE: Duration = Duration::from_secs(86_400);

/// How much longer, with each call that found the latch closed, a waiter takes before it heeds the next: whoever knows the
/// channel may publish there, and must not keep it asking.
const CALM: Duration = Duration::from_millis(10);
const LONGEST_CALM: Duration = Duration::from_secs(1);

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
    engine: Arc<Engine>,
    name: String,
    keys: Result<LatchKeys, Invalid>,
    count: u32,
    life: Duration,
    cancel: Option<Cancel>,
}

impl CountDownLatch {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, count: u32) -> CountDownLatch {
        CountDownLatch {
            name: name.to_owned(),
            keys: LatchKeys::new(&engine.prefix, name),
            count,
            life: LIFE,
            cancel: None,
            engine,
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
        cancel.go_by(self.engine.clock());
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
        self.count_down_as(&name::new_id(self.engine.label.as_deref())?)
    }

    /// As [`count_down`](CountDownLatch::count_down), with an id of the caller's own (1 to 200 bytes without white space),
    /// which counts once: so a worker that crashed and runs again is not counted twice. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn count_down_as(&self, id: &str) -> Result<u32, CallError> {
        name::check_id(id)?;
        let (keys, life_ms) = self.checked()?;
        Operation::CountDown.on([keys.latch.as_str()]).run(|| {
            let answered = self.engine.call(&keys.latch, None, &mut |con| {
                latch::count_down(con, keys, id, self.count, life_ms)
            })?;
            match answered.reply {
                CountDownAnswer::Counted { left, .. } | CountDownAnswer::Already { left, .. } => {
                    Ok(left)
                }
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
        let span = Operation::Count.on([keys.latch.as_str()]);
        span.run(|| Ok(self.look(keys, None)?.left))
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
            let answered = self
                .engine
                .call(&keys.latch, None, &mut |con| latch::delete(con, keys))?;
            Ok(matches!(answered.reply, DeleteAnswer::Deleted { .. }))
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
            let why = "takes more than zero; to look at once there is `count`";
            return Err(Invalid::new("timeout", why).into());
        }
        self.wait_until(self.engine.now().checked_add(timeout)) // past what the clock can hold is for ever
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let (keys, life_ms) = self.checked()?;
        let span = Operation::Wait.on([keys.latch.as_str()]);
        span.run(|| self.wait_here(keys, life_ms, deadline))
    }

    fn wait_here(
        &self,
        keys: &LatchKeys,
        life_ms: u64,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        self.engine.check_process()?;
        let inbox = &self.engine.inbox;
        let registered = Registered {
            inbox,
            wait: inbox.register_shared(&keys.latch),
        };
        if let Some(cancel) = &self.cancel {
            cancel.watch(&registered.wait);
        }
        let waiting = Waiting {
            latch: self,
            keys,
            life_ms,
            deadline,
            last: None,
            asked: self.engine.now(),
            next_ask: self.engine.now(),
            called: false,
            false_calls: 0,
            unreachable_since: None,
        };
        waiting.run(&registered.wait)
    }

    /// The keys and the life in ms, unless something about this latch cannot be.
    fn checked(&self) -> Result<(&LatchKeys, u64), Invalid> {
        let keys = self.keys.as_ref().map_err(Invalid::clone)?;
        if !(1..=MOST).contains(&self.count) {
            let why = format!("takes 1 to {MOST}, got {}", self.count);
            return Err(Invalid::new("count", why));
        }
        match u64::try_from(self.life.as_millis()) {
            Ok(ms) if (1..=lease::LONGEST_MS).contains(&ms) => Ok((keys, ms)),
            _ => {
                let why = format!("takes 1 ms to 100 years, got {:?}", self.life);
                Err(Invalid::new("life", why))
            }
        }
    }

    /// How many are left, 0 of them when it is open.
    fn look(&self, keys: &LatchKeys, until: Option<Instant>) -> Result<StillClosed, CallError> {
        let answered = self
            .engine
            .call(&keys.latch, until, &mut |con| latch::count(con, keys))?;
        let (left, count) = match answered.reply {
            CountAnswer::None { .. } => (self.count, self.count),
            CountAnswer::Open { count, .. } => (0, count),
            CountAnswer::Closed { left, count, .. } => (left, count),
        };
        Ok(StillClosed { left, count })
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

/// One wait that is under way.
struct Waiting<'a> {
    latch: &'a CountDownLatch,
    keys: &'a LatchKeys,
    life_ms: u64,
    deadline: Option<Instant>,
    /// What the last answer said.
    last: Option<StillClosed>,
    asked: Instant,
    next_ask: Instant,
    /// Somebody said that it is worth asking.
    called: bool,
    /// How often it was not.
    false_calls: u32,
    unreachable_since: Option<Instant>,
}

impl Waiting<'_> {
    fn run(mut self, wait: &Wait) -> Result<(), WaitError> {
        loop {
            let until = self
                .deadline
                .map_or(self.next_ask, |end| end.min(self.next_ask));
            match wait.hear(until) {
                News::Cancelled => return Err(WaitError::Cancelled(Cancelled)),
                News::Called | News::Message { .. } => {
                    self.called = true;
                    let calm = LONGEST_CALM.min(CALM.saturating_mul(self.false_calls));
                    self.next_ask = self.next_ask.min(self.asked + calm);
                }
                News::Silence if self.is_over() => return self.last_look(),
                News::Silence => {
                    if self.ask()? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|end| end <= self.latch.engine.now())
    }

    /// One call; true when it is open. Who was answered before goes on for a while when the server cannot be reached.
    fn ask(&mut self) -> Result<bool, WaitError> {
        let engine = &self.latch.engine;
        // The first wait of a gate asks without an inbox first: it may be open, and then none is needed at all.
        let listens = self.last.is_some() || engine.inbox.is_opened(&self.keys.latch);
        let until = self.deadline.and_then(|end| end.checked_add(LAST_WORD));
        let (keys, count, life_ms) = (self.keys, self.latch.count, self.life_ms);
        let patience_ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let asked = engine.servers.find(&keys.latch, until, &mut |node| {
            let channel = match listens {
                true => engine.inbox.channel(node.connections, self.deadline)?,
                false => None,
            };
            let inbox = channel.unwrap_or_default();
            node.call(Turn::Last, until, &mut |con| {
                latch::wait(con, keys, count, life_ms, patience_ms, &inbox)
            })
        });
        let answered = match asked {
            Ok(answered) => answered,
            Err(unanswered) => return self.go_on_after(unanswered.error),
        };
        self.unreachable_since = None;
        match answered.reply {
            WaitAnswer::Open { .. } => Ok(true),
            WaitAnswer::Closed {
                left,
                count,
                retry_after,
                ..
            } => {
                self.last = Some(StillClosed { left, count });
                self.asked = answered.sent.instant();
                if std::mem::take(&mut self.called) {
                    self.false_calls = self.false_calls.saturating_add(1);
                }
                let pause = match listens {
                    true => RECHECK.min(Duration::from_millis(retry_after)),
                    false => Duration::ZERO,
                };
                self.next_ask = self.asked + pause;
                Ok(false)
            }
        }
    }

    fn go_on_after(&mut self, error: CallError) -> Result<bool, WaitError> {
        let since = *self
            .unreachable_since
            .get_or_insert_with(|| self.latch.engine.now());
        let goes_on = self.last.is_some() && error.is_passing() && !self.is_over();
        let unreachable = self.latch.engine.now().saturating_duration_since(since);
        if goes_on && unreachable < self.latch.engine.outage {
            self.next_ask = self.latch.engine.now() + OUTAGE_PAUSE;
            return Ok(false);
        }
        Err(self.failed(error))
    }

    /// The time is over: the last message may have been lost, so it is asked for once more.
    fn last_look(&self) -> Result<(), WaitError> {
        let until = self.latch.engine.now() + LAST_WORD;
        match self.latch.look(self.keys, Some(until)) {
            Ok(StillClosed { left: 0, .. }) => Ok(()),
            Ok(closed) => Err(WaitError::TimedOut(closed)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The last call of this wait was not answered. Where the server answered until just now, the time was over before
    /// the answer came, and that is what counts.
    fn failed(&self, error: CallError) -> WaitError {
        let failed_before = self.unreachable_since.is_some_and(|since| {
            self.latch.engine.now().saturating_duration_since(since) > LAST_WORD
        });
        match self.last {
            Some(last) if self.is_over() && error.is_passing() && !failed_before => {
                WaitError::TimedOut(last)
            }
            _ => error.into(),
        }
    }
}
