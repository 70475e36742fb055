//! How permits are given back, one or several in a packet, and what comes of it.

use super::Permit;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Error};
use crate::lease::cleanup::{PendingRelease, Target};
use crate::lease::holding::Holding;
use crate::scripts::semaphore::{self, ReleaseAnswer};
use crate::shared::Engine;
use crate::trace::Operation;
use crate::transport::connections::{Parked, Turn, Unanswered};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long dropping a permit may take; what takes longer goes to the background.
pub(super) const DROP_BOUND: Duration = Duration::from_millis(100);

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Given back; whoever waits has it already.
    Released,
    /// There was nothing to give back: the lease had ended, or somebody revoked it.
    Gone,
}

/// A release that could not be confirmed. It has the permit, so that it can be tried again; dropping it releases in the
/// background.
#[derive(Debug)]
pub struct ReleaseError {
    permit: Box<Permit>,
    error: CallError,
}

impl ReleaseError {
    pub(super) fn new(permit: Permit, error: CallError) -> ReleaseError {
        ReleaseError {
            permit: Box::new(permit),
            error,
        }
    }

    pub(crate) fn into_parts(self) -> (Permit, CallError) {
        (*self.permit, self.error)
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

/// Gives these back, all of one gate, in one packet. Those that the server confirmed are not armed any more.
pub(crate) fn release_all(permits: &mut [Permit]) -> Result<Released, CallError> {
    if let Some(first) = permits.first() {
        first.engine.check_process()?;
    }
    let mut unconfirmed = Vec::new();
    give_back(permits, None, &mut unconfirmed)
}

/// As `release_all`, for at most 100 ms; the background does what takes longer.
pub(crate) fn drop_all(permits: &mut [Permit]) {
    drop_within(permits, DROP_BOUND);
}

/// As `release_all`, for at most `bound`; the background does what takes longer.
pub(crate) fn drop_within(permits: &mut [Permit], bound: Duration) {
    // In a forked child even a lock may be held by a thread that does not exist there.
    let engine = match permits.iter().find(|permit| permit.armed) {
        Some(armed) if armed.engine.servers.is_own_process() => armed.engine.clone(),
        _ => return,
    };
    let _busy = engine.clock().busy(); // until it is given back
    let until = engine.now() + bound;
    let mut unconfirmed = Vec::new();
    if bound.is_zero() {
        let armed = permits.iter().enumerate().filter(|(_, p)| p.armed);
        unconfirmed.push(Unconfirmed {
            places: armed.map(|(place, _)| place).collect(),
            error: CallError::Failed(Failure::new(FailureKind::TimedOut, "not tried")),
            wire: None,
        });
    } else {
        // What became of it shows in what is unconfirmed.
        let _ = give_back(permits, Some(until), &mut unconfirmed);
    }
    for unconfirmed in unconfirmed {
        let mut pending = Vec::new();
        for place in unconfirmed.places {
            let Some(permit) = permits.get_mut(place) else {
                continue;
            };
            permit.armed = false;
            let holding = &permit.holding;
            let lease = Duration::from_millis(holding.terms.lease_ms);
            pending.push(PendingRelease {
                keys: holding.keys.clone(),
                id: holding.id.clone(),
                target: Target::Fence(holding.fence),
                connection: unconfirmed.wire.clone(),
                // Until the lease has ended on the server, where a refresh whose reply was lost may have moved the end.
                until: match holding.deadline().instant() {
                    Some(told) if !lease.is_zero() => {
                        until.checked_add(lease).map(|latest| latest.max(told))
                    }
                    _ => None, // a permanent one has no end
                },
            });
        }
        engine.cleanup.release_later(pending);
    }
}

/// Permits of which no server said that they were given back.
pub(super) struct Unconfirmed {
    pub(super) places: Vec<usize>,
    pub(super) error: CallError,
    wire: Option<Parked>,
}

/// Gives back those that are armed; what was confirmed is not armed any more. Says what that comes to, and puts the rest into
/// `unconfirmed`.
pub(super) fn give_back(
    permits: &mut [Permit],
    until: Option<Instant>,
    unconfirmed: &mut Vec<Unconfirmed>,
) -> Result<Released, CallError> {
    let span = Operation::Release.on(permits.iter().map(Permit::key));
    span.tell(|| {
        *unconfirmed = give_back_armed(permits, until);
        match unconfirmed.first() {
            Some(unconfirmed) => Err(unconfirmed.error.clone()),
            // Those of an earlier attempt count too.
            None if permits.iter().any(|permit| permit.gone) => Ok(Released::Gone),
            None => Ok(Released::Released),
        }
    })
}

fn give_back_armed(permits: &mut [Permit], until: Option<Instant>) -> Vec<Unconfirmed> {
    for permit in permits.iter_mut().filter(|permit| permit.armed) {
        permit.engine.renewal.forget(&permit.holding);
        if permit.may_be_somebody_else_s() {
            permit.armed = false;
            permit.gone = true;
        }
    }
    match permits {
        [permit] if permit.armed => Vec::from_iter(give_one_back(permit, until).err()),
        [] | [_] => Vec::new(),
        [first, ..] => {
            let engine = first.engine.clone();
            give_several_back(&engine, permits, until)
        }
    }
}

/// A single one may go along with the calls of other threads.
fn give_one_back(permit: &mut Permit, until: Option<Instant>) -> Result<(), Unconfirmed> {
    let Holding { keys, id, .. } = &*permit.holding;
    let fence = permit.holding.own_fence();
    let released = permit.engine.servers.call(&keys.meta, until, &mut |con| {
        semaphore::release(con, keys, id, 0, fence)
    });
    match released {
        Ok(answered) => {
            permit.given_back(answered.reply, answered.repeated);
            Ok(())
        }
        Err(unanswered) => Err(Unconfirmed::of(
            std::slice::from_mut(permit),
            vec![0],
            unanswered,
        )),
    }
}

fn give_several_back(
    engine: &Engine,
    permits: &mut [Permit],
    until: Option<Instant>,
) -> Vec<Unconfirmed> {
    let armed = permits
        .iter()
        .enumerate()
        .filter(|(_, permit)| permit.armed);
    let (armed, holdings): (Vec<usize>, Vec<Arc<Holding>>) = armed
        .map(|(place, permit)| (place, permit.holding.clone()))
        .unzip();
    let calls = holdings.iter();
    let calls: Vec<_> = calls
        .map(|h| (&h.keys, h.id.as_str(), h.own_fence()))
        .collect();
    let packets = engine.servers.call_each(
        Turn::Last,
        &calls,
        |(keys, ..)| &keys.meta,
        until,
        &mut |con, calls| semaphore::release_all(con, calls),
    );
    let mut unconfirmed = Vec::new();
    for packet in packets {
        let places = packet
            .places
            .iter()
            .filter_map(|place| armed.get(*place).copied());
        let answered = match packet.outcome {
            Ok(answered) => answered,
            Err(unanswered) => {
                unconfirmed.push(Unconfirmed::of(permits, places.collect(), unanswered));
                continue;
            }
        };
        for (place, outcome) in places.zip(answered.reply) {
            match (outcome, permits.get_mut(place)) {
                (Ok(answer), Some(permit)) => permit.given_back(answer, answered.repeated),
                (Err(error), _) => unconfirmed.push(Unconfirmed {
                    places: vec![place],
                    error,
                    wire: None,
                }),
                (Ok(_), None) => {}
            }
        }
    }
    unconfirmed
}

impl Unconfirmed {
    /// Those at `places`, of a call without an answer.
    fn of(permits: &mut [Permit], places: Vec<usize>, unanswered: Unanswered) -> Unconfirmed {
        let is_unknown = matches!(unanswered.error, CallError::Unknown(_));
        for place in &places {
            if let Some(permit) = permits.get_mut(*place) {
                permit.asked |= is_unknown;
            }
        }
        Unconfirmed {
            places,
            error: unanswered.error,
            wire: unanswered.wire,
        }
    }
}

impl Permit {
    /// The server answered its release.
    fn given_back(&mut self, answer: ReleaseAnswer, repeated: bool) {
        self.armed = false;
        self.gone = !matches!(answer, ReleaseAnswer::Released { .. });
        // Found nothing, unless an earlier try of this very release took it.
        if self.gone && !self.asked && !repeated {
            self.holding.lose();
        }
        self.holding.end();
    }
}
