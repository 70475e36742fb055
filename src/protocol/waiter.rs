//! One wait as a state machine, from its first call to its end: for permits and for latches.
//!
//! The driver carries out an [`Action`] and reports what came of it as an [`Event`]. All rules of waiting are here: when to ask
//! again, how long to go on while the server cannot be reached, what to do when the time is over, and what to give back.

mod latch;
mod permit;

pub(crate) use latch::LatchTarget;
pub(crate) use permit::{Granted, PermitTarget, QueueEntry, denied};

use super::call::Packed;
use super::lease::Moment;
use super::message::Message;
use crate::error::CallError;
use crate::error::failure::FailureKind;
use redis::Value;
use std::time::{Duration, Instant};

/// How long a waiter stays in line unless it asks again. One that crashed leaves the queue within this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How much longer than the deadline the last call of a wait may take.
pub(crate) const LAST_CALL: Duration = Duration::from_millis(40);

/// How long a waiter sleeps at most before it asks again: three times within its patience.
const RECHECK: Duration = Duration::from_secs(5);

/// The pause between calls while the server cannot be reached.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// What is waited for: how to ask, and what answers and messages mean.
pub(crate) trait Target {
    type Answer;
    type Granted;
    type Error: From<CallError>;

    /// The call that asks; `inbox` is where messages go.
    fn call(&self, ask: Ask, inbox: &str) -> Packed;

    fn answer(&self, ask: Ask, reply: Value) -> Result<Self::Answer, CallError>;

    /// What an answer to a call sent at `sent` means.
    fn answered(&mut self, ask: Ask, answer: Self::Answer, sent: Moment) -> StepOf<Self>;

    /// What a message means.
    fn heard(&mut self, message: &Message, received: Moment, now: Moment) -> StepOf<Self>;

    /// It may be worth asking, from when on.
    fn called(&mut self, now: Instant) -> Instant;

    /// The server knows of this wait.
    fn is_queued(&self) -> bool;

    fn cancelled(&self) -> Self::Error;

    fn timed_out(&self) -> Self::Error;

    /// A grant that may be another caller's was not confirmed by a message.
    fn unconfirmed(&self) -> Self::Error;

    /// Whether what the id has may be another caller's, who did not ask to give it back.
    fn is_foreign(error: &Self::Error) -> bool;
}

/// How a waiter asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Without an inbox, since most often none is needed.
    First,
    InLine,
    /// The time is over: takes the grant that was under way, or gives the place up.
    Last,
}

/// What came of an answer or a message.
pub(crate) enum Step<G, E> {
    /// Goes on, and asks at this time.
    AskAt(Instant),
    /// Goes on, and asks at this time, or earlier if that is planned.
    AskBy(Instant),
    /// Goes on as planned.
    Continue,
    /// Waits for a message that says whose grant it is, until then.
    Confirm(Instant),
    Done(Result<G, E>),
    /// Ends, and gives back whatever the id has.
    GiveBack(E),
}

pub(crate) type StepOf<T> = Step<<T as Target>::Granted, <T as Target>::Error>;

/// What a driver reports.
pub(crate) enum Event<A> {
    Answered {
        answer: A,
        sent: Moment,
    },
    Unanswered(CallError),
    /// Signed with the secret of this wait.
    Message {
        message: Message,
        received: Moment,
    },
    /// It is worth asking: messages may have been missed, or a latch may have opened.
    Called,
    Cancelled,
    /// The sleep is over.
    Timer,
}

/// What a driver does next.
pub(crate) enum Action<G, E> {
    /// Sends a call, and is back at `until`.
    Ask { ask: Ask, until: Option<Instant> },
    /// Sleeps until then, or an event. `is_due`: what it waits for is on its way.
    Sleep { until: Instant, is_due: bool },
    /// The wait is over.
    Done { result: Result<G, E>, give_back: GiveBack },
}

/// What is given back at the end of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GiveBack {
    /// What the server gave the id, within the time of the last call.
    pub(crate) now: bool,
    /// What a call without an answer may still bring: in the background, behind that call.
    pub(crate) later: bool,
}

pub(crate) type ActionOf<T> = Action<<T as Target>::Granted, <T as Target>::Error>;

/// One wait.
#[derive(Clone, Debug)]
pub(crate) struct Waiter<T> {
    pub(crate) target: T,
    pub(crate) deadline: Option<Instant>,
    /// How long it goes on while the server cannot be reached.
    outage: Duration,
    pub(crate) state: State,
    pub(crate) next_ask: Instant,
    pub(crate) unreachable_since: Option<Instant>,
    /// A call was not answered: it may still reach the server, after this wait is over.
    pub(crate) may_come_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Sleeps,
    Asks(Ask),
    Confirms,
}

impl<T: Target> Waiter<T> {
    pub(crate) fn new(target: T, deadline: Option<Instant>, outage: Duration, now: Instant) -> Waiter<T> {
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

    /// The first action; `listens`: there is an inbox already.
    pub(crate) fn start(&mut self, listens: bool) -> ActionOf<T> {
        match listens {
            true => self.sleep(),
            false => self.ask(Ask::First),
        }
    }

    /// What to do after an event.
    pub(crate) fn on(&mut self, event: Event<T::Answer>, now: Moment) -> ActionOf<T> {
        match (self.state, event) {
            (State::Confirms, Event::Timer | Event::Cancelled) => {
                let unconfirmed = self.target.unconfirmed();
                self.done(Err(unconfirmed), GiveBack::default())
            }
            (State::Confirms, Event::Called) => self.sleep_until(self.next_ask, true),
            (_, Event::Cancelled) => {
                let give_back = GiveBack { now: self.target.is_queued(), later: self.may_come_late };
                self.done(Err(self.target.cancelled()), give_back)
            }
            (_, Event::Called) => {
                let at = self.target.called(now.instant());
                self.next_ask = self.next_ask.min(at);
                self.sleep()
            }
            (_, Event::Message { message, received }) => {
                let step = self.target.heard(&message, received, now);
                self.go_on(step)
            }
            (State::Asks(ask), Event::Answered { answer, sent }) => {
                self.unreachable_since = None;
                let step = self.target.answered(ask, answer, sent);
                self.go_on(step)
            }
            (State::Asks(ask), Event::Unanswered(error)) => self.unanswered(ask, error, now),
            // Only a driver that asked reports an answer.
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
            Step::Continue => match self.state {
                State::Confirms => self.sleep_until(self.next_ask, true),
                State::Sleeps | State::Asks(_) => self.sleep(),
            },
            Step::AskAt(at) => {
                self.next_ask = at;
                self.sleep()
            }
            Step::AskBy(at) => {
                self.next_ask = self.next_ask.min(at);
                self.sleep()
            }
            Step::Confirm(until) => {
                self.state = State::Confirms;
                self.next_ask = until;
                self.sleep_until(until, true)
            }
            Step::Done(result) => {
                let give_back = GiveBack { now: false, later: result.is_err() && self.may_come_late };
                self.done(result, give_back)
            }
            Step::GiveBack(error) => {
                let give_back = GiveBack { now: true, later: self.may_come_late };
                self.done(Err(error), give_back)
            }
        }
    }

    /// A call failed. A wait that has a place goes on for a while when the server cannot be reached.
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
        // The server answered until just now: the time was over before the answer came, and that is what counts.
        let answered_until_now = failing.is_none_or(|failing| failing <= LAST_CALL);
        let result = match is_over && is_queued && answered_until_now && is_late(&error) {
            true => self.target.timed_out(),
            false => error.into(),
        };
        self.done(Err(result), give_back)
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
        let until = self.deadline.map_or(self.next_ask, |end| end.min(self.next_ask));
        self.sleep_until(until, false)
    }

    fn sleep_until(&self, until: Instant, is_due: bool) -> ActionOf<T> {
        Action::Sleep { until, is_due }
    }

    fn done(&self, result: Result<T::Granted, T::Error>, give_back: GiveBack) -> ActionOf<T> {
        let is_foreign = result.as_ref().is_err_and(T::is_foreign);
        let give_back = match is_foreign {
            true => GiveBack::default(),
            false => give_back,
        };
        Action::Done { result, give_back }
    }
}

/// Whether the time was too short for the call: also where no connection could be made in what was left.
fn is_late(error: &CallError) -> bool {
    let (CallError::Failed(failure) | CallError::Unknown(failure)) = error else {
        return false;
    };
    use FailureKind::{PoolExhausted, TimedOut, Unreachable};
    matches!(failure.kind(), TimedOut | PoolExhausted | Unreachable)
}
