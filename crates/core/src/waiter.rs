//! One wait as a state machine, from its first call to its end. A wait is for permits or for a latch.
//!
//! The driver executes an [`Action`] and reports the result as an [`Event`]. All rules of waiting are in this
//! module: when to ask again, how long to retry while the server cannot be reached, what to do when the time
//! is over, and what to give back.

use super::call::{Call, Packed};
use super::held::Identity;
use super::id::check_id;
use super::inbox::{Mail, Message};
use super::keys::Keys;
use super::lease::{Deadline, LeaseOptions, Moment, Sent, ServerTime};
use super::release::{LostCalls, PendingRelease};
use super::reply::between;
use super::script::Scripts;
use super::semaphore::{self, Acquire, AcquireAnswer, Grant, Usage};
use crate::failure::{CallError, Failure, Reason};
use crate::invalid::Invalid;
use crate::kind::FailureKind;
use crate::value::Value;
use std::time::{Duration, Instant};

/// The waiter's deadline on the server, as time after each call: a waiter that does not ask again leaves the
/// line then. So a waiter whose process has ended leaves the line within this time.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How much longer than the wait's deadline its last call may take.
pub const LAST_CALL: Duration = Duration::from_millis(30);

/// How long a call near the deadline may take at least, also if its thread woke up late.
const SHORTEST_CALL: Duration = Duration::from_millis(15);

/// How long a waiter sleeps at most before it asks again: three calls within its patience.
pub const RECHECK: Duration = Duration::from_secs(5);

/// The pause between calls while the server cannot be reached.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// The object of a wait: how to ask for it, and the meaning of answers and messages.
pub trait WaitTarget {
    type Answer;
    type Granted;
    type Error: From<CallError>;

    /// The call that asks. Messages are sent to `inbox`.
    fn call(&self, ask: AskKind, inbox: &str, scripts: &'static Scripts) -> Packed;

    fn answer(&self, ask: AskKind, reply: Value) -> Result<Self::Answer, CallError>;

    /// Handles the answer to a call.
    fn answered(&mut self, ask: AskKind, answer: Self::Answer, sent: Sent, now: Moment) -> StepOf<Self>;

    /// Handles a message.
    fn message(&mut self, message: &Message, received: Moment, now: Moment) -> StepOf<Self>;

    /// Handles a hint to ask again. Returns when to ask.
    fn hint(&mut self, now: Instant) -> Instant;

    /// Whether the server has stored this wait.
    fn is_queued(&self) -> bool;

    /// Whether a first call that may have run can be made again: its answer has the same meaning then.
    fn is_repeatable(&self) -> bool;

    fn cancelled(&self) -> Self::Error;

    fn timed_out(&self) -> Self::Error;

    /// The release of everything that the server may have granted to this wait. `None`: it grants nothing.
    fn give_back<C>(&self, lost: LostCalls<C>, now: Instant) -> Option<PendingRelease<C>>;

    /// Whether a late release would change this answer.
    fn doubts(&self, ask: AskKind, answer: &Self::Answer, sent: Sent) -> bool;

    /// Whether a release that precedes the call has run after it.
    fn is_overtaken(&self, answer: &Self::Answer) -> bool;

    /// The client has released permits of this id, up to this fence; 0: none.
    fn has_released(&mut self, fence: u64);

    /// The ticket with which another wait can take this place in line, once this wait has left it. 0: none.
    fn kept_ticket(&self) -> u64;
}

/// The kinds of calls by which a waiter asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskKind {
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
    End(E),
    /// End, and give back everything that the id has.
    GiveBack(E),
}

pub type StepOf<T> = Step<<T as WaitTarget>::Granted, <T as WaitTarget>::Error>;

/// An event that the driver reports.
pub enum Event<A> {
    Answered {
        answer: A,
        sent: Sent,
    },
    Unanswered(CallError),
    /// Mail that arrived while the driver slept. A message is signed with the secret of this wait.
    Mail(Mail),
}

/// The next action of the driver.
pub enum Action<G, E> {
    /// Send a call. Stop waiting for its reply at `until`.
    Ask { ask: AskKind, until: Option<Instant> },
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

pub type ActionOf<T> = Action<<T as WaitTarget>::Granted, <T as WaitTarget>::Error>;

/// One wait.
#[derive(Clone, Debug)]
pub struct Waiter<T> {
    pub target: T,
    pub deadline: Option<Instant>,
    /// How long this wait continues while the server cannot be reached.
    outage: Duration,
    pub state: WaiterState,
    pub next_ask: Instant,
    pub unreachable_since: Option<Instant>,
    /// A call was not answered. It may still reach the server after the end of this wait.
    pub may_come_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaiterState {
    Sleeps,
    Asks(AskKind),
}

impl<T: WaitTarget> Waiter<T> {
    pub fn new(target: T, deadline: Option<Instant>, outage: Duration, now: Instant) -> Waiter<T> {
        Waiter {
            target,
            deadline,
            outage,
            state: WaiterState::Sleeps,
            next_ask: now,
            unreachable_since: None,
            may_come_late: false,
        }
    }

    /// Whether the server may have stored something for this wait, which must be given back if the driver
    /// drops it now.
    pub fn may_leave_something(&self) -> bool {
        match self.state {
            WaiterState::Sleeps => self.may_come_late || self.target.is_queued(),
            WaiterState::Asks(_) => true,
        }
    }

    /// The first action. `listens`: the inbox is ready.
    pub fn start(&mut self, listens: bool) -> ActionOf<T> {
        if listens { self.sleep() } else { self.ask(AskKind::First, self.next_ask) }
    }

    /// The next action after an event.
    pub fn on(&mut self, event: Event<T::Answer>, now: Moment) -> ActionOf<T> {
        match (self.state, event) {
            (_, Event::Mail(Mail::Cancelled)) => {
                let give_back = GiveBack { now: self.target.is_queued(), later: self.may_come_late };
                Action::Done { result: Err(self.target.cancelled()), give_back }
            }
            (_, Event::Mail(Mail::Called)) => {
                let at = self.target.hint(now.instant());
                self.ask_by(at)
            }
            (_, Event::Mail(Mail::Message { message, received })) => {
                let step = self.target.message(&message, received, now);
                self.go_on(step)
            }
            (WaiterState::Asks(ask), Event::Answered { answer, sent }) => {
                self.unreachable_since = None;
                let sent = if fault!("a lease counts from the reply to its call") {
                    Sent { at: now, ..sent }
                } else {
                    sent
                };
                let step = self.target.answered(ask, answer, sent, now);
                self.go_on(step)
            }
            (WaiterState::Asks(ask), Event::Unanswered(error)) => self.unanswered(ask, error, now),
            // An answer without a call in progress; a correct driver never reports one.
            (_, Event::Answered { .. } | Event::Unanswered(_)) => self.sleep(),
            (_, Event::Mail(Mail::Timer))
                if self.is_over(now.instant()) && fault!("a waiter stays in line after its time") =>
            {
                Action::Done { result: Err(self.target.timed_out()), give_back: GiveBack::default() }
            }
            (_, Event::Mail(Mail::Timer)) if self.is_over(now.instant()) => {
                self.ask(AskKind::Last, now.instant())
            }
            (_, Event::Mail(Mail::Timer)) => self.ask(AskKind::InLine, now.instant()),
        }
    }

    fn go_on(&mut self, step: StepOf<T>) -> ActionOf<T> {
        match step {
            Step::Continue => self.sleep(),
            Step::AskAt(at) => {
                self.next_ask = at;
                self.sleep()
            }
            Step::AskBy(at) => self.ask_by(at),
            Step::Done(result) => {
                let give_back = GiveBack { now: false, later: result.is_err() && self.may_come_late };
                Action::Done { result, give_back }
            }
            Step::End(error) => Action::Done { result: Err(error), give_back: GiveBack::default() },
            Step::GiveBack(error) => {
                let give_back = GiveBack { now: true, later: self.may_come_late };
                Action::Done { result: Err(error), give_back }
            }
        }
    }

    /// Continues to wait; asks at this time, or earlier if that is planned.
    fn ask_by(&mut self, at: Instant) -> ActionOf<T> {
        if !fault!("a hint to ask sooner is ignored") {
            self.next_ask = self.next_ask.min(at);
        }
        self.sleep()
    }

    /// Handles a failed call. A wait continues for a while if the server refuses it only for now; with a
    /// place in line also if the server cannot be reached.
    fn unanswered(&mut self, ask: AskKind, error: CallError, now: Moment) -> ActionOf<T> {
        let now = now.instant();
        let is_over = ask == AskKind::Last || self.is_over(now);
        let failing = self.unreachable_since.map(|since| now.saturating_duration_since(since));
        let may_have_run = matches!(error, CallError::Unknown(_));
        self.may_come_late |= may_have_run && !fault!("a call that may have run counts as failed");
        let is_queued = self.target.is_queued();
        let passes = error.failure().is_some_and(|failure| match ask {
            AskKind::InLine if is_queued => failure.keeps_place(),
            _ => failure.is_refusal_for_now() && (!may_have_run || self.target.is_repeatable()),
        });
        if passes && !is_over && failing.unwrap_or_default() < self.outage {
            self.unreachable_since.get_or_insert(now);
            self.next_ask = now + OUTAGE_PAUSE;
            return self.sleep();
        }
        let give_back = GiveBack { now: false, later: self.may_come_late || is_queued };
        // The server answered until just now. So the call failed because the time was over, and that is the
        // error to return.
        let answered_until_now = failing.is_none_or(|failing| failing <= LAST_CALL);
        let error = if is_over && is_queued && answered_until_now && error.is_late() {
            self.target.timed_out()
        } else {
            error.into()
        };
        Action::Done { result: Err(error), give_back }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|end| end <= now)
    }

    fn ask(&mut self, ask: AskKind, now: Instant) -> ActionOf<T> {
        self.state = WaiterState::Asks(ask);
        let until = last_call_ends(self.deadline).map(|end| end.max(now + SHORTEST_CALL));
        Action::Ask { ask, until }
    }

    /// Until when a release at the end of this wait may take.
    pub fn give_back_ends(&self, now: Instant) -> Instant {
        let end = now + LAST_CALL;
        last_call_ends(self.deadline).map_or(end, |last| last.min(end))
    }

    fn sleep(&mut self) -> ActionOf<T> {
        self.state = WaiterState::Sleeps;
        Action::Sleep { until: self.deadline.map_or(self.next_ask, |end| end.min(self.next_ask)) }
    }
}

/// When the last call of a wait with this deadline ends. `None`: at no time.
pub fn last_call_ends(deadline: Option<Instant>) -> Option<Instant> {
    deadline?.checked_add(LAST_CALL)
}

/// The permits that a caller asks for, and the state of its place in line.
#[derive(Clone, Debug)]
pub struct PermitTarget {
    pub keys: Keys,
    pub id: String,
    /// `None`: all that are free.
    pub permits: Option<u32>,
    /// 0: the caller declares none, the stored limit applies.
    pub limit: u32,
    /// Refuses a grant under another limit than `limit`.
    pub strict: bool,
    /// Joins the line only while fewer than this number wait; 0: no maximum.
    pub max_waiting: u32,
    /// Joins the line as if it had come that much earlier.
    pub head_start_ms: u64,
    pub lease: LeaseOptions,
    pub entry: QueueEntry,
}

#[derive(Clone, Debug, Default)]
pub struct QueueEntry {
    /// 0: it has not been in line. Before the first reply: the place that an earlier wait gave up.
    pub ticket: u64,
    pub position: u64,
    usage: Usage,
    /// When the last answered call was sent, and the server's time in its reply.
    pub asked: Option<(Moment, ServerTime)>,
    /// Fences of grant messages that were not sufficient; a call must confirm the grant.
    pub received_fences: Vec<u64>,
    /// Permits of this id with this fence, or a lower one, are released: 0, or one whose release is posted.
    pub floor: u64,
    /// Its permit had ended when the grant arrived.
    pub came_late: bool,
}

/// How full a semaphore is.
#[derive(Clone, Copy, Debug)]
pub struct Denied {
    pub usage: Usage,
    /// How many callers wait in line.
    pub waiting: u64,
    /// The time in ms until the next lease ends. `None`: never.
    pub next_expiry: Option<u64>,
}

/// Why a call, or a wait, ended without a permit.
#[derive(Clone, Debug)]
pub enum NotGranted {
    /// The time ended, or the caller does not wait.
    TimedOut(Denied),
    LineFull(Denied),
    /// `ticket`: that of the place in line, if the caller was there.
    Cancelled {
        ticket: Option<u64>,
    },
    /// The place in line was taken away.
    Revoked,
    /// The id holds a permit of another caller.
    AlreadyHeld {
        permits: u32,
        fence: u64,
    },
    LimitMismatch {
        declared: u32,
        in_force: u32,
    },
    AboveLimit {
        permits: u32,
        limit: u32,
    },
    Unanswered(CallError),
}

impl From<CallError> for NotGranted {
    fn from(error: CallError) -> NotGranted {
        NotGranted::Unanswered(error)
    }
}

/// A permit that was granted.
pub struct Granted {
    pub identity: Identity,
    pub grant: Grant,
    /// The limit in force. 0: the server did not report it.
    pub limit: u32,
    pub deadline: Deadline,
    /// The ticket of its place in line; `None`: it did not wait.
    pub ticket: Option<u64>,
}

impl Granted {
    /// A permit that a call sent at `sent` was granted, without a wait.
    pub fn new(
        keys: &Keys,
        id: &str,
        lease: LeaseOptions,
        grant: Grant,
        limit: u32,
        sent: Moment,
    ) -> Granted {
        let identity = Identity { keys: keys.clone(), id: id.to_owned(), fence: grant.fence, lease };
        Granted { identity, grant, limit, deadline: Deadline::after(sent, grant.left()), ticket: None }
    }

    /// Fails if the permit has ended, so that no caller gets it.
    pub fn not_ended(self, now: Moment) -> Result<Granted, CallError> {
        if self.deadline.is_past(now) && !fault!("a permit that has ended is returned") {
            return Err(ended_before_reply());
        }
        Ok(self)
    }
}

impl PermitTarget {
    /// Reports arguments that are invalid for every server.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.permits == Some(0) {
            return Err(Invalid::new("permits", "got 0. Accepted: 1 to the limit"));
        }
        if self.lease.own_id {
            check_id(&self.id)?;
        }
        Ok(())
    }

    /// The same permits for a new wait, which has the place in line of this one.
    pub fn again(&self) -> PermitTarget {
        PermitTarget {
            entry: QueueEntry { ticket: self.entry.ticket, ..QueueEntry::default() },
            ..self.clone()
        }
    }

    /// The call that asks for the permits.
    pub fn acquire<'a>(&'a self, ask: AskKind, inbox: &'a str) -> Acquire<'a> {
        let wait = match ask {
            AskKind::InLine => PATIENCE,
            AskKind::First | AskKind::Last => Duration::ZERO,
        };
        Acquire {
            keys: &self.keys,
            ask: semaphore::Ask {
                id: &self.id,
                permits: self.permits,
                limit: self.limit,
                lease_ms: self.lease.first_lease_ms(),
                wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                inbox,
                ticket: self.entry.ticket,
                max_waiting: if fault!("the bound on the line is ignored") { 0 } else { self.max_waiting },
                at_least_ms: if fault!("the minimum hold is ignored") { 0 } else { self.lease.at_least_ms },
                head_start_ms: self.head_start_ms,
            },
        }
    }

    /// Handles the answer to a caller that does not wait. `true`: everything that the id has must be given
    /// back.
    pub fn at_once(
        &mut self,
        answer: AcquireAnswer,
        sent: Sent,
        now: Moment,
    ) -> (Result<Granted, NotGranted>, bool) {
        if let AcquireAnswer::Denied { usage, .. } = answer
            && let Err(mismatch) = self.check_limit(usage.limit)
        {
            return (Err(mismatch), false);
        }
        let step = self.answered(AskKind::Last, answer, sent, now);
        let gives_back = matches!(step, Step::GiveBack(_));
        let result = match step {
            Step::Done(result) => result,
            Step::End(error) | Step::GiveBack(error) => Err(error),
            Step::AskAt(_) | Step::AskBy(_) | Step::Continue => {
                Err(CallError::Unknown(Failure::queued_out_of_turn()).into())
            }
        };
        (result, gives_back)
    }

    /// The release of everything that the id may have, since the fence is unknown.
    pub fn release<C>(&self, lost: LostCalls<C>, now: Instant) -> PendingRelease<C> {
        PendingRelease::of_call(&self.keys, &self.id, self.lease.own_id, lost, self.longest(), now)
    }

    /// The time after which the server has freed the id by itself, if no call follows: a place in line may be
    /// granted at its end.
    pub fn longest(&self) -> Duration {
        PATIENCE.saturating_add(Duration::from_millis(self.lease.first_lease_ms()))
    }

    fn granted(&self, grant: Grant, limit: u32, sent: Moment) -> Granted {
        Granted {
            ticket: self.ticket(),
            ..Granted::new(&self.keys, &self.id, self.lease, grant, limit, sent)
        }
    }

    /// `None`: it has not been in line.
    fn ticket(&self) -> Option<u64> {
        Some(self.entry.ticket).filter(|ticket| *ticket > 0)
    }

    /// Fails if a strict caller does not accept this limit.
    fn check_limit(&self, in_force: u32) -> Result<(), NotGranted> {
        match self.limit {
            declared if self.strict && declared != 0 && declared != in_force => {
                Err(NotGranted::LimitMismatch { declared, in_force })
            }
            _ => Ok(()),
        }
    }

    /// Whether a permit that the id holds was granted to this caller. Its message or reply was lost then. An
    /// id has one place in line or one permit, whoever chose it, so the grant to a wait that is in line is
    /// its own. A fence that is not above its ticket is of an earlier permit, which the server has restored.
    ///
    /// A caller that is not in line has its own grant if a reply was lost, and the permit was granted since
    /// the first attempt. This time includes the way of the reply, so a permit that was granted shortly
    /// before would fit too. But such a permit of this client is released, and its fence is known.
    fn is_own(&self, grant: &Grant, repeated: Option<Duration>, floor: u64) -> bool {
        let is_of_place = self.is_queued()
            && self.is_new(grant.fence)
            && !fault!("a wait takes its own grant for another one");
        let is_of_attempt = || repeated.zip(grant.age()).is_some_and(|(repeated, age)| age <= repeated);
        !self.lease.own_id || grant.fence > floor && (is_of_place || is_of_attempt())
    }

    /// Whether a late release would change this answer. `floor`: as in [`QueueEntry`].
    pub fn is_doubtful(
        &self,
        ask: AskKind,
        answer: &AcquireAnswer,
        repeated: Option<Duration>,
        floor: u64,
    ) -> bool {
        match answer {
            AcquireAnswer::Denied { .. } => ask != AskKind::First, // it joins the line next
            AcquireAnswer::Held(grant, _) => !self.is_own(grant, repeated, floor),
            AcquireAnswer::Granted(..) | AcquireAnswer::Queued { .. } | AcquireAnswer::AboveLimit { .. } => {
                false
            }
        }
    }

    /// Whether a release that precedes this call has run after it, on another connection: the answer is of a
    /// permit that this client releases.
    pub fn is_of_released(&self, answer: &AcquireAnswer, floor: u64) -> bool {
        matches!(answer, AcquireAnswer::Held(grant, _) if self.lease.own_id && grant.fence <= floor)
    }

    /// Whether the server gave this fence after the place in line: the ticket is the next fence of that time,
    /// lower by the head start. An earlier process may have joined under the same id with a smaller head
    /// start. Then the fence is also new if it was given after the last reply.
    fn is_new(&self, fence: u64) -> bool {
        let ticket = self.entry.ticket;
        let joined = ticket.saturating_add(self.head_start_ms.saturating_mul(1_000));
        let replied = self.entry.asked.map_or(joined, |(_, now)| now.saturating_mul(1_000));
        fence > joined.min(replied.max(ticket))
    }

    /// A permit that had ended when its grant arrived is given back.
    fn valid(&mut self, granted: Granted, now: Moment) -> StepOf<PermitTarget> {
        let granted = granted.not_ended(now);
        self.entry.came_late = granted.is_err();
        granted.map_or_else(|error| Step::GiveBack(error.into()), |granted| Step::Done(Ok(granted)))
    }

    /// A hint to ask again, or a message that the place in line was taken away.
    fn hinted(&mut self, message: &Message, asked: (Moment, ServerTime)) -> StepOf<PermitTarget> {
        let (sent, server_time) = asked;
        // The message is older than the last answer, and contains nothing new. So a subscriber that replays
        // messages cannot cause calls.
        if message.now < server_time {
            return Step::Continue;
        }
        match message.at {
            // A call that was sent before this message arrived may have restored the place.
            None => Step::GiveBack(NotGranted::Revoked),
            Some(at) => match sent.instant().checked_add(between(server_time, at)) {
                Some(at) => Step::AskBy(at),
                None => Step::Continue,
            },
        }
    }
}

impl WaitTarget for PermitTarget {
    type Answer = AcquireAnswer;
    type Granted = Granted;
    type Error = NotGranted;

    fn call(&self, ask: AskKind, inbox: &str, scripts: &'static Scripts) -> Packed {
        self.acquire(ask, inbox).pack(scripts)
    }

    fn answer(&self, ask: AskKind, reply: Value) -> Result<AcquireAnswer, CallError> {
        self.acquire(ask, "").answer(reply)
    }

    fn answered(
        &mut self,
        ask: AskKind,
        answer: AcquireAnswer,
        Sent { at: sent, repeated }: Sent,
        now: Moment,
    ) -> StepOf<PermitTarget> {
        match answer {
            AcquireAnswer::Held(grant @ Grant { permits, fence, .. }, _)
                if !self.is_own(&grant, repeated, self.entry.floor) =>
            {
                Step::End(NotGranted::AlreadyHeld { permits, fence })
            }
            AcquireAnswer::Granted(grant, usage) | AcquireAnswer::Held(grant, usage) => {
                if let Err(mismatch) = self.check_limit(usage.limit) {
                    return Step::GiveBack(mismatch);
                }
                let granted = self.granted(grant, usage.limit, sent);
                self.valid(granted, now)
            }
            AcquireAnswer::Queued { ticket, position, retry_after, usage, now } if ask == AskKind::InLine => {
                if let Err(mismatch) = self.check_limit(usage.limit) {
                    return Step::GiveBack(mismatch);
                }
                let entry = &mut self.entry;
                (entry.position, entry.usage) = (position, usage);
                if !fault!("the ticket is forgotten") {
                    entry.ticket = ticket;
                }
                entry.asked = Some((sent, now));
                let pause = Duration::from_millis(retry_after).min(RECHECK);
                Step::AskAt(sent.instant() + pause)
            }
            AcquireAnswer::Queued { .. } => {
                Step::Done(Err(CallError::Unknown(Failure::queued_out_of_turn()).into()))
            }
            AcquireAnswer::Denied { .. } if ask == AskKind::First => Step::AskAt(sent.instant()),
            AcquireAnswer::Denied { next_expiry, usage, waiting, .. } => {
                let denied = Denied { usage, waiting, next_expiry };
                Step::Done(Err(match ask {
                    AskKind::InLine if !fault!("a full line is a timeout") => NotGranted::LineFull(denied),
                    AskKind::First | AskKind::InLine | AskKind::Last => NotGranted::TimedOut(denied),
                }))
            }
            AcquireAnswer::AboveLimit { limit, .. } => {
                let permits = self.permits.unwrap_or(1);
                Step::Done(Err(NotGranted::AboveLimit { permits, limit }))
            }
        }
    }

    fn message(&mut self, message: &Message, received: Moment, now: Moment) -> StepOf<PermitTarget> {
        let Some(asked) = self.entry.asked else {
            return Step::Continue; // from before this wait
        };
        if message.fence == 0 {
            return self.hinted(message, asked);
        }
        let is_new = self.is_new(message.fence);
        let entry = &mut self.entry;
        if !is_new || entry.received_fences.contains(&message.fence) {
            return Step::Continue; // for an earlier place in line, or repeated
        }
        entry.received_fences.push(message.fence);
        // Two bounds for the same end: a delayed message must not extend the lease.
        let (sent, server_time) = asked;
        let by_call = Deadline::after(sent, message.at.map(|end| between(server_time, end)));
        let by_message = Deadline::after(received, message.at.map(|end| between(message.now, end)));
        let deadline =
            if fault!("a lease counts from its message") { by_message } else { by_call.earlier(by_message) };
        let grant = Grant {
            permits: message.permits,
            fence: message.fence,
            expires_at: message.at,
            now: message.now,
        };
        let granted = Granted { deadline, ..self.granted(grant, self.entry.usage.limit, sent) };
        // Older than the last answer: the grant was taken away again, or the server's clock was set back.
        let is_old = message.now < server_time && !fault!("a grant that was taken away is accepted");
        // A message does not contain the limit. Another number of permits than requested needs a call too.
        let is_other = self.permits != Some(message.permits);
        if is_old || self.strict || is_other {
            return Step::AskBy(now.instant());
        }
        self.valid(granted, now)
    }

    fn hint(&mut self, now: Instant) -> Instant {
        now
    }

    fn is_queued(&self) -> bool {
        self.entry.asked.is_some()
    }

    /// An id that the caller has chosen may hold a permit of another caller.
    fn is_repeatable(&self) -> bool {
        !self.lease.own_id
    }

    fn cancelled(&self) -> NotGranted {
        NotGranted::Cancelled { ticket: self.ticket() }
    }

    fn timed_out(&self) -> NotGranted {
        let QueueEntry { usage, position, .. } = self.entry;
        NotGranted::TimedOut(Denied { usage, waiting: position, next_expiry: None })
    }

    fn give_back<C>(&self, lost: LostCalls<C>, now: Instant) -> Option<PendingRelease<C>> {
        Some(self.release(lost, now))
    }

    fn doubts(&self, ask: AskKind, answer: &AcquireAnswer, sent: Sent) -> bool {
        self.is_doubtful(ask, answer, sent.repeated, self.entry.floor)
    }

    fn is_overtaken(&self, answer: &AcquireAnswer) -> bool {
        self.is_of_released(answer, self.entry.floor)
    }

    fn has_released(&mut self, fence: u64) {
        self.entry.floor = self.entry.floor.max(fence);
    }

    /// The release of an id of the application looks up what it finds. A new place with the same ticket could
    /// be taken for the old one.
    fn kept_ticket(&self) -> u64 {
        if self.lease.own_id { 0 } else { self.entry.ticket }
    }
}

/// The reply or the message took longer than the lease.
fn ended_before_reply() -> CallError {
    CallError::Failed(Failure::because(FailureKind::TimedOut, Reason::EndedBeforeGrant))
}
