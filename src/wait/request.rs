//! One acquire: what is asked for, how it is asked once, and what has to be given back when nothing comes of it.

use crate::error::failure::{Failure, FailureKind};
use crate::error::{
    AboveLimit, AlreadyHeld, CallError, Denied, Invalid, LimitMismatch, TryAcquireError,
};
use crate::lease::cleanup::{PendingRelease, Target};
use crate::lease::holding::{Holding, Terms};
use crate::permit::{self, Permit};
use crate::protocol::lease::{Deadline, Moment};
use crate::protocol::name::{self, Keys};
use crate::scripts::semaphore::{self, Answer, Ask, Grant, Usage};
use crate::shared::Engine;
use crate::trace::Operation;
use crate::transport::connections::{Connections, Parked, Unanswered};
use crate::wait::cancel::Cancel;
use redis::ConnectionLike;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a waiter stays in line unless it asks again. One that crashed leaves the queue within this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How much longer than the deadline the last call of a wait may take.
pub(crate) const LAST_WORD: Duration = Duration::from_millis(40);

/// Where messages from a server go.
pub(crate) type InboxAt<'a> = dyn Fn(&Arc<Connections>) -> Result<String, Failure> + 'a;

/// Everything that one acquire needs to know.
pub(crate) struct Request {
    pub(crate) engine: Arc<Engine>,
    pub(crate) keys: Keys,
    pub(crate) id: String,
    /// `None`: all that are free.
    pub(crate) permits: Option<u32>,
    /// 0: none is declared, whatever is stored counts.
    pub(crate) limit: u32,
    pub(crate) strict: bool,
    pub(crate) terms: Terms,
    pub(crate) cancel: Option<Cancel>,
}

/// What an answer comes to for this request.
pub(crate) enum Outcome {
    Granted(Grant, Usage),
    HeldByOther(Grant),
    Queued {
        ticket: u64,
        position: u64,
        retry_after: Duration,
        now: u64,
        usage: Usage,
    },
    Denied(Denied),
    AboveLimit(AboveLimit),
}

impl Request {
    /// Asks once; granted or not, nothing stays behind. Blocks for one round trip.
    pub(crate) fn at_once(&self) -> Result<Permit, TryAcquireError> {
        let span = Operation::TryAcquire.on([self.keys.meta.as_ref()]);
        span.run(|| self.ask_at_once())
    }

    fn ask_at_once(&self) -> Result<Permit, TryAcquireError> {
        self.prepare(None)?;
        let _busy = self.engine.clock().busy(); // until the permit is looked after
        let (outcome, sent) = self
            .ask(None, 0, &no_inbox, Duration::ZERO)
            .map_err(|unanswered| self.abandon(unanswered, false))?;
        match outcome {
            Outcome::Granted(grant, usage) => {
                self.refuse_under(usage.limit)?;
                Ok(self.permit(grant, usage, Deadline::told(sent, grant.left()), None)?)
            }
            Outcome::HeldByOther(grant) => Err(TryAcquireError::AlreadyHeld(self.held(&grant))),
            Outcome::Denied(denied) => {
                self.accept(denied.limit)?;
                self.engine.servers.counts.denied.add_one();
                Err(TryAcquireError::Denied(denied))
            }
            Outcome::AboveLimit(above) => Err(above.into()),
            Outcome::Queued { .. } => Err(out_of_turn().into()),
        }
    }

    /// Runs the script once; again if the connection broke. `inbox` is asked about the server that has the key.
    pub(crate) fn ask(
        &self,
        until: Option<Instant>,
        ticket: u64,
        inbox: &InboxAt,
        wait: Duration,
    ) -> Result<(Outcome, Moment), Unanswered> {
        let ask = Ask {
            id: &self.id,
            permits: self.permits,
            limit: self.limit,
            lease_ms: self.terms.first_lease_ms(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            inbox: "",
            ticket,
        };
        let answered = self
            .engine
            .servers
            .find(&self.keys.meta, until, &mut |node| {
                let inbox = inbox(node.connections)?;
                let ask = Ask {
                    inbox: &inbox,
                    ..ask
                };
                let acquire =
                    &mut |con: &mut dyn ConnectionLike| semaphore::acquire(con, &self.keys, &ask);
                node.call_along(until, acquire)
            })?;
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
            } => Outcome::Queued {
                ticket,
                position,
                retry_after: Duration::from_millis(retry_after),
                now,
                usage,
            },
            Answer::Denied {
                next_expiry,
                usage,
                waiting,
                ..
            } => Outcome::Denied(Denied {
                in_use: usage.in_use,
                limit: usage.limit,
                waiting,
                next_expiry: next_expiry.map(Duration::from_millis),
            }),
            Answer::AboveLimit { limit, .. } => Outcome::AboveLimit(AboveLimit {
                permits: self.permits.unwrap_or(1),
                limit,
            }),
        };
        Ok((outcome, answered.sent))
    }

    pub(crate) fn permit(
        &self,
        grant: Grant,
        usage: Usage,
        deadline: Deadline,
        ticket: Option<u64>,
    ) -> Result<Permit, CallError> {
        let holding = Holding::new(
            &self.engine.servers,
            &self.keys,
            &self.id,
            &grant,
            deadline,
            &self.terms,
        );
        let permit = Permit::new(self.engine.clone(), holding, usage.limit, ticket);
        permit::confirm(std::slice::from_ref(&permit))?;
        self.engine.servers.counts.grant(ticket.is_some());
        Ok(permit)
    }

    pub(crate) fn held(&self, grant: &Grant) -> AlreadyHeld {
        AlreadyHeld {
            id: self.id.clone(),
            permits: grant.permits,
            fence: grant.fence,
        }
    }

    /// A strict semaphore takes nothing under another limit than its own.
    pub(crate) fn accept(&self, limit: u32) -> Result<(), LimitMismatch> {
        if !self.strict || self.limit == 0 || limit == self.limit {
            return Ok(());
        }
        Err(LimitMismatch {
            declared: self.limit,
            in_force: limit,
        })
    }

    /// As `accept`, for an id that has something by now: it is given back.
    pub(crate) fn refuse_under(&self, limit: u32) -> Result<(), LimitMismatch> {
        self.accept(limit).inspect_err(|_| self.release_now())
    }

    /// Gives back whatever this id has, within the time of the last word. What takes longer goes on in the background.
    pub(crate) fn release_now(&self) {
        let until = self.engine.now() + LAST_WORD;
        if !self.engine.cleanup.release_now(self.pending(None), until) {
            self.engine.inbox.give_up(&self.keys, &self.id);
        }
    }

    /// Releases what a call without an answer, or a place in line, may have left on the server, in the background.
    pub(crate) fn abandon(&self, unanswered: Unanswered, queued: bool) -> CallError {
        if queued || matches!(unanswered.error, CallError::Unknown(_)) {
            self.release_later(unanswered.wire);
        }
        unanswered.error
    }

    pub(crate) fn release_later(&self, wire: Option<Parked>) {
        self.engine.inbox.give_up(&self.keys, &self.id);
        self.engine.cleanup.release_later([self.pending(wire)]);
    }

    /// The release of whatever this id has: the fence is not known.
    fn pending(&self, connection: Option<Parked>) -> PendingRelease {
        let lives = PATIENCE.max(Duration::from_millis(self.terms.first_lease_ms()));
        PendingRelease {
            keys: self.keys.clone(),
            id: self.id.clone(),
            target: match self.terms.own_id {
                true => Target::LookUp,
                false => Target::Whatever,
            },
            connection,
            until: self.engine.now().checked_add(lives),
        }
    }

    /// Reports what can be known to be wrong without asking the server. Returns once no earlier release of an own id is pending.
    pub(crate) fn prepare(&self, until: Option<Instant>) -> Result<(), CallError> {
        self.engine.check_process()?;
        if self.permits == Some(0) {
            return Err(Invalid::new("permits", "takes 1 to the limit, got 0").into());
        }
        name::check_id(&self.id)?;
        if self.terms.own_id {
            self.engine.cleanup.settle(&self.keys, &self.id, until)?;
        }
        Ok(())
    }
}

/// Of a call that does not wait in line.
pub(crate) fn no_inbox(_: &Arc<Connections>) -> Result<String, Failure> {
    Ok(String::new())
}

/// The script answered what was not asked.
pub(crate) fn out_of_turn() -> CallError {
    CallError::Unknown(Failure::new(
        FailureKind::UnexpectedReply,
        "`queued`, though nobody asked to wait",
    ))
}
