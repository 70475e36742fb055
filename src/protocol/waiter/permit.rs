//! Waits for permits of a semaphore.

use super::{Ask, PATIENCE, RECHECK, Step, StepOf, Target};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{
    AboveLimit, AcquireError, AlreadyHeld, CallError, Cancelled, Denied, Invalid, LimitMismatch, PlaceRevoked,
    TryAcquireError,
};
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::Identity;
use crate::protocol::id::check_id;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{Deadline, LeaseOptions, Moment, ServerTime};
use crate::protocol::message::Message;
use crate::protocol::releases::PendingRelease;
use crate::protocol::reply::between;
use crate::protocol::semaphore::{self, Acquire, Answer, Grant, Usage};
use redis::Value;
use std::time::{Duration, Instant};

/// How long a waiter sleeps at most for each waiter ahead. So the second in line notices within a second that the first
/// one's process has ended. Then it can take its place before the next lease ends.
const RECHECK_PER_POSITION: Duration = Duration::from_secs(1);

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
    pub lease: LeaseOptions,
    pub entry: QueueEntry,
}

#[derive(Clone, Debug, Default)]
pub struct QueueEntry {
    /// 0: not in line yet.
    pub ticket: u64,
    pub position: u64,
    usage: Usage,
    /// When the last answered call was sent, and the server's time in its reply.
    pub asked: Option<(Moment, ServerTime)>,
    /// Fences of grant messages that were not sufficient; a call must confirm the grant.
    pub received_fences: Vec<u64>,
}

/// A permit that was granted.
pub struct Granted {
    pub identity: Identity,
    pub grant: Grant,
    pub limit: u32,
    pub deadline: Deadline,
    /// The ticket of its place in line; `None`: it did not wait.
    pub ticket: Option<u64>,
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

    /// The call that asks for the permits.
    pub fn acquire<'a>(&'a self, ask: Ask, inbox: &'a str) -> Acquire<'a> {
        let wait = match ask {
            Ask::InLine => PATIENCE,
            Ask::First | Ask::Last => Duration::ZERO,
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
                max_waiting: self.max_waiting,
                at_least_ms: self.lease.at_least_ms,
            },
        }
    }

    /// Handles the answer to a caller that does not wait. `true`: everything that the id has must be given back.
    pub fn at_once(&mut self, answer: Answer, sent: Moment) -> (Result<Granted, TryAcquireError>, bool) {
        if let Answer::Denied { usage, .. } = answer
            && let Err(mismatch) = self.check_limit(usage.limit)
        {
            return (Err(mismatch.into()), false);
        }
        let step = self.answered(Ask::Last, answer, sent);
        let gives_back = matches!(step, Step::GiveBack(_));
        let result = match step {
            Step::Done(result) => result.map_err(TryAcquireError::of),
            Step::Leave(error) | Step::GiveBack(error) => Err(TryAcquireError::of(error)),
            Step::AskAt(_) | Step::AskBy(_) | Step::Continue => Err(out_of_turn().into()),
        };
        (result, gives_back)
    }

    /// The release of everything that the id may have, since the fence is unknown.
    pub fn release<C>(&self, connection: Option<C>, now: Instant) -> PendingRelease<C> {
        let until = now.checked_add(self.longest());
        PendingRelease::of_call(&self.keys, &self.id, self.lease.own_id, connection, until)
    }

    /// The time after which the server has freed the id by itself, if no call follows.
    pub fn longest(&self) -> Duration {
        PATIENCE.max(Duration::from_millis(self.lease.first_lease_ms()))
    }

    fn granted(&self, grant: &Grant, limit: u32, sent: Moment) -> Granted {
        Granted {
            identity: Identity { keys: self.keys.clone(), id: self.id.clone(), fence: grant.fence, lease: self.lease },
            grant: *grant,
            limit,
            deadline: Deadline::after(sent, grant.left()),
            ticket: (self.entry.ticket > 0).then_some(self.entry.ticket),
        }
    }

    fn check_limit(&self, limit: u32) -> Result<(), LimitMismatch> {
        LimitMismatch::check(|| self.keys.name(), self.strict.then_some(self.limit), limit)
    }

    fn already_held(&self, grant: &Grant) -> AcquireError {
        AcquireError::AlreadyHeld(AlreadyHeld { id: self.id.clone(), permits: grant.permits, fence: grant.fence })
    }

    fn above(&self, limit: u32) -> AboveLimit {
        AboveLimit { name: self.keys.name().to_owned(), permits: self.permits.unwrap_or(1), limit }
    }

    /// Whether a permit that the id holds was granted to this wait. Its message or reply was lost then. An id has one place
    /// in line or one permit, whoever chose it, so the grant to a wait that is in line is its own. A fence that is not
    /// above its ticket is of an earlier permit, which the server has restored.
    fn is_own(&self, grant: &Grant) -> bool {
        !self.lease.own_id || self.is_queued() && grant.fence > self.entry.ticket
    }

    /// A hint to ask again, or a message that the place in line was taken away.
    fn hinted(&mut self, message: &Message, asked: (Moment, ServerTime)) -> StepOf<PermitTarget> {
        let (sent, server_time) = asked;
        // The message is older than the last answer, and contains nothing new. So a subscriber that replays messages
        // cannot cause calls.
        if message.now < server_time {
            return Step::Continue;
        }
        match message.at {
            // A call that was sent before this message arrived may have restored the place.
            None => Step::GiveBack(AcquireError::Revoked(PlaceRevoked { id: self.id.clone() })),
            Some(at) => match sent.instant().checked_add(between(server_time, at)) {
                Some(at) => Step::AskBy(at),
                None => Step::Continue,
            },
        }
    }
}

impl Target for PermitTarget {
    type Answer = Answer;
    type Granted = Granted;
    type Error = AcquireError;

    fn call(&self, ask: Ask, inbox: &str) -> Packed {
        self.acquire(ask, inbox).pack()
    }

    fn answer(&self, ask: Ask, reply: Value) -> Result<Answer, CallError> {
        self.acquire(ask, "").answer(reply)
    }

    fn answered(&mut self, ask: Ask, answer: Answer, sent: Moment) -> StepOf<PermitTarget> {
        match answer {
            Answer::Held(grant, _) if !self.is_own(&grant) => Step::Leave(self.already_held(&grant)),
            Answer::Granted(grant, usage) | Answer::Held(grant, usage) => match self.check_limit(usage.limit) {
                Ok(()) => Step::Done(Ok(self.granted(&grant, usage.limit, sent))),
                Err(mismatch) => Step::GiveBack(mismatch.into()),
            },
            Answer::Queued { ticket, position, retry_after, usage, now } if ask == Ask::InLine => {
                if let Err(mismatch) = self.check_limit(usage.limit) {
                    return Step::GiveBack(mismatch.into());
                }
                let entry = &mut self.entry;
                (entry.ticket, entry.position, entry.usage) = (ticket, position, usage);
                entry.asked = Some((sent, now));
                let pause = Duration::from_millis(retry_after).min(recheck(position));
                Step::AskAt(sent.instant() + pause)
            }
            Answer::Queued { .. } => Step::Done(Err(out_of_turn().into())),
            Answer::Denied { .. } if ask == Ask::First => Step::AskAt(sent.instant()),
            Answer::Denied { next_expiry, usage, waiting, .. } => {
                let denied = denied(self.keys.name(), usage, waiting, next_expiry);
                Step::Done(Err(match ask {
                    Ask::InLine => AcquireError::LineFull(denied),
                    Ask::First | Ask::Last => AcquireError::TimedOut(denied),
                }))
            }
            Answer::AboveLimit { limit, .. } => Step::Done(Err(self.above(limit).into())),
        }
    }

    fn message(&mut self, message: &Message, received: Moment, now: Moment) -> StepOf<PermitTarget> {
        let Some(asked) = self.entry.asked else {
            return Step::Continue; // from before this wait
        };
        if message.fence == 0 {
            return self.hinted(message, asked);
        }
        let entry = &mut self.entry;
        if message.fence <= entry.ticket || entry.received_fences.contains(&message.fence) {
            return Step::Continue; // for an earlier place in line, or repeated
        }
        entry.received_fences.push(message.fence);
        // Two bounds for the same end: a delayed message must not extend the lease.
        let (sent, server_time) = asked;
        let by_call = Deadline::after(sent, message.at.map(|end| between(server_time, end)));
        let by_message = Deadline::after(received, message.at.map(|end| between(message.now, end)));
        let deadline = by_call.earlier(by_message);
        // Older than the last answer: the grant was taken away again, or the server's clock was set back.
        let is_old = message.now < server_time;
        // A message does not contain the limit. Another number of permits than requested needs a call too.
        let is_other = self.permits != Some(message.permits);
        if is_old || self.strict || is_other || deadline.is_past(now) {
            return Step::AskBy(now.instant());
        }
        let grant = Grant { permits: message.permits, fence: message.fence, expires_at: message.at, now: message.now };
        let limit = self.entry.usage.limit;
        Step::Done(Ok(Granted { deadline, ..self.granted(&grant, limit, sent) }))
    }

    fn hint(&mut self, now: Instant) -> Instant {
        now
    }

    fn is_queued(&self) -> bool {
        self.entry.ticket > 0
    }

    fn cancelled(&self) -> AcquireError {
        AcquireError::Cancelled(Cancelled)
    }

    fn timed_out(&self) -> AcquireError {
        let QueueEntry { usage, position, .. } = self.entry;
        AcquireError::TimedOut(denied(self.keys.name(), usage, position, None))
    }
}

/// How long a waiter at this position sleeps at most.
fn recheck(position: u64) -> Duration {
    match u32::try_from(position.saturating_sub(1)) {
        Ok(0) | Err(_) => RECHECK,
        Ok(in_front) => RECHECK.min(RECHECK_PER_POSITION.saturating_mul(in_front)),
    }
}

/// A refusal in the form of the public interface.
pub fn denied(name: &str, usage: Usage, waiting: u64, next_expiry: Option<u64>) -> Denied {
    let Usage { in_use, limit } = usage;
    Denied { name: name.to_owned(), in_use, limit, waiting, next_expiry: next_expiry.map(Duration::from_millis) }
}

/// The script answered `queued` to a caller that does not wait.
fn out_of_turn() -> CallError {
    let text = "`queued` in reply to a call that does not wait";
    CallError::Unknown(Failure::new(FailureKind::UnexpectedReply, text))
}
