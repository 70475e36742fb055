//! Releases permits, one or several in a packet, and handles the results.

use super::Permit;
use crate::engine::mode::Mode;
use crate::engine::servers::{Outcome, Sending, Unanswered};
use crate::error::{CallError, Error};
use crate::protocol::call::Packed;
use crate::trace::{Operation, words};
use std::{error, fmt};

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The permit is released. The first waiter has it already.
    Released,
    /// There was nothing to release: the lease had ended, or the permit was revoked.
    Gone,
}

impl Released {
    /// The result for both together.
    fn or(self, other: Released) -> Released {
        if self == Released::Gone { self } else { other }
    }
}

words! {
    Released { Released "released", Gone "gone" }
}

/// A release that the server did not confirm. It contains the permit or the permits, so that the caller can try again.
/// Dropping this error releases in the background.
#[derive(Debug)]
pub struct ReleaseError<P = Permit> {
    permit: Box<P>,
    error: CallError,
}

impl<P> ReleaseError<P> {
    pub(crate) fn new(permit: P, error: CallError) -> ReleaseError<P> {
        ReleaseError { permit: Box::new(permit), error }
    }

    /// The permit. After [`CallError::Unknown`] it is unknown whether the server still counts it.
    #[must_use = "dropping the permit releases it in the background"]
    pub fn into_permit(self) -> P {
        *self.permit
    }

    /// The reason.
    pub fn error(&self) -> &CallError {
        &self.error
    }
}

impl<P> fmt::Display for ReleaseError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the release is not confirmed: {}. Call `into_permit` and try again", self.error)
    }
}

impl<P: fmt::Debug> error::Error for ReleaseError<P> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<P> From<ReleaseError<P>> for Error {
    fn from(error: ReleaseError<P>) -> Error {
        error.error.into()
    }
}

/// Releases these permits, in one packet for each gate. Those that are released already are skipped.
pub(crate) async fn release_all(permits: &[Permit], mode: Mode) -> Result<Released, CallError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    let mut all = Ok(Released::Released);
    for permits in permits.chunk_by(Permit::is_of_same_gate) {
        // A failure of one gate does not prevent the release of the others.
        let released = together(&give_back(permits, mode).await);
        all = all.and_then(|all| Ok(all.or(released?)));
    }
    all
}

/// The result for several permits.
fn together(results: &[Result<Released, CallError>]) -> Result<Released, CallError> {
    results.iter().cloned().try_fold(Released::Released, |all, released| Ok(all.or(released?)))
}

/// Releases these permits, all of one gate. Returns a result for each; for one that is released already, the result of
/// that release.
pub(super) async fn give_back(permits: &[Permit], mode: Mode) -> Vec<Result<Released, CallError>> {
    let Some(shared) = permits.first().map(|permit| &permit.shared) else {
        return Vec::new();
    };
    let mut results = Vec::with_capacity(permits.len());
    let span = Operation::Release.on(permits.iter().map(|permit| permit.state.key()));
    let work = async {
        let calls: Vec<Option<Packed>> = permits.iter().map(|permit| permit.state.begin_release()).collect();
        let sent: Vec<Packed> = calls.iter().flatten().cloned().collect();
        let mut outcomes = shared.servers.send_all(&sent, Sending::of(mode)).await.into_iter();
        results.extend(permits.iter().zip(calls).map(|(permit, call)| match call.and_then(|_| outcomes.next()) {
            Some(outcome) => permit.released(outcome),
            None => Ok(permit.state.earlier_release()),
        }));
        together(&results)
    };
    let _ = span.tell_async(work).await; // the result is in `results`
    results
}

impl Permit {
    /// Sends its release if there is something to release, without waiting for the reply.
    pub(super) fn post(&self) {
        // In a forked child, a lock may be held by a thread that does not exist there. So this returns before it takes any
        // lock.
        if self.state.is_own_process()
            && let Some((pending, dropped)) = self.state.end(self.shared.now())
        {
            self.shared.releases.post_dropped(pending, dropped);
        }
    }

    /// Handles the outcome of its release.
    fn released(&self, outcome: Outcome) -> Result<Released, CallError> {
        let read = outcome.and_then(|answered| {
            let repeated = answered.repeated;
            let answer = answered.read(|reply| self.state.read_release(reply))?;
            Ok(self.state.released(answer, repeated))
        });
        read.map_err(|Unanswered { error, .. }| {
            self.state.unanswered(&error);
            error
        })
    }
}
