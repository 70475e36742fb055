//! Waits until a latch is open.

use super::{Ask, PATIENCE, RECHECK, Step, StepOf, Target};
use crate::error::{CallError, Cancelled, StillClosed, WaitError};
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch::{Count, CountAnswer, Wait, WaitAnswer};
use crate::protocol::lease::Moment;
use crate::protocol::message::Message;
use redis::Value;
use std::time::{Duration, Instant};

/// Each hint after which the latch was still closed delays the next call by this much more, up to `MAX_BACKOFF`. Any
/// client that knows the channel can publish hints, and must not be able to cause unlimited calls.
const BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A latch, as the object of a wait.
#[derive(Clone, Debug)]
pub struct LatchTarget {
    keys: LatchKeys,
    count: u32,
    life_ms: u64,
    /// The state in the last answer.
    last: Option<StillClosed>,
    asked: Instant,
    /// A hint to ask was received.
    called: bool,
    /// The number of hints after which the latch was still closed.
    false_calls: u32,
}

/// The answer of a latch to a waiter.
pub enum LatchAnswer {
    Open,
    Closed {
        still: StillClosed,
        /// The time in ms after which to ask again; `None`: this was the last call.
        retry_after: Option<u64>,
    },
}

impl LatchTarget {
    pub fn new(keys: &LatchKeys, count: u32, life_ms: u64, now: Instant) -> LatchTarget {
        LatchTarget { keys: keys.clone(), count, life_ms, last: None, asked: now, called: false, false_calls: 0 }
    }

    fn wait<'a>(&'a self, inbox: &'a str) -> Wait<'a> {
        Wait {
            keys: &self.keys,
            count: self.count,
            life_ms: self.life_ms,
            wait_ms: u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX),
            inbox,
        }
    }

    fn closed(&self) -> StillClosed {
        let count = self.count;
        self.last.unwrap_or(StillClosed { left: count, count })
    }
}

impl Target for LatchTarget {
    type Answer = LatchAnswer;
    type Granted = ();
    type Error = WaitError;

    fn call(&self, ask: Ask, inbox: &str) -> Packed {
        match ask {
            Ask::First | Ask::InLine => self.wait(inbox).pack(),
            Ask::Last => Count { keys: &self.keys }.pack(),
        }
    }

    fn answer(&self, ask: Ask, reply: Value) -> Result<LatchAnswer, CallError> {
        let (left, count, retry_after) = match ask {
            Ask::First | Ask::InLine => match self.wait("").answer(reply)? {
                WaitAnswer::Open { .. } => return Ok(LatchAnswer::Open),
                WaitAnswer::Closed { left, count, retry_after, .. } => (left, count, Some(retry_after)),
            },
            Ask::Last => match (Count { keys: &self.keys }).answer(reply)? {
                CountAnswer::None { .. } => (self.count, self.count, None),
                CountAnswer::Open { .. } => return Ok(LatchAnswer::Open),
                CountAnswer::Closed { left, count, .. } => (left, count, None),
            },
        };
        Ok(LatchAnswer::Closed { still: StillClosed { left, count }, retry_after })
    }

    fn answered(&mut self, ask: Ask, answer: LatchAnswer, sent: Moment) -> StepOf<LatchTarget> {
        let LatchAnswer::Closed { still, retry_after } = answer else {
            return Step::Done(Ok(()));
        };
        self.last = Some(still);
        self.asked = sent.instant();
        if std::mem::take(&mut self.called) {
            self.false_calls = self.false_calls.saturating_add(1);
        }
        match (ask, retry_after) {
            (Ask::First, _) => Step::AskAt(self.asked),
            (_, Some(ms)) => Step::AskAt(self.asked + RECHECK.min(Duration::from_millis(ms))),
            (_, None) => Step::Done(Err(self.timed_out())),
        }
    }

    /// A message is only a hint to ask.
    fn message(&mut self, _: &Message, _: Moment, now: Moment) -> StepOf<LatchTarget> {
        Step::AskBy(self.hint(now.instant()))
    }

    fn hint(&mut self, _: Instant) -> Instant {
        self.called = true;
        let backoff = MAX_BACKOFF.min(BACKOFF.saturating_mul(self.false_calls));
        self.asked + backoff
    }

    fn is_queued(&self) -> bool {
        self.last.is_some()
    }

    fn cancelled(&self) -> WaitError {
        WaitError::Cancelled(Cancelled)
    }

    fn timed_out(&self) -> WaitError {
        WaitError::TimedOut(self.closed())
    }
}
