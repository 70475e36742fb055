//! How permits are given back, one or several in a packet, and what comes of it.

use super::Permit;
use crate::clock::{machine_now, since};
use crate::error::{CallError, try_again};
use crate::lease::releases::PendingRelease;
use crate::protocol::call::{Call, Packed};
use crate::protocol::releases::Target;
use crate::protocol::semaphore::{Release, ReleaseAnswer};
use crate::trace::{Operation, words};
use crate::transport::PendingConnection;
use crate::transport::pool::Sending;
use crate::transport::route::{Outcome, Unanswered};
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

words! {
    Released { Released "released", Gone "gone" }
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
        ReleaseError { permit: Box::new(permit), error }
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

try_again!(ReleaseError "the release is not confirmed" "Call `into_permit` and try again");

/// Gives these back, in one packet for each gate. Those that the server confirmed are not armed any more.
pub(crate) fn release_all(permits: &mut [Permit]) -> Result<Released, CallError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    let mut all = Ok(Released::Released);
    for permits in permits.chunk_by_mut(Permit::is_of_same_gate) {
        let released = give_back(permits, None, &mut Vec::new());
        // One that fails does not keep the others from being released.
        all = match (all, released) {
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(Released::Gone), _) | (_, Ok(Released::Gone)) => Ok(Released::Gone),
            _ => Ok(Released::Released),
        };
    }
    all
}

/// As `release_all`, for at most 100 ms; the background does what takes longer.
pub(crate) fn drop_all(permits: &mut [Permit]) {
    drop_within(permits, DROP_BOUND);
}

/// As `release_all`, for at most `bound`; the background does what takes longer.
pub(crate) fn drop_within(permits: &mut [Permit], bound: Duration) {
    let begun = machine_now();
    for permits in permits.chunk_by_mut(Permit::is_of_same_gate) {
        drop_of_gate(permits, bound.saturating_sub(since(begun)));
    }
}

fn drop_of_gate(permits: &mut [Permit], bound: Duration) {
    // In a forked child even a lock may be held by a thread that does not exist there.
    let shared = match permits.iter().find(|permit| permit.armed) {
        Some(armed) if armed.shared.servers.is_own_process() => armed.shared.clone(),
        _ => return,
    };
    let _busy = shared.servers.clock.busy(); // until it is given back
    let until = shared.now() + bound;
    let mut unconfirmed = Vec::new();
    if !bound.is_zero() {
        // What became of it shows in who is still armed, and in what is unconfirmed.
        let _ = give_back(permits, Some(until), &mut unconfirmed);
    }
    let mut pending = Vec::new();
    for (index, permit) in permits.iter_mut().enumerate().filter(|(_, p)| p.armed) {
        let mut connections = unconfirmed.iter().filter(|other| other.index == index);
        let connection = connections.find_map(|other| other.connection.clone());
        permit.armed = false;
        let identity = &permit.identity;
        let lease = Duration::from_millis(identity.lease.lease_ms);
        pending.push(PendingRelease {
            keys: identity.keys.clone(),
            id: identity.id.clone(),
            target: Target::Fence(identity.fence),
            connection,
            // Until the lease has ended on the server, where a refresh whose reply was lost may have moved the end.
            until: match permit.deadline() {
                Some(told) if !lease.is_zero() => until.checked_add(lease).map(|latest| latest.max(told)),
                _ => None, // a permanent one has no end
            },
        });
    }
    shared.releases.later(pending);
}

/// A permit of which no server said that it was given back.
pub(super) struct Unconfirmed {
    pub(super) index: usize,
    pub(super) error: CallError,
    connection: Option<PendingConnection>,
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
    let Some(servers) = permits.first().map(|permit| permit.shared.servers.clone()) else {
        return Vec::new();
    };
    let sending = Sending { until, ..Sending::default() };
    if let [permit] = permits {
        let call = permit.begin_release();
        let outcome = call.map(|call| servers.send(&call, sending));
        return Vec::from_iter(outcome.and_then(|outcome| permit.released(0, outcome)));
    }
    let permits_with_indexes = permits.iter_mut().enumerate();
    let calls = permits_with_indexes.filter_map(|(index, p)| Some((index, p.begin_release()?)));
    let (indexes, calls): (Vec<usize>, Vec<Packed>) = calls.unzip();
    let outcomes = indexes.into_iter().zip(servers.send_all(&calls, sending));
    let released = outcomes.filter_map(|(index, outcome)| permits.get_mut(index)?.released(index, outcome));
    released.collect()
}

impl Permit {
    /// The call that gives it back, if there is anything to give back.
    fn begin_release(&mut self) -> Option<Packed> {
        if !self.armed {
            return None;
        }
        self.leave();
        if self.may_be_foreign() {
            (self.armed, self.gone) = (false, true);
            return None;
        }
        Some(self.release_call().pack())
    }

    fn release_call(&self) -> Release<'_> {
        Release { keys: &self.identity.keys, id: &self.identity.id, keep: 0, fence: self.identity.own_fence() }
    }

    /// Its release was answered, or not.
    fn released(&mut self, index: usize, outcome: Outcome) -> Option<Unconfirmed> {
        let read = outcome.and_then(|answered| {
            let repeated = answered.repeated;
            let answer = answered.read(|reply| self.release_call().answer(reply))?;
            Ok((answer, repeated))
        });
        match read {
            Ok((answer, repeated)) => {
                self.given_back(answer, repeated);
                None
            }
            Err(Unanswered { error, connection }) => {
                self.asked |= matches!(error, CallError::Unknown(_));
                Some(Unconfirmed { index, error, connection })
            }
        }
    }

    /// The server answered its release.
    fn given_back(&mut self, answer: ReleaseAnswer, repeated: bool) {
        self.armed = false;
        self.gone = !matches!(answer, ReleaseAnswer::Released { .. });
        // Found nothing, unless an earlier try of this very release took it.
        let is_lost = self.gone && !self.asked && !repeated;
        self.keeper(|keeper, number| {
            if is_lost {
                keeper.lose(number, false);
            }
            if let Some(held) = keeper.held(number) {
                held.end();
            }
        });
    }
}
