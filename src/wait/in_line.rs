//! Waiting in line, until the permit is granted, the time is over, or the wait is cancelled.

use crate::error::failure::FailureKind;
use crate::error::{AcquireError, CallError, Cancelled, Denied, Invalid, PlaceRevoked};
use crate::permit::Permit;
use crate::protocol::lease::{Deadline, Moment};
use crate::protocol::message::Message;
use crate::scripts::between;
use crate::scripts::semaphore::{Grant, Usage};
use crate::trace::Operation;
use crate::transport::connections::{Connections, Parked, Unanswered};
use crate::wait::inbox::Inbox;
use crate::wait::request::{LAST_WORD, Outcome, PATIENCE, Request, no_inbox, out_of_turn};
use crate::wait::waits::{News, Wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a waiter sleeps at most before it asks again: three times within its patience.
pub(crate) const RECHECK: Duration = Duration::from_secs(5);

/// How long it sleeps at most for each that stands in front: so the second in line finds out within a second that the
/// first is dead, and takes its place in time for the next lease that ends.
const RECHECK_A_PLACE: Duration = Duration::from_secs(1);

/// How long to wait between calls while the server cannot be reached.
pub(crate) const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long the message of a grant may take to arrive, for example where the subscriber's thread gets no processor.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// How long a waiter at this place sleeps at most.
fn recheck(position: u64) -> Duration {
    match u32::try_from(position.saturating_sub(1)) {
        Ok(0) | Err(_) => RECHECK,
        Ok(in_front) => RECHECK.min(RECHECK_A_PLACE.saturating_mul(in_front)),
    }
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
    unanswered: Option<Parked>,
}

impl Place {
    fn new(now: Instant) -> Place {
        Place {
            ticket: 0,
            position: 0,
            usage: Usage {
                in_use: 0,
                limit: 0,
            },
            asked: None,
            next_ask: now,
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
    /// Asks in line, until `deadline` at the latest.
    pub(crate) fn in_line(&self, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        let span = Operation::Acquire.on([self.keys.meta.as_ref()]);
        span.run(|| self.stand_in_line(deadline))
    }

    fn stand_in_line(&self, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        self.prepare(deadline)?;
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
        let mut place = Place::new(self.engine.now());
        let result = self.wait(&wait.wait, &mut place, deadline);
        // A call without an answer may still be on its way there, and would be granted to nobody. What another caller
        // holds with the same id is not ours to release.
        if let (Err(error), Some(wire)) = (&result, place.unanswered)
            && !matches!(error, AcquireError::AlreadyHeld(_))
        {
            self.release_later(Some(wire));
        }
        if let Err(AcquireError::TimedOut(_)) = &result {
            self.engine.servers.counts.denied.add_one();
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
        if !self.engine.inbox.is_opened(&self.keys.meta) && !wait.is_cancelled() {
            let until = deadline.and_then(|end| end.checked_add(LAST_WORD));
            let (outcome, sent) = self
                .ask(until, 0, &no_inbox, Duration::ZERO)
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
                News::Called if place.ticket > 0 => place.next_ask = self.engine.now(),
                News::Called => {}
                News::Message { message, received } => {
                    if let Some(permit) = self.heed(place, &message, received)? {
                        return Ok(permit);
                    }
                }
                News::Silence if deadline.is_some_and(|end| end <= self.engine.now()) => {
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
        let inbox = |server: &Arc<Connections>| {
            let channel = self.engine.inbox.channel(server, deadline)?;
            Ok(channel.map_or_else(String::new, |channel| wait.inbox(&channel)))
        };
        let until = deadline.and_then(|end| end.checked_add(LAST_WORD));
        let (outcome, sent) = match self.ask(until, place.ticket, &inbox, PATIENCE) {
            Ok(answered) => answered,
            Err(unanswered) => {
                let passing = unanswered.error.is_passing();
                let since = *place
                    .unreachable_since
                    .get_or_insert_with(|| self.engine.now());
                let over = deadline.is_some_and(|end| end <= self.engine.now());
                let unreachable = self.engine.now().saturating_duration_since(since);
                if passing && place.ticket > 0 && !over && unreachable < self.engine.outage {
                    place.next_ask = self.engine.now() + OUTAGE_PAUSE;
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
                retry_after,
                now,
                usage,
            } => {
                self.refuse_under(usage.limit)?;
                place.ticket = ticket;
                place.position = position;
                place.usage = usage;
                place.asked = Some((sent, now));
                place.next_ask = sent.instant() + retry_after.min(recheck(position));
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
            // Older than the last answer, it tells nothing that the answer did not know: so whoever listens too and sends
            // it again and again makes nobody ask.
            if message.now < told_now {
                return Ok(None);
            }
            let at = match message.at {
                Some(0) => Some(self.engine.now()),
                Some(at) => asked.instant().checked_add(between(told_now, at)),
                None => return Err(self.revoked()),
            };
            place.next_ask = at.map_or(place.next_ask, |at| at.min(place.next_ask));
            return Ok(None);
        }
        if message.fence <= place.ticket || place.heard.contains(&message.fence) {
            return Ok(None); // of a place that was given up, or sent again
        }
        place.heard.push(message.fence);
        // Two bounds on the same end: a message that was long on its way must not count from when it came.
        let by_call = Deadline::told(asked, message.at.map(|end| between(told_now, end)));
        let by_message = Deadline::told(received, message.at.map(|end| between(message.now, end)));
        let deadline = by_call.earlier(by_message);
        // An own id may have been granted elsewhere, and a message does not tell the limit. So many are not what was asked for.
        let other = self.permits != Some(message.permits);
        if self.terms.own_id
            || self.strict
            || other
            || deadline.is_past(self.engine.clock().moment())
        {
            place.next_ask = self.engine.now();
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
            Outcome::AboveLimit(above) => return Err(above.into()),
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
        let _busy = self.engine.clock().busy(); // until the message is here
        let until = self.engine.now() + ON_ITS_WAY;
        loop {
            match wait.hear(until) {
                News::Message { message, .. } if message.fence == fence => return true,
                News::Message { .. } | News::Called => {}
                News::Silence | News::Cancelled => return false,
            }
        }
    }

    /// The time is over. A last call takes the grant that was under way, or gives the place up: one script does both.
    fn leave(&self, wait: &Wait, place: &Place) -> Result<Permit, AcquireError> {
        let until = self.engine.now() + LAST_WORD;
        match self.ask(Some(until), place.ticket, &no_inbox, Duration::ZERO) {
            Ok((outcome, sent)) => self.conclude(wait, outcome, sent, place),
            Err(unanswered) => Err(self.give_up(place, unanswered, true)),
        }
    }

    /// A call of this wait was not answered, and there is no time for another.
    fn give_up(&self, place: &Place, unanswered: Unanswered, over: bool) -> AcquireError {
        let failed_before = place
            .unreachable_since
            .is_some_and(|since| self.engine.now().saturating_duration_since(since) > LAST_WORD);
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
                    next_expiry: None,
                })
            }
            error => error.into(),
        }
    }

    /// The place in line was taken away. A call that crossed the message may have brought it back.
    fn revoked(&self) -> AcquireError {
        self.release_now();
        AcquireError::Revoked(PlaceRevoked {
            id: self.id.clone(),
        })
    }

    fn cancelled(&self, place: &Place) -> AcquireError {
        if place.ticket > 0 {
            self.release_now();
        }
        AcquireError::Cancelled(Cancelled)
    }
}

/// A wait that is known to the inbox, for as long as this lives.
pub(crate) struct Registered<'a> {
    pub(crate) inbox: &'a Inbox,
    pub(crate) wait: Arc<Wait>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.inbox.unregister(&self.wait);
    }
}
