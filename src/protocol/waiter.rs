//! One wait as a state machine, from its first call to its end. A wait is for permits or for a latch.
//!
//! The driver executes an [`Action`] and reports the result as an [`Event`]. All rules of waiting are in this module:
//! when to ask again, how long to retry while the server cannot be reached, what to do when the time is over, and what
//! to give back.

mod latch;
mod permit;

pub use latch::LatchTarget;
pub use permit::{Granted, PermitTarget, QueueEntry, denied};

use super::call::Packed;
use super::lease::Moment;
use super::message::Message;
use crate::error::CallError;
use crate::error::failure::FailureKind;
use redis::Value;
use std::time::{Duration, Instant};

/// The waiter's deadline on the server, as time after each call: a waiter that does not ask again leaves the line then.
/// So a waiter whose process has ended leaves the line within this time.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How much longer than the wait's deadline its last call may take.
pub const LAST_CALL: Duration = Duration::from_millis(40);

/// How long a waiter sleeps at most before it asks again: three calls within its patience.
const RECHECK: Duration = Duration::from_secs(5);

/// The pause between calls while the server cannot be reached.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// The object of a wait: how to ask for it, and the meaning of answers and messages.
pub trait Target {
    type Answer;
    type Granted;
    type Error: From<CallError>;

    /// The call that asks. Messages are sent to `inbox`.
    fn call(&self, ask: Ask, inbox: &str) -> Packed;

    fn answer(&self, ask: Ask, reply: Value) -> Result<Self::Answer, CallError>;

    /// Handles the answer to a call sent at `sent`.
    fn answered(&mut self, ask: Ask, answer: Self::Answer, sent: Moment) -> StepOf<Self>;

    /// Handles a message.
    fn message(&mut self, message: &Message, received: Moment, now: Moment) -> StepOf<Self>;

    /// Handles a hint to ask again. Returns when to ask.
    fn hint(&mut self, now: Instant) -> Instant;

    /// Whether the server has stored this wait.
    fn is_queued(&self) -> bool;

    fn cancelled(&self) -> Self::Error;

    fn timed_out(&self) -> Self::Error;
}

/// The kinds of calls by which a waiter asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Without an inbox, since most first calls need none.
    First,
    InLine,
    /// The time is over: takes a grant that was in progress, or gives up the place in line.
    Last,
}

/// The next step after an answer or a message.
pub enum Step<G, E> {
    /// Continue to wait; ask at this time.
    AskAt(Instant),
    /// Continue to wait; ask at this time, or earlier if that is planned.
    AskBy(Instant),
    /// Continue as planned.
    Continue,
    Done(Result<G, E>),
    /// End, and give back nothing: what the id has is another caller's.
    Leave(E),
    /// End, and give back everything that the id has.
    GiveBack(E),
}

pub type StepOf<T> = Step<<T as Target>::Granted, <T as Target>::Error>;

/// An event that the driver reports.
pub enum Event<A> {
    Answered {
        answer: A,
        sent: Moment,
    },
    Unanswered(CallError),
    /// A message that is signed with the secret of this wait.
    Message {
        message: Message,
        received: Moment,
    },
    /// A hint to ask again: messages may have been missed, or a latch may have opened.
    Called,
    Cancelled,
    /// The time to sleep is over.
    Timer,
    /// What this wait got in the meantime was given back, because its driver did not take it in time. It asks again with
    /// its ticket.
    GivenBack,
}

/// The next action of the driver.
pub enum Action<G, E> {
    /// Send a call. Stop waiting for its reply at `until`.
    Ask { ask: Ask, until: Option<Instant> },
    /// Sleep until this time or an event.
    Sleep { until: Instant },
    /// The wait is over.
    Done { result: Result<G, E>, give_back: GiveBack },
}

/// The releases at the end of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GiveBack {
    /// Release now, within the time of the last call, what the server gave the id.
    pub now: bool,
    /// Release in the background, after the call without an answer, what that call may still have caused.
    pub later: bool,
}

pub type ActionOf<T> = Action<<T as Target>::Granted, <T as Target>::Error>;

/// One wait.
#[derive(Clone, Debug)]
pub struct Waiter<T> {
    pub target: T,
    pub deadline: Option<Instant>,
    /// How long this wait continues while the server cannot be reached.
    outage: Duration,
    pub state: State,
    pub next_ask: Instant,
    pub unreachable_since: Option<Instant>,
    /// A call was not answered. It may still reach the server after the end of this wait.
    pub may_come_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Sleeps,
    Asks(Ask),
}

impl<T: Target> Waiter<T> {
    pub fn new(target: T, deadline: Option<Instant>, outage: Duration, now: Instant) -> Waiter<T> {
        Waiter {
            target,
            deadline,
            outage,
            state: State::Sleeps,
            next_ask: now,
            unreachable_since: None,
            may_come_late: false,
        }
    }

    /// Whether the server may have stored something for this wait, which must be given back if the driver drops it now.
    pub fn may_leave_something(&self) -> bool {
        match self.state {
            State::Sleeps => self.may_come_late || self.target.is_queued(),
            State::Asks(_) => true,
        }
    }

    /// The first action. `listens`: the inbox is ready.
    pub fn start(&mut self, listens: bool) -> ActionOf<T> {
        if listens { self.sleep() } else { self.ask(Ask::First) }
    }

    /// The next action after an event.
    pub fn on(&mut self, event: Event<T::Answer>, now: Moment) -> ActionOf<T> {
        match (self.state, event) {
            (_, Event::Cancelled) => {
                let give_back = GiveBack { now: self.target.is_queued(), later: self.may_come_late };
                Action::Done { result: Err(self.target.cancelled()), give_back }
            }
            (_, Event::GivenBack) => {
                self.next_ask = now.instant();
                self.sleep()
            }
            (_, Event::Called) => {
                let at = self.target.hint(now.instant());
                self.next_ask = self.next_ask.min(at);
                self.sleep()
            }
            (_, Event::Message { message, received }) => {
                let step = self.target.message(&message, received, now);
                self.go_on(step)
            }
            (State::Asks(ask), Event::Answered { answer, sent }) => {
                self.unreachable_since = None;
                let step = self.target.answered(ask, answer, sent);
                self.go_on(step)
            }
            (State::Asks(ask), Event::Unanswered(error)) => self.unanswered(ask, error, now),
            // An answer without a call in progress; a correct driver never reports one.
            (_, Event::Answered { .. } | Event::Unanswered(_)) => self.sleep(),
            (_, Event::Timer) if self.is_over(now.instant()) => {
                self.deadline = Some(now.instant());
                self.ask(Ask::Last)
            }
            (_, Event::Timer) => self.ask(Ask::InLine),
        }
    }

    fn go_on(&mut self, step: StepOf<T>) -> ActionOf<T> {
        match step {
            Step::Continue => self.sleep(),
            Step::AskAt(at) => {
                self.next_ask = at;
                self.sleep()
            }
            Step::AskBy(at) => {
                self.next_ask = self.next_ask.min(at);
                self.sleep()
            }
            Step::Done(result) => {
                let give_back = GiveBack { now: false, later: result.is_err() && self.may_come_late };
                Action::Done { result, give_back }
            }
            Step::Leave(error) => Action::Done { result: Err(error), give_back: GiveBack::default() },
            Step::GiveBack(error) => {
                let give_back = GiveBack { now: true, later: self.may_come_late };
                Action::Done { result: Err(error), give_back }
            }
        }
    }

    /// Handles a failed call. A wait with a place in line continues for a while if the server cannot be reached.
    fn unanswered(&mut self, ask: Ask, error: CallError, now: Moment) -> ActionOf<T> {
        let now = now.instant();
        let is_over = ask == Ask::Last || self.is_over(now);
        let failing = self.unreachable_since.map(|since| now.saturating_duration_since(since));
        let may_have_run = matches!(error, CallError::Unknown(_));
        self.may_come_late |= may_have_run;
        let is_queued = self.target.is_queued();
        let goes_on = ask == Ask::InLine && is_queued && !is_over && error.is_passing();
        if goes_on && failing.unwrap_or_default() < self.outage {
            self.unreachable_since.get_or_insert(now);
            self.next_ask = now + OUTAGE_PAUSE;
            return self.sleep();
        }
        let give_back = GiveBack { now: false, later: self.may_come_late || is_queued };
        // The server answered until just now. So the call failed because the time was over, and that is the error to
        // return.
        let answered_until_now = failing.is_none_or(|failing| failing <= LAST_CALL);
        let error = if is_over && is_queued && answered_until_now && is_late(&error) {
            self.target.timed_out()
        } else {
            error.into()
        };
        Action::Done { result: Err(error), give_back }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|end| end <= now)
    }

    fn ask(&mut self, ask: Ask) -> ActionOf<T> {
        self.state = State::Asks(ask);
        let until = self.deadline.and_then(|end| end.checked_add(LAST_CALL));
        Action::Ask { ask, until }
    }

    fn sleep(&mut self) -> ActionOf<T> {
        self.state = State::Sleeps;
        Action::Sleep { until: self.deadline.map_or(self.next_ask, |end| end.min(self.next_ask)) }
    }
}

/// Whether the call had too little time. This includes the case that no connection could be made in the time that was
/// left.
fn is_late(error: &CallError) -> bool {
    let (CallError::Failed(failure) | CallError::Unknown(failure)) = error else {
        return false;
    };
    matches!(failure.kind(), FailureKind::TimedOut | FailureKind::Unreachable)
}
