//! Waits for permits of several semaphores, one semaphore after the other. The order is the same for all callers.

use super::{Member, SeveralPermits};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{AcquireError, AcquireSeveralError, Blocked, Denied, Invalid, RefreshError};
use crate::permit::{self, Permit};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::waiter::LAST_CALL;
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use std::time::{Duration, Instant};

/// Waits for the permits of all semaphores, for at most `timeout`. After an error nothing stays held.
pub(super) fn acquire(
    members: &[Member],
    first: &Semaphore,
    timeout: Duration,
) -> Result<SeveralPermits, AcquireSeveralError> {
    if timeout.is_zero() {
        let why = "got 0. Accepted: more than 0. To acquire without waiting, use `try_acquire`";
        return Err(Invalid::new("timeout", why).into());
    }
    let deadline = first.shared.now().checked_add(timeout); // no time limit if the clock cannot hold the deadline
    let leases = members.iter().map(|member| member.semaphore.settings().lease_options());
    let leases: Vec<LeaseOptions> = leases.collect::<Result<_, _>>()?;
    let mut permits = Vec::with_capacity(members.len());
    if let Err(error) = acquire_each(members, &leases, &first.shared, &mut permits, deadline) {
        let latest = deadline.and_then(|end| end.checked_add(LAST_CALL));
        let left = latest.map(|end| end.saturating_duration_since(first.shared.now()));
        permit::drop_within(&mut permits, left.unwrap_or(LAST_CALL).min(LAST_CALL));
        return Err(error);
    }
    let permits = permits.into_iter().zip(members).zip(leases);
    let permits =
        permits.map(|((permit, member), lease)| permit.under(lease, member.semaphore.settings().on_lost.as_ref()));
    Ok(SeveralPermits::new(members, permits.collect()))
}

/// Acquires one after the other, and then checks that all are held.
fn acquire_each(
    members: &[Member],
    leases: &[LeaseOptions],
    shared: &Shared,
    permits: &mut Vec<Permit>,
    deadline: Option<Instant>,
) -> Result<(), AcquireSeveralError> {
    let is_over = || deadline.is_some_and(|end| end <= shared.now());
    for (Member { semaphore, permits: wanted }, lease) in members.iter().zip(leases) {
        if !permits.is_empty() && is_over() {
            return Err(too_late(semaphore));
        }
        // Permits that are already held are renewed during the next wait, even if their settings do not ask for
        // renewal.
        let meanwhile = LeaseOptions { renewed: lease.lease_ms > 0, ..*lease };
        let permit = semaphore.in_line(*wanted, meanwhile, None, deadline);
        permits.push(permit.map_err(|error| not_acquired(error, semaphore))?);
    }
    let until = deadline.and_then(|end| end.checked_add(LAST_CALL));
    permit::refresh_all(permits, None, until).map_err(|error| match (&error, members.last()) {
        (RefreshError::Unknown(failure) | RefreshError::Failed(failure), Some(last))
            if is_over() && failure.kind() == FailureKind::TimedOut =>
        {
            too_late(&last.semaphore)
        }
        _ => error.into(),
    })
}

fn too_late(semaphore: &Semaphore) -> AcquireSeveralError {
    semaphore.shared.servers.counts.denied.add_one();
    AcquireSeveralError::TimedOut(blocked(semaphore, None))
}

fn blocked(semaphore: &Semaphore, denied: Option<Denied>) -> Blocked {
    Blocked { name: semaphore.name().to_owned(), denied, usages: Vec::new() }
}

fn not_acquired(error: AcquireError, semaphore: &Semaphore) -> AcquireSeveralError {
    match error {
        AcquireError::TimedOut(denied) => AcquireSeveralError::TimedOut(blocked(semaphore, Some(denied))),
        AcquireError::LineFull(denied) => AcquireSeveralError::LineFull(blocked(semaphore, Some(denied))),
        AcquireError::Cancelled(cancelled) => AcquireSeveralError::Cancelled(cancelled),
        AcquireError::Revoked(revoked) => AcquireSeveralError::Revoked(revoked),
        AcquireError::LimitMismatch(mismatch) => AcquireSeveralError::LimitMismatch(mismatch),
        AcquireError::AboveLimit(above) => AcquireSeveralError::AboveLimit(above),
        AcquireError::Invalid(invalid) => AcquireSeveralError::Invalid(invalid),
        AcquireError::Failed(failure) => AcquireSeveralError::Failed(failure),
        AcquireError::Unknown(failure) => AcquireSeveralError::Unknown(failure),
        // Impossible for a new id.
        AcquireError::AlreadyHeld(_) => {
            let kind = FailureKind::UnexpectedReply;
            AcquireSeveralError::Unknown(Failure::new(kind, error.to_string()))
        }
    }
}
