//! The library's own calls, recorded.

use super::{Full, Granted, Lease, Op, Outcome, Recorder};
use crate::support::random::Random;
use luagate::errors::{AcquireError, Denied, FailureKind, PermitError, ReleaseError, TryAcquireError};
use luagate::{Permit, Released, Semaphore};
use std::time::{Duration, Instant};

/// The minimum time that a waiter keeps trying to reach the server: see `GateBuilder::outage_timeout`.
const OUTAGE: Duration = Duration::from_secs(10);

/// A semaphore of the library whose calls are recorded. `lease` is the semaphore's lease.
#[derive(Clone)]
pub struct Recorded<'a> {
    pub recorder: &'a Recorder,
    pub semaphore: Semaphore,
    pub lease: Lease,
    head_start_ms: u64,
}

/// Usually none.
pub fn any_head_start(random: &mut Random) -> Duration {
    Duration::from_millis(match random.below(16) {
        0 => 5,
        1 => 200,
        2 => 86_400_000,
        _ => 0,
    })
}

impl Recorded<'_> {
    pub fn new(recorder: &Recorder, semaphore: Semaphore, lease: Duration) -> Recorded<'_> {
        let semaphore = semaphore.lease(luagate::Lease::fixed(lease));
        Recorded { recorder, semaphore, lease: Lease::Ms(lease.as_millis() as u64), head_start_ms: 0 }
    }

    pub fn head_start(mut self, by: Duration) -> Self {
        self.semaphore = self.semaphore.head_start(by);
        self.head_start_ms = by.as_millis() as u64;
        self
    }

    fn asks(&self, permits: Option<u32>, waits: bool) -> Op {
        let lease = self.lease;
        Op::Acquire { permits, lease, waits, head_start_ms: self.head_start_ms }
    }

    fn record<T>(&self, op: &Op, call: impl FnOnce() -> T, reported: impl FnOnce(&T) -> Outcome) -> T {
        let started = self.recorder.start(self.semaphore.name(), op);
        let result = call();
        started.end(&reported(&result));
        result
    }

    pub fn try_acquire_many(&self, permits: u32) -> Result<Permit, TryAcquireError> {
        let op = self.asks(Some(permits), false);
        self.record(&op, || self.semaphore.try_acquire_many(permits), tried)
    }

    pub fn try_acquire_available(&self) -> Result<Permit, TryAcquireError> {
        let op = self.asks(None, false);
        self.record(&op, || self.semaphore.try_acquire_available(), tried)
    }

    pub fn acquire_many_timeout(&self, permits: u32, timeout: Duration) -> Result<Permit, AcquireError> {
        let call = || self.semaphore.acquire_many_timeout(permits, timeout);
        let started = Instant::now();
        let reported = |result: &Result<Permit, AcquireError>| match result {
            // A waiter in line keeps trying for longer, so nothing was sent.
            Err(AcquireError::Failed(failure))
                if failure.kind() == FailureKind::Unreachable && started.elapsed() < timeout.min(OUTAGE) =>
            {
                Outcome::Failed
            }
            result => waited(result),
        };
        self.record(&self.asks(Some(permits), true), call, reported)
    }

    pub fn acquire_many(&self, permits: u32) -> Result<Permit, AcquireError> {
        let call = || self.semaphore.acquire_many(permits);
        self.record(&self.asks(Some(permits), true), call, waited)
    }

    pub fn refresh(&self, permit: &Permit) -> Result<(), PermitError> {
        let op = Op::Refresh { id: permit.id().to_owned(), lease: self.lease };
        self.record(
            &op,
            || permit.refresh(),
            |result| match result {
                Ok(()) => Outcome::Refreshed(None),
                Err(PermitError::Lost(_)) => Outcome::Lost,
                Err(PermitError::Unknown(_)) => Outcome::Unknown,
                Err(_) => Outcome::Failed,
            },
        )
    }

    /// After an error the permit is in the error. Dropping it releases in the background, so the outcome is
    /// unknown.
    pub fn release(&self, permit: Permit) -> Result<Released, ReleaseError> {
        let op = release_of(&permit);
        self.record(
            &op,
            || permit.release(),
            |result| match result {
                Ok(Released::Released) => Outcome::Released,
                Ok(Released::Gone) => Outcome::Gone,
                Err(_) => Outcome::Unknown,
            },
        )
    }

    /// Drops the permit, which releases it; the outcome is unknown.
    pub fn drop(&self, permit: Permit) {
        let op = release_of(&permit);
        self.record(&op, || drop(permit), |()| Outcome::Unknown);
    }

    pub fn is_lost(&self, permit: &Permit) -> bool {
        let op = Op::Look { id: permit.id().to_owned() };
        self.record(&op, || permit.is_lost(), |is_lost| if *is_lost { Outcome::Lost } else { Outcome::Held })
    }
}

fn release_of(permit: &Permit) -> Op {
    Op::Release { id: permit.id().to_owned(), keep: 0 }
}

fn granted(permit: &Permit) -> Outcome {
    Outcome::Granted(Granted {
        id: permit.id().to_owned(),
        permits: permit.permits(),
        fence: permit.fence(),
        ticket: permit.ticket().map(|ticket| ticket.to_string().parse().unwrap()),
        expires_at: None,
    })
}

/// For leases with an end, a reply of the server always contains the time to ask again.
fn full(denied: &Denied) -> Full {
    Full {
        in_use: denied.in_use,
        limit: denied.limit,
        waiting: denied.waiting,
        answered: denied.next_expiry.is_some(),
    }
}

fn tried(result: &Result<Permit, TryAcquireError>) -> Outcome {
    match result {
        Ok(permit) => granted(permit),
        Err(TryAcquireError::Denied(denied)) => Outcome::Denied(Full { answered: true, ..full(denied) }),
        Err(TryAcquireError::Unknown(_)) => Outcome::Unknown,
        Err(_) => Outcome::Failed,
    }
}

/// A failed wait may have been in line, so its outcome is unknown.
fn waited(result: &Result<Permit, AcquireError>) -> Outcome {
    match result {
        Ok(permit) => granted(permit),
        Err(AcquireError::TimedOut(denied)) => Outcome::TimedOut(full(denied)),
        Err(AcquireError::Cancelled(_)) => Outcome::Cancelled,
        Err(AcquireError::Invalid(_)) => Outcome::Failed,
        Err(_) => Outcome::Unknown,
    }
}
