//! Waits for permits of several semaphores, one semaphore after the other. The order is the same for all callers.

use super::SeveralPermits;
use crate::aio::permit::{self, Permit};
use crate::aio::semaphore::Semaphore;
use crate::aio::shared::Shared;
use crate::error::failure::FailureKind;
use crate::error::{AcquireSeveralError, RefreshError};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::waiter::LAST_CALL;
use crate::several::{Member, Members, check_timeout, not_acquired, too_late};
use std::time::{Duration, Instant};

/// Waits for the permits of all semaphores, for at most `timeout`. After an error nothing stays held.
pub(super) async fn acquire(
    members: &Members<Semaphore>,
    first: &Semaphore,
    timeout: Duration,
) -> Result<SeveralPermits, AcquireSeveralError> {
    check_timeout(timeout)?;
    let deadline = first.shared.now().checked_add(timeout); // no time limit if the clock cannot hold the deadline
    let leases = members.leases()?;
    let mut permits = Vec::with_capacity(leases.len());
    if let Err(error) = acquire_each(members, &leases, &first.shared, &mut permits, deadline).await {
        let latest = deadline.and_then(|end| end.checked_add(LAST_CALL));
        let left = latest.map(|end| end.saturating_duration_since(first.shared.now()));
        // Permits that are not released in time are released in the background.
        let released = permit::release_all(&mut permits);
        let _ = tokio::time::timeout(left.unwrap_or(LAST_CALL).min(LAST_CALL), released).await;
        return Err(error);
    }
    let permits = permits.into_iter().zip(members.iter()).zip(leases);
    let permits =
        permits.map(|((permit, member), lease)| permit.under(lease, member.semaphore.settings().on_lost.as_ref()));
    Ok(SeveralPermits::new(members.names(), permits.collect()))
}

/// Acquires one after the other, and then checks that all are held.
async fn acquire_each(
    members: &Members<Semaphore>,
    leases: &[LeaseOptions],
    shared: &Shared,
    permits: &mut Vec<Permit>,
    deadline: Option<Instant>,
) -> Result<(), AcquireSeveralError> {
    let is_over = || deadline.is_some_and(|end| end <= shared.now());
    for (Member { semaphore, permits: wanted }, lease) in members.iter().zip(leases) {
        if !permits.is_empty() && is_over() {
            return Err(late(semaphore));
        }
        // Permits that are already held are renewed during the next wait, even if their settings do not ask for
        // renewal.
        let meanwhile = LeaseOptions { renewed: lease.lease_ms > 0, ..*lease };
        let permit = semaphore.in_line(*wanted, meanwhile, None, deadline, permits).await;
        permits.push(permit.map_err(|error| not_acquired(error, semaphore.settings()))?);
    }
    let until = deadline.and_then(|end| end.checked_add(LAST_CALL));
    permit::refresh_all(permits, None, until).await.map_err(|error| match (&error, members.iter().next_back()) {
        (RefreshError::Unknown(failure) | RefreshError::Failed(failure), Some(last))
            if is_over() && failure.kind() == FailureKind::TimedOut =>
        {
            late(&last.semaphore)
        }
        _ => error.into(),
    })
}

fn late(semaphore: &Semaphore) -> AcquireSeveralError {
    semaphore.shared.servers.counts.denied.add_one();
    too_late(semaphore.settings())
}
