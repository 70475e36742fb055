//! The permit: the guard that a grant is.

mod release;
mod several;

pub use release::{ReleaseError, Released};
pub(crate) use release::{drop_all, drop_within, release_all};

use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Invalid, RefreshError};
use crate::lease::holding::{Holding, Terms};
use crate::protocol::lease::{self, Deadline};
use crate::protocol::name::Keys;
use crate::scripts::semaphore::{self, ReleaseAnswer};
use crate::scripts::unexpected;
use crate::shared::Engine;
use crate::trace::Operation;
use crate::transport::connections::Turn;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// A release of it was not answered, so it may be carried out already.
    asked: bool,
    /// Its release found nothing.
    gone: bool,
    /// It was released together with others, which failed: dropping it does not try again in the dropping thread.
    tried: bool,
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
            asked: false,
            gone: false,
            tried: false,
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

    /// The keys of its semaphore, for scripts of your own; see [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        &self.holding.keys
    }

    /// How many permits this is; 0 in a forked child.
    pub fn permits(&self) -> u32 {
        self.holding.permits()
    }

    /// The limit in force when it was granted, which may be another than the one declared. After
    /// [`adopt`](crate::Semaphore::adopt) the one declared (0: none was), since nobody told another.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The place in the queue that it waited at; `None` when it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// How long it is still held, by this machine's clocks and early rather than late: zero when it is lost, and in a forked
    /// child; `None` when its lease is permanent. Does not block and asks nobody.
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
    /// old lease ends; after [`RefreshError::Unknown`] it counts by the earlier of the old end and the new.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), None)
    }

    /// Gives it a lease of another length, 1 ms to 100 years, counted from now. Where it is renewed, the next renewal comes
    /// back to its own. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh); [`RefreshError::Invalid`] for a lease that cannot be.
    pub fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), Some(lease::to_ms(lease)?))?;
        self.engine.renewal.watch(&self.holding); // its end is another now
        Ok(())
    }

    /// Renews it no more: it lives until its current lease ends, unless [`refresh`](Permit::refresh) gives it a new one by
    /// hand. [`on_lost`](crate::Semaphore::on_lost) still reports its end. A renewal that is under way still counts, so
    /// look at [`remaining`](Permit::remaining) again after a round trip. A permanent permit, and one that is not renewed,
    /// stay as they are. Does not block and asks nobody.
    pub fn stop_renewal(&self) {
        if self.engine.servers.is_own_process() {
            self.engine.renewal.stop(&self.holding);
        }
    }

    /// Gives it back. Blocks for one round trip; whoever is first in line has it when this returns.
    ///
    /// # Errors
    /// [`ReleaseError`] when the server did not confirm: it has the permit, to try again with. Dropping the error
    /// releases in the background.
    pub fn release(mut self) -> Result<Released, ReleaseError> {
        match release_all(slice::from_mut(&mut self)) {
            Ok(released) => Ok(released),
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
        let span = Operation::ReleaseSome.on([self.key()]);
        span.run(|| self.keep_less(permits))
    }

    fn keep_less(&self, permits: u32) -> Result<(), RefreshError> {
        self.engine.check_process()?;
        if self.is_lost() {
            // With an id of the user's own it may be somebody else's by now.
            return Err(RefreshError::Lost(self.holding.lost()));
        }
        let held = self.permits();
        if permits == 0 || permits >= held {
            let why = format!(
                "takes 1 to {}, got {permits}; `release` gives all back",
                held.saturating_sub(1)
            );
            return Err(Invalid::new("permits", why).into());
        }
        let (keys, id, keep) = (&self.holding.keys, &self.holding.id, held - permits);
        let fence = self.holding.own_fence();
        let answered = self.engine.call(&keys.meta, None, &mut |con| {
            semaphore::release(con, keys, id, keep, fence)
        })?;
        match answered.reply {
            ReleaseAnswer::Released { left, .. } => {
                self.holding.set_permits(left);
                Ok(())
            }
            ReleaseAnswer::Cancelled | ReleaseAnswer::Gone => {
                self.engine.renewal.forget(&self.holding);
                self.holding.lose();
                Err(RefreshError::Lost(self.holding.lost()))
            }
        }
    }

    /// Lets go without releasing, and returns the id, with which [`Semaphore::adopt`](crate::Semaphore::adopt) takes over
    /// in another process within [`remaining`](Permit::remaining). It is renewed no more.
    pub fn into_id(mut self) -> String {
        self.armed = false;
        if self.holding.is_own_process() {
            self.engine.renewal.forget(&self.holding);
            self.holding.end();
        }
        self.holding.id.clone()
    }

    pub(crate) fn key(&self) -> &str {
        &self.holding.keys.meta
    }

    /// A lost permit with an id of the user's own: whoever uses the id now may hold again, and releasing would hit that.
    fn may_be_somebody_else_s(&self) -> bool {
        self.holding.terms.own_id && self.is_lost()
    }

    /// The same permit under other terms: the lease that it has now goes on.
    pub(crate) fn under(mut self, terms: &Terms) -> Permit {
        self.engine.renewal.forget(&self.holding);
        self.armed = false;
        let holding = self.holding.under(terms);
        Permit::new(self.engine.clone(), holding, self.limit, self.ticket)
    }
}

/// What is left to do once it is known that these are held: a permanent lease begins now, and replicas confirm. Where that fails
/// they are given back.
pub(crate) fn confirm(permits: &[Permit]) -> Result<(), CallError> {
    let unconfirmed =
        |permit: &Permit| permit.holding.terms.lease_ms == 0 || permit.engine.replicas.is_some();
    if !permits.iter().any(unconfirmed) {
        return Ok(());
    }
    refresh_all(permits, None, None).map_err(|error| match error {
        RefreshError::Lost(lost) => {
            let text = format!("could not be confirmed in time: {lost}");
            CallError::Failed(Failure::new(FailureKind::TimedOut, text))
        }
        RefreshError::Invalid(invalid) => CallError::Invalid(invalid),
        RefreshError::Failed(failure) => CallError::Failed(failure),
        RefreshError::Unknown(failure) => CallError::Unknown(failure),
    })
}

/// Gives these a new lease because the user says so.
pub(crate) fn refresh(permits: &[Permit], lease_ms: Option<u64>) -> Result<(), RefreshError> {
    let span = Operation::Refresh.on(permits.iter().map(Permit::key));
    span.run(|| refresh_all(permits, lease_ms, None))
}

/// Gives these, all of one gate, a new lease in one packet: their own, or one of `lease_ms`; none where one is lost. Waits for
/// the reply until `until` at most.
pub(crate) fn refresh_all(
    permits: &[Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Result<(), RefreshError> {
    let Some(first) = permits.first() else {
        return Ok(());
    };
    first.engine.check_process()?;
    if let Some(lost) = permits.iter().find(|permit| permit.is_lost()) {
        return Err(RefreshError::Lost(lost.holding.lost()));
    }
    let ends = permits
        .iter()
        .filter_map(|p| p.holding.deadline().instant());
    let until = ends.chain(until).min();
    let permits: Vec<&Permit> = permits.iter().collect();
    let outcomes = refresh_each(&first.engine, &permits, lease_ms, until);
    outcomes.into_iter().collect()
}

/// Gives each of these, all of this gate, a new lease, and says what came of each.
fn refresh_each(
    engine: &Engine,
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Vec<Result<(), RefreshError>> {
    let lease_of = |h: &Holding| lease_ms.unwrap_or(h.terms.lease_ms);
    let calls = permits.iter().map(|permit| &permit.holding);
    let calls: Vec<_> = calls
        .map(|h| (&h.keys, h.id.as_str(), lease_of(h), h.own_fence()))
        .collect();
    let sent = engine.clock().moment();
    let packets = engine.servers.call_each(
        Turn::Last,
        &calls,
        |(keys, ..)| &keys.meta,
        until,
        &mut |con, calls| semaphore::refresh_all(con, calls, engine.replicas.as_ref()),
    );
    let unanswered = |_: &&Permit| Err(unexpected(&"no answer").into());
    let mut outcomes: Vec<_> = permits.iter().map(unanswered).collect();
    let mut tell = |place: usize, outcome| {
        if let Some(told) = outcomes.get_mut(place) {
            *told = outcome;
        }
    };
    for packet in packets {
        let group = packet.places.iter();
        let group = group.filter_map(|place| Some((*place, &permits.get(*place)?.holding)));
        let answered = match packet.outcome {
            Ok(answered) => answered,
            Err(unanswered) => {
                for (place, holding) in group {
                    if let CallError::Unknown(_) = unanswered.error {
                        holding.may_end(sent, lease_of(holding));
                    }
                    tell(place, Err(unanswered.error.clone().into()));
                }
                continue;
            }
        };
        for ((place, holding), outcome) in group.zip(answered.reply) {
            let refreshed = match outcome {
                Ok(Some(grant))
                    if holding.extend(&grant, Deadline::told(answered.sent, grant.left())) =>
                {
                    Ok(())
                }
                Ok(_) => {
                    engine.renewal.forget(holding);
                    holding.lose();
                    Err(RefreshError::Lost(holding.lost()))
                }
                Err(error) => Err(error.into()),
            };
            tell(place, refreshed);
        }
    }
    outcomes
}

impl Drop for Permit {
    fn drop(&mut self) {
        let bound = if self.tried {
            Duration::ZERO
        } else {
            release::DROP_BOUND
        };
        drop_within(slice::from_mut(self), bound);
    }
}

impl AsRef<Permit> for Permit {
    fn as_ref(&self) -> &Permit {
        self
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
