//! A latch, as the object of a wait.

use super::call::{Call, Packed};
use super::inbox::Message;
use super::keys::LatchKeys;
use super::latch::{Count, CountAnswer, Wait, WaitAnswer};
use super::lease::{Moment, Sent};
use super::release::{LostCalls, PendingRelease};
use super::script::Scripts;
use super::waiter::{AskKind, PATIENCE, RECHECK, Step, StepOf, WaitTarget};
use crate::failure::CallError;
use crate::value::Value;
use std::time::{Duration, Instant};

/// Each hint after which the latch was still closed delays the next call by this much more, up to
/// `MAX_BACKOFF`. Any client that knows the channel can publish hints, and must not be able to cause
/// unlimited calls.
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

/// How many ids must still count down, of how many in all.
#[derive(Clone, Copy, Debug)]
pub struct StillClosed {
    pub left: u32,
    pub count: u32,
}

/// Why a wait for a latch ended before it was known to be open.
#[derive(Debug)]
pub enum NotOpen {
    StillClosed(StillClosed),
    Cancelled,
    Unanswered(CallError),
}

impl From<CallError> for NotOpen {
    fn from(error: CallError) -> NotOpen {
        NotOpen::Unanswered(error)
    }
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
        LatchTarget {
            keys: keys.clone(),
            count,
            life_ms,
            last: None,
            asked: now,
            called: false,
            false_calls: 0,
        }
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
}

impl WaitTarget for LatchTarget {
    type Answer = LatchAnswer;
    type Granted = ();
    type Error = NotOpen;

    fn call(&self, ask: AskKind, inbox: &str, scripts: &'static Scripts) -> Packed {
        match ask {
            AskKind::First | AskKind::InLine => self.wait(inbox).pack(scripts),
            AskKind::Last => Count { keys: &self.keys }.pack(scripts),
        }
    }

    fn answer(&self, ask: AskKind, reply: Value) -> Result<LatchAnswer, CallError> {
        let (left, count, retry_after) = match ask {
            AskKind::First | AskKind::InLine => match self.wait("").answer(reply)? {
                WaitAnswer::Open { .. } => return Ok(LatchAnswer::Open),
                WaitAnswer::Closed { left, count, retry_after, .. } => (left, count, Some(retry_after)),
            },
            AskKind::Last => match (Count { keys: &self.keys }).answer(reply)? {
                CountAnswer::None { .. } => (self.count, self.count, None),
                CountAnswer::Open { .. } => return Ok(LatchAnswer::Open),
                CountAnswer::Closed { left, count, .. } => (left, count, None),
            },
        };
        Ok(LatchAnswer::Closed { still: StillClosed { left, count }, retry_after })
    }

    fn answered(&mut self, ask: AskKind, answer: LatchAnswer, sent: Sent, _: Moment) -> StepOf<LatchTarget> {
        let LatchAnswer::Closed { still, retry_after } = answer else {
            return Step::Done(Ok(()));
        };
        self.last = Some(still);
        self.asked = sent.at.instant();
        if std::mem::take(&mut self.called) {
            self.false_calls = self.false_calls.saturating_add(1);
        }
        match (ask, retry_after) {
            (AskKind::First, _) => Step::AskAt(self.asked),
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

    fn is_repeatable(&self) -> bool {
        true
    }

    fn cancelled(&self) -> NotOpen {
        NotOpen::Cancelled
    }

    fn timed_out(&self) -> NotOpen {
        let count = self.count;
        NotOpen::StillClosed(self.last.unwrap_or(StillClosed { left: count, count }))
    }

    /// The server forgets a waiter that does not ask again.
    fn give_back<C>(&self, _: LostCalls<C>, _: Instant) -> Option<PendingRelease<C>> {
        None
    }

    fn doubts(&self, _: AskKind, _: &LatchAnswer, _: Sent) -> bool {
        false
    }

    fn is_overtaken(&self, _: &LatchAnswer) -> bool {
        false
    }

    fn has_released(&mut self, _: u64) {}

    fn kept_ticket(&self) -> u64 {
        0
    }
}
