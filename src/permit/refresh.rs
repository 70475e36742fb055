//! Refreshes permits, one or several in a packet.

use super::Permit;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, RefreshError};
use crate::shared::Shared;
use crate::trace::Operation;
use std::time::Instant;

/// Completes grants: starts the lease of permanent permits, and waits for replicas. If this fails, the caller releases
/// the permits.
pub(crate) fn confirm(permits: &[Permit]) -> Result<(), CallError> {
    let unconfirmed = |permit: &Permit| permit.state.identity.lease.lease_ms == 0 || permit.shared.has_replicas;
    if !permits.iter().any(unconfirmed) {
        return Ok(());
    }
    refresh_all(permits, None, None).map_err(|error| match error {
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
pub(crate) fn refresh(permits: &[Permit], lease_ms: Option<u64>) -> Result<(), RefreshError> {
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    span.run(|| refresh_all(permits, lease_ms, None))
}

/// Refreshes these permits in one packet for each gate, with their own leases or with `lease_ms`. If one of them is
/// lost, it refreshes none. Waits for the replies until `until` at most.
pub(crate) fn refresh_all(
    permits: &[Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Result<(), RefreshError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    if let Some(lost) = permits.iter().find(|permit| permit.is_lost()) {
        return Err(RefreshError::Lost(lost.state.identity.lost()));
    }
    let ends = permits.iter().filter_map(|permit| permit.state.deadline());
    let until = ends.chain(until).min();
    let outcomes = permits.chunk_by(Permit::is_of_same_gate).flat_map(|permits| match permits.first() {
        Some(first) => refresh_each(&first.shared, &permits.iter().collect::<Vec<_>>(), lease_ms, until),
        None => Vec::new(),
    });
    outcomes.collect::<Vec<_>>().into_iter().collect()
}

/// Refreshes each of these permits, all of this gate. Returns a result for each.
pub(super) fn refresh_each(
    shared: &Shared,
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Vec<Result<(), RefreshError>> {
    let permits = permits.iter().map(|permit| (permit.state.number, &*permit.state.identity));
    let permits: Vec<_> = permits.collect();
    shared.permits.refresh(&permits, lease_ms, until)
}
