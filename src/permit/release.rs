//! Releases permits, one or several in a packet, and handles the results.

use super::Permit;
use crate::clock::{machine_now, since};
use crate::error::{CallError, try_again};
use crate::protocol::call::Packed;
use crate::trace::{Operation, words};
use crate::transport::PendingConnection;
use crate::transport::pool::Sending;
use crate::transport::route::{Outcome, Unanswered};
use std::time::{Duration, Instant};

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The permit is released. The first waiter has it already.
    Released,
    /// There was nothing to release: the lease had ended, or the permit was revoked.
    Gone,
}

words! {
    Released { Released "released", Gone "gone" }
}

/// A release that the server did not confirm. It contains the permit, so that the caller can try again. Dropping this
/// error releases in the background.
#[derive(Debug)]
pub struct ReleaseError<P = Permit> {
    permit: Box<P>,
    error: CallError,
}

impl<P> ReleaseError<P> {
    pub(crate) fn new(permit: P, error: CallError) -> ReleaseError<P> {
        ReleaseError { permit: Box::new(permit), error }
    }

    pub(crate) fn into_parts(self) -> (P, CallError) {
        (*self.permit, self.error)
    }

    /// The permit, which is not released yet.
    #[must_use = "dropping the permit releases it in the background"]
    pub fn into_permit(self) -> P {
        *self.permit
    }

    /// The reason why the release failed.
    pub fn error(&self) -> &CallError {
        &self.error
    }
}

try_again!(ReleaseError<P> "the release is not confirmed" "Call `into_permit` and try again");

/// Releases these permits, in one packet for each gate. A permit whose release was confirmed is no longer armed.
pub(crate) fn release_all(permits: &mut [Permit]) -> Result<Released, CallError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    let mut all = Ok(Released::Released);
    for permits in permits.chunk_by_mut(Permit::is_of_same_gate) {
        let released = give_back(permits, None, &mut Vec::new());
        // A failure of one gate does not prevent the release of the others.
        all = match (all, released) {
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(Released::Gone), _) | (_, Ok(Released::Gone)) => Ok(Released::Gone),
            _ => Ok(Released::Released),
        };
    }
    all
}

/// As `release_all`, but returns within the time that dropping may take. The rest continues in the background.
pub(crate) fn drop_all(permits: &mut [Permit]) {
    let bounds = permits.iter().map(|permit| permit.shared.drop_bound);
    let bound = bounds.min().unwrap_or_default();
    drop_within(permits, bound);
}

/// As `release_all`, but returns after at most `bound`. The rest continues in the background.
pub(crate) fn drop_within(permits: &mut [Permit], bound: Duration) {
    let begun = machine_now();
    for permits in permits.chunk_by_mut(Permit::is_of_same_gate) {
        drop_of_gate(permits, bound.saturating_sub(since(begun)));
    }
}

fn drop_of_gate(permits: &mut [Permit], bound: Duration) {
    // In a forked child, a lock may be held by a thread that does not exist there. So this returns before it takes any
    // lock.
    let shared = match permits.iter().find(|permit| permit.state.armed) {
        Some(armed) if armed.shared.servers.is_own_process() => armed.shared.clone(),
        _ => return,
    };
    let _busy = shared.servers.clock.busy(); // until the permits are released
    let until = shared.now() + bound;
    let mut unconfirmed = Vec::new();
    if !bound.is_zero() {
        // The result is in `armed` and in `unconfirmed`.
        let _ = give_back(permits, Some(until), &mut unconfirmed);
    }
    let mut pending = Vec::new();
    for (index, permit) in permits.iter_mut().enumerate().filter(|(_, p)| p.state.armed) {
        let mut connections = unconfirmed.iter().filter(|other| other.index == index);
        let connection = connections.find_map(|other| other.connection.clone());
        pending.push(permit.state.pending(until, connection));
    }
    shared.releases.later(pending);
}

/// A permit whose release no server has confirmed.
pub(super) struct Unconfirmed {
    pub(super) index: usize,
    pub(super) error: CallError,
    connection: Option<PendingConnection>,
}

/// Releases the permits that are armed. A permit whose release was confirmed is no longer armed. Returns the result for
/// all, and stores the unconfirmed ones in `unconfirmed`.
pub(super) fn give_back(
    permits: &mut [Permit],
    until: Option<Instant>,
    unconfirmed: &mut Vec<Unconfirmed>,
) -> Result<Released, CallError> {
    let span = Operation::Release.on(permits.iter().map(|permit| permit.state.key()));
    span.tell(|| {
        *unconfirmed = give_back_armed(permits, until);
        match unconfirmed.first() {
            Some(unconfirmed) => Err(unconfirmed.error.clone()),
            // Permits that an earlier attempt released count too.
            None if permits.iter().any(|permit| permit.state.gone) => Ok(Released::Gone),
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
        let call = permit.state.begin_release();
        let outcome = call.map(|call| servers.send(&call, sending));
        return Vec::from_iter(outcome.and_then(|outcome| permit.released(0, outcome)));
    }
    let permits_with_indexes = permits.iter_mut().enumerate();
    let calls = permits_with_indexes.filter_map(|(index, p)| Some((index, p.state.begin_release()?)));
    let (indexes, calls): (Vec<usize>, Vec<Packed>) = calls.unzip();
    let outcomes = indexes.into_iter().zip(servers.send_all(&calls, sending));
    let released = outcomes.filter_map(|(index, outcome)| permits.get_mut(index)?.released(index, outcome));
    released.collect()
}

impl Permit {
    /// Handles the outcome of its release.
    fn released(&mut self, index: usize, outcome: Outcome) -> Option<Unconfirmed> {
        let read = outcome.and_then(|answered| {
            let repeated = answered.repeated;
            let answer = answered.read(|reply| self.state.read_release(reply))?;
            Ok((answer, repeated))
        });
        match read {
            Ok((answer, repeated)) => {
                self.state.released(answer, repeated);
                None
            }
            Err(Unanswered { error, connection }) => {
                self.state.unanswered(&error);
                Some(Unconfirmed { index, error, connection })
            }
        }
    }
}
