//! Asking for a permit: at once, or in line until it is granted, the time is over, or the wait is cancelled.

use crate::cancel::Cancel;
use crate::connections::{Unanswered, Wire};
use crate::engine::Engine;
use crate::error::{
    AcquireError, AlreadyHeld, CallError, Cancelled, Denied, Invalid, LimitMismatch,
    TryAcquireError,
};
use crate::failure::{Failure, FailureKind};
use crate::holding::{Holding, Terms};
use crate::inbox::{Inbox, Message, News, Wait};
use crate::lease::{self, Deadline, Moment};
use crate::name::{self, Keys};
use crate::permit::Permit;
use crate::scripts::between;
use crate::scripts::semaphore::{self, Answer, Ask, Grant, Usage};
use redis::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a waiter stays in line unless it asks again. One that crashed leaves the queue within this.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a waiter sleeps at most before it asks again: three times within its patience.
const RECHECK: Duration = Duration::from_secs(5);

/// How long it sleeps at most for each that stands in front: so the second in line finds out within a second that the
/// first is dead, and takes its place in time for the next lease that ends.
const RECHECK_A_PLACE: Duration = Duration::from_secs(1);

/// How much longer than the deadline the last call of a wait may take.
const LAST_WORD: Duration = Duration::from_millis(40);

/// How long to wait between calls while the server cannot be reached.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// The highest limit.
const MOST: u32 = i32::MAX as u32;

/// Everything that one acquire needs to know.
pub(crate) struct Request {
    pub(crate) engine: Arc<Engine>,
    pub(crate) keys: Keys,
    pub(crate) id: String,
    /// `None`: all that are free.
    pub(crate) permits: Option<u32>,
    pub(crate) limit: u32,
    pub(crate) strict: bool,
    pub(crate) terms: Terms,
    pub(crate) cancel: Option<Cancel>,
}

/// What an answer comes to for this request.
enum Outcome {
    Granted(Grant, Usage),
    HeldByOther(Grant),
    Queued {
        ticket: u64,
        position: u64,
        sleep: Duration,
        now: u64,
        usage: Usage,
    },
    Denied(Denied),
}

/// Where a wait stands.
struct Place {
    /// 0: not in line yet.
    ticket: u64,
    position: u64,
    usage: Usage,
    /// When the last call that was answered was sent, and the server's time at its reply.
    asked: Option<(Moment, u64)>,
    next_ask: Instant,
    /// Fences of grants that were heard of, but have to be asked for.
    heard: Vec<u64>,
    unreachable_since: Option<Instant>,
    /// The connection of the last call that was not answered: it may still reach the server, after this wait is over.
    unanswered: Option<Box<Wire>>,
}

impl Place {
    fn new() -> Place {
        Place {
            ticket: 0,
            position: 0,
            usage: Usage {
                in_use: 0,
                limit: 0,
            },
            asked: None,
            next_ask: Instant::now(),
            heard: Vec::new(),
            unreachable_since: None,
            unanswered: None,
        }
    }

    fn ticket(&self) -> Option<u64> {
        (self.ticket > 0).then_some(self.ticket)
    }
}

impl Request {
    /// Asks once; granted or not, nothing stays behind. Blocks for one round trip.
    pub(crate) fn at_once(self) -> Result<Permit, TryAcquireError> {
        self.prepare()?;
        let (outcome, sent) = self
            .ask(None, 0, "", Duration::ZERO)
            .map_err(|unanswered| self.abandon(unanswered, false))?;
        match outcome {
            Outcome::Granted(grant, usage) => {
                self.refuse_under(usage.limit)?;
                Ok(self.permit(grant, usage, Deadline::told(sent, grant.left()), None)?)
            }
            Outcome::HeldByOther(grant) => Err(TryAcquireError::AlreadyHeld(self.held(&grant))),
            Outcome::Denied(denied) => {
                self.accept(denied.limit)?;
                Err(TryAcquireError::Denied(denied))
            }
            Outcome::Queued { .. } => Err(out_of_turn().into()),
        }
    }

    /// Asks in line, until `deadline` at the latest.
    pub(crate) fn in_line(self, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        self.prepare()?;
        let Some(wait) = self.engine.inbox.register(&self.keys, &self.id) else {
            let why = format!("{} waits here already; an id asks once at a time", self.id);
            return Err(Invalid::new("id", why).into());
        };
        let wait = Registered {
            inbox: &self.engine.inbox,
            wait,
        };
        if let Some(cancel) = &self.cancel {
            cancel.watch(&wait.wait);
        }
        let mut place = Place::new();
        let result = self.wait(&wait.wait, &mut place, deadline);
        if result.is_err()
            && let Some(wire) = place.unanswered
        {
            // A call without an answer may still be on its way there, and would be granted to nobody.
            self.release_later(Some(wire));
        }
        result
    }

    fn wait(
        &self,
        wait: &Wait,
        place: &mut Place,
        deadline: Option<Instant>,
    ) -> Result<Permit, AcquireError> {
        // The first wait of a gate asks without standing in line: most often no inbox is needed at all.
        if !self.engine.inbox.is_opened() && !wait.is_cancelled() {
            let until = deadline.and_then(|end| end.checked_add(LAST_WORD));
            let (outcome, sent) = self
                .ask(until, 0, "", Duration::ZERO)
                .map_err(|unanswered| self.abandon(unanswered, false))?;
            if !matches!(outcome, Outcome::Denied(_)) {
                return self.conclude(wait, outcome, sent, place);
            }
        }
        loop {
            // Whatever came while the last answer was on its way is heard first; then it is time to ask, or to leave.
            let until = deadline.map_or(place.next_ask, |end| end.min(place.next_ask));
            match wait.hear(until) {
                News::Cancelled => return Err(self.cancelled(place)),
                News::Resubscribed if place.ticket > 0 => place.next_ask = Instant::now(),
                News::Resubscribed => {}
                News::Message { message, received } => {
                    if let Some(permit) = self.heed(place, &message, received)? {
                        return Ok(permit);
                    }
                }
                News::Silence if deadline.is_some_and(|end| end <= Instant::now()) => {
                    return self.leave(wait, place);
                }
                News::Silence => {
                    if let Some(permit) = self.ask_in_line(wait, place, deadline)? {
                        return Ok(permit);
                    }
                }
            }
        }
    }

    /// One call in line. A wait that has a place goes on for a while when the server cannot be reached.
    fn ask_in_line(
        &self,
        wait: &Wait,
        place: &mut Place,
        deadline: Option<Instant>,
    ) -> Result<Option<Permit>, AcquireError> {
        let inbox = self.engine.inbox.channel(deadline).unwrap_or_default();
        let until = deadline.and_then(|end| end.checked_add(LAST_WORD));
        let (outcome, sent) = match self.ask(until, place.ticket, inbox, PATIENCE) {
            Ok(answered) => answered,
            Err(unanswered) => {
                let passing = match &unanswered.error {
                    CallError::Failed(failure) | CallError::Unknown(failure) => {
                        failure.is_passing()
                    }
                    CallError::Invalid(_) => false,
                };
                let since = *place.unreachable_since.get_or_insert_with(Instant::now);
                let over = deadline.is_some_and(|end| end <= Instant::now());
                if passing && place.ticket > 0 && !over && since.elapsed() < self.engine.outage {
                    place.next_ask = Instant::now() + OUTAGE_PAUSE;
                    place.unanswered = unanswered.wire.or(place.unanswered.take());
                    return Ok(None);
                }
                return Err(self.give_up(place, unanswered, over));
            }
        };
        place.unreachable_since = None;
        match outcome {
            Outcome::Queued {
                ticket,
                position,
                sleep,
                now,
                usage,
            } => {
                self.refuse_under(usage.limit)?;
                place.ticket = ticket;
                place.position = position;
                place.usage = usage;
                place.asked = Some((sent, now));
                place.next_ask = sent.instant() + sleep;
                Ok(None)
            }
            outcome => self.conclude(wait, outcome, sent, place).map(Some),
        }
    }

    /// What a message changes.
    fn heed(
        &self,
        place: &mut Place,
        message: &Message,
        received: Moment,
    ) -> Result<Option<Permit>, AcquireError> {
        let Some((asked, told_now)) = place.asked else {
            return Ok(None); // older than this wait
        };
        if message.fence == 0 {
            let at = match message.at {
                Some(at) if at > 0 => asked.instant().checked_add(between(told_now, at)),
                _ => Some(Instant::now()),
            };
            place.next_ask = at.map_or(place.next_ask, |at| at.min(place.next_ask));
            return Ok(None);
        }
        if message.fence <= place.ticket {
            return Ok(None); // a grant of an earlier wait with the same id
        }
        place.heard.push(message.fence);
        // Two bounds on the same end: a message that was long on its way must not count from when it came.
        let by_call = Deadline::told(asked, message.at.map(|end| between(told_now, end)));
        let by_message = Deadline::told(received, message.at.map(|end| between(message.now, end)));
        let deadline = by_call.earlier(by_message);
        // An own id may have been granted elsewhere, and a message does not tell the limit.
        if self.terms.own_id || self.strict || deadline.is_past() {
            place.next_ask = Instant::now();
            return Ok(None);
        }
        let grant = Grant {
            permits: message.permits,
            fence: message.fence,
            expires_at: message.at,
            now: message.now,
        };
        let permit = self.permit(grant, place.usage, deadline, place.ticket())?;
        Ok(Some(permit))
    }

    /// An answer that ends the wait.
    fn conclude(
        &self,
        wait: &Wait,
        outcome: Outcome,
        sent: Moment,
        place: &Place,
    ) -> Result<Permit, AcquireError> {
        let (grant, usage) = match outcome {
            Outcome::Granted(grant, usage) => {
                self.refuse_under(usage.limit)?;
                (grant, usage)
            }
            Outcome::HeldByOther(grant) if self.was_told(wait, place, grant.fence) => {
                (grant, place.usage)
            }
            Outcome::HeldByOther(grant) => {
                return Err(AcquireError::AlreadyHeld(self.held(&grant)));
            }
            Outcome::Denied(denied) => return Err(AcquireError::TimedOut(denied)),
            Outcome::Queued { .. } => return Err(out_of_turn().into()),
        };
        let deadline = Deadline::told(sent, grant.left());
        Ok(self.permit(grant, usage, deadline, place.ticket())?)
    }

    /// Whether the grant with this fence came to this very wait, and not to another caller with the same id: its message
    /// went to the inbox of whoever asked last, and is here already or about to be.
    fn was_told(&self, wait: &Wait, place: &Place, fence: u64) -> bool {
        if place.heard.contains(&fence) {
            return true;
        }
        if place.ticket == 0 || fence <= place.ticket {
            return false;
        }
        let until = Instant::now() + LAST_WORD;
        loop {
            match wait.hear(until) {
                News::Message { message, .. } if message.fence == fence => return true,
                News::Message { .. } | News::Resubscribed => {}
                News::Silence | News::Cancelled => return false,
            }
        }
    }

    /// The time is over. A last call takes the grant that was under way, or gives the place up: one script does both.
    fn leave(&self, wait: &Wait, place: &Place) -> Result<Permit, AcquireError> {
        let until = Instant::now() + LAST_WORD;
        match self.ask(Some(until), place.ticket, "", Duration::ZERO) {
            Ok((outcome, sent)) => self.conclude(wait, outcome, sent, place),
            Err(unanswered) => Err(self.give_up(place, unanswered, true)),
        }
    }

    /// A call of this wait was not answered, and there is no time for another.
    fn give_up(&self, place: &Place, unanswered: Unanswered, over: bool) -> AcquireError {
        let failed_before = place
            .unreachable_since
            .is_some_and(|since| since.elapsed() > LAST_WORD);
        let error = self.abandon(unanswered, place.ticket > 0);
        match error {
            // The server answered until just now: the time was over before the answer came, and that is what counts.
            CallError::Unknown(failure) | CallError::Failed(failure)
                if over
                    && place.ticket > 0
                    && !failed_before
                    && matches!(
                        failure.kind(),
                        FailureKind::TimedOut | FailureKind::PoolExhausted
                    ) =>
            {
                AcquireError::TimedOut(Denied {
                    in_use: place.usage.in_use,
                    limit: place.usage.limit,
                    waiting: place.position,
                    retry_after: None,
                })
            }
            error => error.into(),
        }
    }

    fn cancelled(&self, place: &Place) -> AcquireError {
        if place.ticket > 0 {
            self.release_now(None);
        }
        AcquireError::Cancelled(Cancelled)
    }

    /// Runs the script once; again if the connection broke.
    fn ask(
        &self,
        until: Option<Instant>,
        ticket: u64,
        inbox: &str,
        wait: Duration,
    ) -> Result<(Outcome, Moment), Unanswered> {
        let ask = Ask {
            id: &self.id,
            permits: self.permits,
            limit: self.limit,
            lease_ms: self.first_lease_ms(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            inbox,
            ticket,
        };
        let answered = self
            .engine
            .connections
            .call(until, &mut |con| semaphore::acquire(con, &self.keys, &ask))?;
        let outcome = match answered.reply {
            Answer::Granted(grant, usage) => Outcome::Granted(grant, usage),
            // An id of this request's own making: an earlier call of it was carried out, and its reply lost.
            Answer::Held(grant, usage) if !self.terms.own_id => Outcome::Granted(grant, usage),
            Answer::Held(grant, _) => Outcome::HeldByOther(grant),
            Answer::Queued {
                ticket,
                position,
                retry_after,
                usage,
                now,
            } => {
                let in_front = u32::try_from(position.saturating_sub(1)).unwrap_or(u32::MAX);
                let recheck = match in_front {
                    0 => RECHECK,
                    n => RECHECK.min(RECHECK_A_PLACE.saturating_mul(n)),
                };
                Outcome::Queued {
                    ticket,
                    position,
                    sleep: Duration::from_millis(retry_after).min(recheck),
                    now,
                    usage,
                }
            }
            Answer::Denied {
                retry_after,
                usage,
                waiting,
                ..
            } => Outcome::Denied(Denied {
                in_use: usage.in_use,
                limit: usage.limit,
                waiting,
                retry_after: retry_after.map(Duration::from_millis),
            }),
        };
        Ok((outcome, answered.sent))
    }

    /// A permanent lease begins as one of 30 s, so that a permit whose reply was lost comes back by itself.
    fn first_lease_ms(&self) -> u64 {
        match self.terms.lease_ms {
            0 => u64::try_from(lease::DEFAULT.as_millis()).unwrap_or(u64::MAX),
            lease_ms => lease_ms,
        }
    }

    fn permit(
        &self,
        grant: Grant,
        usage: Usage,
        deadline: Deadline,
        ticket: Option<u64>,
    ) -> Result<Permit, CallError> {
        let holding = Holding::new(&self.keys, &self.id, &grant, deadline, &self.terms);
        let permit = Permit::new(self.engine.clone(), holding, usage.limit, ticket);
        if self.terms.lease_ms == 0 {
            permit.make_permanent()?;
        }
        Ok(permit)
    }

    fn held(&self, grant: &Grant) -> AlreadyHeld {
        AlreadyHeld {
            id: self.id.clone(),
            permits: grant.permits,
            fence: grant.fence,
        }
    }

    /// A strict semaphore takes nothing under another limit than its own.
    fn accept(&self, limit: u32) -> Result<(), LimitMismatch> {
        if !self.strict || limit == self.limit {
            return Ok(());
        }
        Err(LimitMismatch {
            declared: self.limit,
            in_force: limit,
        })
    }

    /// As `accept`, for an id that has something by now: it is given back.
    fn refuse_under(&self, limit: u32) -> Result<(), LimitMismatch> {
        self.accept(limit).inspect_err(|_| self.release_now(None))
    }

    /// Gives back whatever this id has, within the time of the last word; the background does what takes longer.
    fn release_now(&self, wire: Option<Box<Wire>>) {
        let until = Some(Instant::now() + LAST_WORD);
        let release = &mut |con: &mut Connection| semaphore::release(con, &self.keys, &self.id, 0);
        let connections = &self.engine.connections;
        let released = match wire {
            Some(wire) => connections.call_on(*wire, until, release),
            None => connections.call(until, release),
        };
        if let Err(unanswered) = released {
            self.abandon(unanswered, true);
        }
    }

    /// What a call without an answer, or a place in line, leaves on the server goes to the background.
    fn abandon(&self, unanswered: Unanswered, queued: bool) -> CallError {
        if queued || matches!(unanswered.error, CallError::Unknown(_)) {
            self.release_later(unanswered.wire);
        }
        unanswered.error
    }

    fn release_later(&self, wire: Option<Box<Wire>>) {
        let lives = PATIENCE.max(Duration::from_millis(self.first_lease_ms()));
        let until = Instant::now().checked_add(lives);
        self.engine.inbox.give_up(&self.keys, &self.id);
        self.engine.release_later(&self.keys, &self.id, wire, until);
    }

    /// What can be told to be wrong without asking the server; and what is still owed for an id that was used before.
    fn prepare(&self) -> Result<(), Invalid> {
        if self.permits == Some(0) {
            return Err(Invalid::new("permits", "takes 1 to the limit, got 0"));
        }
        if !(1..=MOST).contains(&self.limit) {
            return Err(Invalid::new(
                "limit",
                format!("takes 1 to {MOST}, got {}", self.limit),
            ));
        }
        name::check_id(&self.id)?;
        if self.terms.own_id {
            let until = Instant::now() + LAST_WORD;
            let background = &self.engine.background;
            if let Some(debt) = background.take_back(&self.keys, &self.id, until) {
                self.release_now(debt.wire);
            }
        }
        Ok(())
    }
}

/// A wait that is known to the inbox, for as long as this lives.
struct Registered<'a> {
    inbox: &'a Inbox,
    wait: Arc<Wait>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.inbox.unregister(&self.wait);
    }
}

fn out_of_turn() -> CallError {
    CallError::Unknown(Failure::new(
        FailureKind::UnexpectedReply,
        "`queued`, though nobody asked to wait",
    ))
}
