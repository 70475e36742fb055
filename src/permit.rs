//! The permit: the guard that a grant is.

use crate::engine::Engine;
use crate::error::{CallError, Error, Invalid, RefreshError};
use crate::failure::{Failure, FailureKind};
use crate::holding::Holding;
use crate::lease::Deadline;
use crate::scripts::semaphore::{self, ReleaseAnswer};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long dropping a permit may take; what takes longer goes to the background.
const DROP_BOUND: Duration = Duration::from_millis(100);

/// Permits that this process holds, until they are released, dropped or lost.
///
/// Dropping it releases: for at most 100 ms in the dropping thread, then in the background until the server answers or
/// the lease has ended. In a forked child dropping does nothing; the permit is the parent's. A permit is not
/// re-entrant: whoever holds one and acquires again stands in line like everybody else.
///
/// It may be lost at any time: the lease may end while this process was paused or could not reach the server.
/// [`is_lost`](Permit::is_lost) is early rather than late, but no clock protects what happens after the look at it;
/// the [`fence`](Permit::fence) does, where what the permit protects refuses lower fences than it has seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    engine: Arc<Engine>,
    holding: Arc<Holding>,
    limit: u32,
    ticket: Option<u64>,
    /// Dropping it releases.
    armed: bool,
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Given back; whoever waits has it already.
    Released,
    /// There was nothing to give back: the lease had ended, or somebody revoked it.
    Gone,
}

impl Permit {
    pub(crate) fn new(
        engine: Arc<Engine>,
        holding: Holding,
        limit: u32,
        ticket: Option<u64>,
    ) -> Permit {
        let holding = Arc::new(holding);
        if holding.terms.lease_ms > 0 {
            engine.renewal.watch(&holding);
        }
        Permit {
            engine,
            holding,
            limit,
            ticket,
            armed: true,
        }
    }

    /// The fencing token: higher than that of every earlier grant of this semaphore. Hand it to what the permit
    /// protects, and let that refuse lower ones. Among several holders at once it identifies, it does not order.
    pub fn fence(&self) -> u64 {
        self.holding.fence
    }

    /// Who holds: `<uuid>`, `<label>/<uuid>`, or the id that was chosen.
    pub fn id(&self) -> &str {
        &self.holding.id
    }

    /// How many permits this is.
    pub fn permits(&self) -> u32 {
        self.holding.permits()
    }

    /// The limit in force when it was granted, which may be another than the one declared. After
    /// [`adopt`](crate::Semaphore::adopt) the one declared, since nobody told another.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The place in the queue that it waited at; `None` when it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// How long it is still held, by this machine's clocks and early rather than late: zero when it is lost, `None` when
    /// its lease is permanent. Does not block and asks nobody.
    pub fn remaining(&self) -> Option<Duration> {
        self.holding.remaining()
    }

    /// Whether it is not ours any more, by this machine's clocks and what is known. Once true it stays true. Does not
    /// block and asks nobody; so a revoked permit shows only after the next refresh.
    pub fn is_lost(&self) -> bool {
        self.holding.is_lost()
    }

    /// Gives it a new lease, counted from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] when it is not ours any more; it never comes back. On any other error it lives on until its
    /// old lease ends.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        self.engine.check_process()?;
        if self.is_lost() {
            return Err(RefreshError::Lost(self.holding.lost()));
        }
        let holding = &self.holding;
        let until = holding.deadline().instant();
        let answered = self.engine.call(until, &mut |con| {
            semaphore::refresh(con, &holding.keys, &holding.id, holding.terms.lease_ms)
        })?;
        match answered.reply {
            Some(grant)
                if holding.extend(grant.fence, Deadline::told(answered.sent, grant.left())) =>
            {
                Ok(())
            }
            _ => {
                self.engine.renewal.forget(holding);
                holding.end();
                Err(RefreshError::Lost(holding.lost()))
            }
        }
    }

    /// Gives it back. Blocks for one round trip; whoever is first in line has it when this returns.
    ///
    /// # Errors
    /// [`ReleaseError`] when the server did not confirm: it has the permit, to try again with. Dropping the error
    /// releases in the background.
    pub fn release(mut self) -> Result<Released, ReleaseError> {
        if let Err(error) = self.engine.check_process() {
            return Err(ReleaseError::new(self, error));
        }
        self.engine.renewal.forget(&self.holding);
        if self.may_be_somebody_else_s() {
            self.armed = false;
            return Ok(Released::Gone);
        }
        let (keys, id) = (&self.holding.keys, &self.holding.id);
        let answered = self
            .engine
            .call(None, &mut |con| semaphore::release(con, keys, id, 0));
        match answered {
            Ok(answered) => {
                self.armed = false;
                self.holding.end();
                Ok(match answered.reply {
                    ReleaseAnswer::Released { .. } => Released::Released,
                    ReleaseAnswer::Cancelled | ReleaseAnswer::Gone => Released::Gone,
                })
            }
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }

    /// Gives `permits` of them back and keeps the rest, at least one. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Invalid`] for 0, or for as many as it has (use [`release`](Permit::release));
    /// [`RefreshError::Lost`] when it is not ours any more. After any other error the same call may be made again: what
    /// is kept is told to the server, not what goes.
    pub fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        self.engine.check_process()?;
        let held = self.permits();
        if permits == 0 || permits >= held {
            let why = format!(
                "takes 1 to {}, got {permits}; `release` gives all back",
                held.saturating_sub(1)
            );
            return Err(Invalid::new("permits", why).into());
        }
        let (keys, id, keep) = (&self.holding.keys, &self.holding.id, held - permits);
        let answered = self
            .engine
            .call(None, &mut |con| semaphore::release(con, keys, id, keep))?;
        match answered.reply {
            ReleaseAnswer::Released { left, .. } => {
                self.holding.set_permits(left);
                Ok(())
            }
            ReleaseAnswer::Cancelled | ReleaseAnswer::Gone => {
                self.engine.renewal.forget(&self.holding);
                self.holding.end();
                Err(RefreshError::Lost(self.holding.lost()))
            }
        }
    }

    /// Lets go without releasing, and returns the id, with which [`Semaphore::adopt`](crate::Semaphore::adopt) takes over
    /// in another process within [`remaining`](Permit::remaining). It is renewed no more.
    pub fn into_id(mut self) -> String {
        self.armed = false;
        if self.engine.connections.is_own_process() {
            self.engine.renewal.forget(&self.holding);
            self.holding.end();
        }
        self.holding.id.clone()
    }

    /// A lost permit with an id of the user's own: whoever uses the id now may hold again, and releasing would hit that.
    fn may_be_somebody_else_s(&self) -> bool {
        self.holding.terms.own_id && self.is_lost()
    }

    /// Makes a lease permanent once it is known that the permit is held; if that fails, it is given back.
    pub(crate) fn make_permanent(&self) -> Result<(), CallError> {
        match self.refresh() {
            Ok(()) => Ok(()),
            Err(RefreshError::Lost(lost)) => {
                let text = format!("could not be made permanent in time: {lost}");
                Err(CallError::Failed(Failure::new(FailureKind::TimedOut, text)))
            }
            Err(RefreshError::Invalid(invalid)) => Err(CallError::Invalid(invalid)),
            Err(RefreshError::Failed(failure)) => Err(CallError::Failed(failure)),
            Err(RefreshError::Unknown(failure)) => Err(CallError::Unknown(failure)),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // In a forked child even a lock may be held by a thread that does not exist there.
        if !self.armed || !self.engine.connections.is_own_process() {
            return;
        }
        self.engine.renewal.forget(&self.holding);
        if self.may_be_somebody_else_s() {
            return;
        }
        self.holding.end();
        let (keys, id) = (&self.holding.keys, &self.holding.id);
        let until = Instant::now() + DROP_BOUND;
        let released = self
            .engine
            .connections
            .call(Some(until), &mut |con| semaphore::release(con, keys, id, 0));
        if let Err(unanswered) = released {
            // Until the lease has ended on the server, where a refresh whose reply was lost may have moved the end.
            let lease = Duration::from_millis(self.holding.terms.lease_ms);
            let lease_end = self.holding.deadline().instant();
            let end = lease_end.and_then(|end| Some(end.max(until.checked_add(lease)?)));
            let end = end.filter(|_| !lease.is_zero()); // a permanent one has no end
            self.engine.release_later(keys, id, unanswered.wire, end);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.id())
            .field("permits", &self.permits())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fence {}, ", self.id(), self.fence())?;
        match self.remaining() {
            None => f.write_str("permanent)"),
            Some(left) if left.is_zero() => f.write_str("lost)"),
            Some(left) => write!(f, "{left:.1?} left)"),
        }
    }
}

/// A release that could not be confirmed. It has the permit, so that it can be tried again; dropping it releases in the
/// background.
#[derive(Debug)]
pub struct ReleaseError {
    permit: Box<Permit>,
    error: CallError,
}

impl ReleaseError {
    fn new(permit: Permit, error: CallError) -> ReleaseError {
        ReleaseError {
            permit: Box::new(permit),
            error,
        }
    }

    /// The permit, still to be released.
    #[must_use = "dropping the permit releases it in the background"]
    pub fn into_permit(self) -> Permit {
        *self.permit
    }

    /// Why it could not be released.
    pub fn error(&self) -> &CallError {
        &self.error
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not released, try again with the permit in this error: {}",
            self.error
        )
    }
}

impl std::error::Error for ReleaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<ReleaseError> for Error {
    fn from(error: ReleaseError) -> Error {
        error.error.into()
    }
}
