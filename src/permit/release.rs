//! The release of permits: its result, its error, and how it is sent.

use super::Permit;
use crate::engine::mode::Mode;
use crate::engine::servers::CallOutcome;
use crate::error::{CallError, Error};
use crate::lease::releases::{Dropped, PendingRelease};
use crate::lua::SCRIPTS;
use crate::trace::Operation;
use luagate_core::call::{Call, Packed};
use luagate_core::exchange::BATCH;
use luagate_core::failure;
use luagate_core::held::{HeldPermit, HeldState};
use luagate_core::semaphore::ReleaseAnswer;
use std::{error, fmt};

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The permit was held until now, and is released.
    Released,
    /// There was nothing to release: the lease had ended, the permit was revoked, or the server had lost it.
    /// Another caller may have held it at the same time. If a release is sent again because its reply was
    /// lost, the first copy may have released the permit: then the result is [`Released`](Self::Released).
    Gone,
}

impl Released {
    /// The result for both together.
    fn or(self, other: Released) -> Released {
        if self == Released::Gone { self } else { other }
    }
}

/// A release that the server did not confirm. It contains the permit or the permits, so that the caller can
/// try again. Dropping this error releases in the background.
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

/// Releases a permit.
pub(super) async fn one(permit: Permit, mode: Mode) -> Result<Released, ReleaseError> {
    match all(std::slice::from_ref(&permit), mode).await {
        Ok(released) => Ok(released),
        Err(error) => Err(ReleaseError::new(permit, error)),
    }
}

/// Releases permits of any gates. Returns a result for each.
pub(super) async fn each(permits: Vec<Permit>, mode: Mode) -> Vec<Result<Released, ReleaseError>> {
    let results = release(&permits, mode).await;
    let results = permits.into_iter().zip(results);
    results.map(|(permit, result)| result.map_err(|error| ReleaseError::new(permit, error))).collect()
}

/// Releases these permits. A failure of one does not prevent the release of the others.
pub(crate) async fn all(permits: &[Permit], mode: Mode) -> Result<Released, CallError> {
    together(&release(permits, mode).await)
}

/// The result for several permits.
fn together(results: &[Result<Released, CallError>]) -> Result<Released, CallError> {
    results.iter().cloned().try_fold(Released::Released, |all, released| Ok(all.or(released?)))
}

/// Releases these permits, at most 100 of one gate in a packet. Returns a result for each; for one that is
/// released already, the result of that release.
async fn release(permits: &[Permit], mode: Mode) -> Vec<Result<Released, CallError>> {
    let mut results = Vec::with_capacity(permits.len());
    for packet in permits.chunk_by(Permit::is_of_same_gate).flat_map(|of_one_gate| of_one_gate.chunks(BATCH))
    {
        let Some(shared) = packet.first().map(|permit| &permit.shared) else { continue };
        if let Err(error) = shared.servers.check_process() {
            results.extend(packet.iter().map(|_| Err(error.clone().into())));
            continue;
        }
        let span = Operation::Release.on(packet.iter().map(Permit::key));
        let work = async {
            let calls: Vec<Option<Packed>> = packet.iter().map(Permit::begin_release).collect();
            let sent: Vec<Packed> = calls.iter().flatten().cloned().collect();
            let mut outcomes =
                shared.servers.send_all(&sent, shared.servers.patiently(mode)).await.into_iter();
            let outcomes =
                packet.iter().zip(calls).map(|(permit, call)| match call.and_then(|_| outcomes.next()) {
                    Some(outcome) => permit.released(outcome),
                    None => Ok(permit.earlier_release()),
                });
            let first = results.len();
            results.extend(outcomes);
            together(results.get(first..).unwrap_or_default())
        };
        let _ = span.tell(work).await; // the result is in `results`
    }
    results
}

/// Sends the release of a permit that is dropped, if there is something to release. Does not wait for the
/// reply.
pub(super) fn post(permit: &Permit) {
    // In a forked child, a lock may be held by a thread that does not exist there. So this returns before it
    // takes any lock.
    if !permit.is_own_process() {
        return;
    }
    let now = permit.shared.servers.clock.moment();
    if let Some(longest) = permit.shared.permits.drop_permit(permit.number, now) {
        let span = Operation::Release.on([permit.key()]);
        let pending = PendingRelease::of_permit(&permit.identity, longest, now.instant());
        let dropped = Dropped { permits: permit.shared.permits.clone(), number: permit.number, span };
        permit.shared.releases.post_dropped(pending, dropped);
    }
}

impl Permit {
    /// The call that releases it. `None` if there is nothing to release.
    fn begin_release(&self) -> Option<Packed> {
        self.shared.permits.begin_release(self.number).then(|| self.release_call(0).pack(&SCRIPTS))
    }

    /// Handles the outcome of its release.
    fn released(&self, outcome: CallOutcome) -> Result<Released, CallError> {
        let read = outcome.and_then(|answered| {
            let repeated = answered.sent.repeated.is_some(); // the server may have run it twice
            let answer = answered.read(|reply| self.release_call(0).answer(reply))?;
            let found = matches!(answer, ReleaseAnswer::Released { .. });
            self.keeper(|keeper, number| keeper.released(number, found, repeated));
            Ok(self.earlier_release())
        });
        read.map_err(|unanswered| {
            if !matches!(unanswered.error, failure::CallError::Unknown(_)) {
                self.change(HeldPermit::not_released);
            }
            unanswered.error.into()
        })
    }

    /// How an earlier release ended.
    fn earlier_release(&self) -> Released {
        match self.held(|held| held.state) {
            Some(HeldState::Gone) => Released::Gone,
            _ => Released::Released,
        }
    }
}
