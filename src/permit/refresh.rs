//! Refreshes permits, one or several in a packet.

use super::Permit;
use crate::engine::mode::Mode;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, RefreshError};
use crate::trace::Operation;
use std::time::Instant;

/// Completes grants: starts the lease of permanent permits, and waits for replicas. If this fails, the caller releases
/// the permits.
pub(crate) async fn confirm(permits: &[&Permit], mode: Mode) -> Result<(), CallError> {
    if !permits.iter().any(|permit| permit.is_unconfirmed()) {
        return Ok(());
    }
    refresh_all(permits, None, None, mode).await.map_err(|error| match error {
        RefreshError::Lost(lost) => {
            let text = format!("the lease of the id {} ended before it was confirmed", lost.id);
            CallError::Failed(Failure::new(FailureKind::TimedOut, text))
        }
        RefreshError::Invalid(invalid) => CallError::Invalid(invalid),
        RefreshError::Failed(failure) => CallError::Failed(failure),
        RefreshError::Unknown(failure) => CallError::Unknown(failure),
    })
}

/// Refreshes these permits on request of the user.
pub(crate) async fn refresh(permits: &[&Permit], lease_ms: Option<u64>, mode: Mode) -> Result<(), RefreshError> {
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    span.run_async(refresh_all(permits, lease_ms, None, mode)).await
}

/// Refreshes these permits in one packet for each gate, with their own leases or with `lease_ms`. If one of them is
/// lost, it refreshes none. Waits for the replies until `until` at most.
pub(crate) async fn refresh_all(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
    mode: Mode,
) -> Result<(), RefreshError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    if let Some(lost) = permits.iter().find(|permit| permit.is_lost()) {
        return Err(RefreshError::Lost(lost.state.identity.lost()));
    }
    let ends = permits.iter().filter_map(|permit| permit.state.deadline());
    let until = ends.chain(until).min();
    let mut all = Ok(());
    for permits in permits.chunk_by(|one, next| one.is_of_same_gate(next)) {
        let refreshed = refresh_each(permits, lease_ms, until, mode).await;
        all = all.and(refreshed.into_iter().collect());
    }
    all
}

/// Refreshes each of these permits, all of one gate. Returns a result for each.
pub(super) async fn refresh_each(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
    mode: Mode,
) -> Vec<Result<(), RefreshError>> {
    let Some(first) = permits.first() else {
        return Vec::new();
    };
    let permits: Vec<_> = permits.iter().map(|permit| (permit.state.number, &*permit.state.identity)).collect();
    first.shared.permits.refresh(&permits, lease_ms, until, mode).await
}
