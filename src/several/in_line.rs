//! Waits for permits of several semaphores, one semaphore after the other. The order is the same for all callers.

use super::SeveralPermits;
use super::members::{Member, Members, check_timeout, not_acquired, too_late};
use crate::error::failure::FailureKind;
use crate::error::{AcquireSeveralError, RefreshError};
use crate::permit::{self, Permit};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::waiter::LAST_CALL;
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use crate::wait::Caller;
use std::time::{Duration, Instant};

/// Waits for the permits of all semaphores, for at most `timeout`. After an error nothing stays held.
pub(super) async fn acquire(
    members: &Members,
    first: &Semaphore,
    timeout: Duration,
    caller: Caller<'_>,
) -> Result<SeveralPermits, AcquireSeveralError> {
    check_timeout(timeout)?;
    let deadline = first.shared.now().checked_add(timeout); // no time limit if the clock cannot hold the deadline
    let leases = members.leases()?;
    let mut permits = Vec::with_capacity(leases.len());
    acquire_each(members, &leases, &first.shared, &mut permits, deadline, caller).await?;
    let permits = permits.into_iter().zip(members.iter()).zip(leases);
    let permits =
        permits.map(|((permit, member), lease)| permit.under(lease, member.semaphore.settings().on_lost.as_ref()));
    Ok(SeveralPermits::new(members.names(), permits.collect()))
}

/// Acquires one after the other, and then checks that all are held.
async fn acquire_each(
    members: &Members,
    leases: &[LeaseOptions],
    shared: &Shared,
    permits: &mut Vec<Permit>,
    deadline: Option<Instant>,
    caller: Caller<'_>,
) -> Result<(), AcquireSeveralError> {
    let is_over = || deadline.is_some_and(|end| end <= shared.now());
    for (Member { semaphore, permits: wanted }, lease) in members.iter().zip(leases) {
        if !permits.is_empty() && is_over() {
            return Err(late(semaphore));
        }
        // Permits that are already held are renewed during the next wait, even if their settings do not ask for
        // renewal.
        let meanwhile = LeaseOptions { renewed: lease.lease_ms > 0, ..*lease };
        caller.polled.inspect(|polled| polled.holds(permits.iter().map(Permit::renewal_end).collect()));
        let permit = semaphore.in_line(*wanted, meanwhile, None, deadline, caller).await;
        permits.push(permit.map_err(|error| not_acquired(error, semaphore.settings()))?);
    }
    let until = deadline.and_then(|end| end.checked_add(LAST_CALL));
    permit::refresh_all(&permits.iter().collect::<Vec<_>>(), None, until, caller.mode).await.map_err(|error| {
        match (&error, members.iter().next_back()) {
            (RefreshError::Unknown(failure) | RefreshError::Failed(failure), Some(last))
                if is_over() && failure.kind() == FailureKind::TimedOut =>
            {
                late(&last.semaphore)
            }
            _ => error.into(),
        }
    })
}

fn late(semaphore: &Semaphore) -> AcquireSeveralError {
    semaphore.shared.servers.counts.denied.add_one();
    too_late(semaphore.settings())
}
