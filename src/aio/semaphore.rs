//! The counting semaphore.

use super::permit::Permit;
use crate::engine::mode::Mode;
use crate::error::{AcquireError, CallError, RefreshError, TryAcquireError};
use crate::guard::settings;
use crate::inspection::Inspection;
use crate::semaphore::{Resized, Revoked};
use crate::wait::waits::Caller;
use std::fmt;
use std::time::{Duration, Instant};

/// A counting semaphore: it limits how many permits are held at the same time, over all processes that use its name.
///
/// [`Gate::semaphore`](crate::aio::Gate::semaphore) creates it. It consists of a name and settings: clones are cheap, and
/// any number of tasks can share it. Each acquire has a new id, so 20 tasks with one `Semaphore` are 20 callers.
///
/// It is fair: first come, first served, over all processes and both APIs. No caller overtakes the line. A request for
/// many permits at the head of the line holds back the smaller requests behind it until enough permits are free.
///
/// By default a permit has a lease of 30 s, which is renewed until the permit is dropped.
#[derive(Clone)]
pub struct Semaphore(pub(crate) crate::Semaphore);

settings!(Semaphore);

impl Semaphore {
    fn with(self, set: impl Fn(crate::Semaphore) -> crate::Semaphore) -> Semaphore {
        Semaphore(set(self.0))
    }

    /// An id chosen by the application. See [`luagate::Semaphore::id`](crate::Semaphore::id).
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        self.with(|semaphore| semaphore.id(id))
    }

    /// Refuses to take permits if the limit in force differs from the declared one. See
    /// [`luagate::Semaphore::strict`](crate::Semaphore::strict).
    #[must_use]
    pub fn strict(self) -> Self {
        self.with(crate::Semaphore::strict)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Takes a permit if one is free and no caller waits.
    ///
    /// # Errors
    /// [`TryAcquireError::Denied`] if no permit is free or others wait. It contains the time when the next lease
    /// expires. After any error nothing stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire(&self) -> Result<Permit, TryAcquireError> {
        self.try_acquire_many(1).await
    }

    /// Takes `permits` permits together, if that many are free and no caller waits. Otherwise it takes none.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire). [`TryAcquireError::Invalid`] for 0 permits.
    /// [`TryAcquireError::AboveLimit`] for more than the limit in force.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Permit, TryAcquireError> {
        self.at_once(Some(permits)).await
    }

    /// Takes all permits that are free now, at least one, if no caller waits. [`Permit::permits`] returns the number.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_all(&self) -> Result<Permit, TryAcquireError> {
        self.at_once(None).await
    }

    /// Takes a permit. Waits in line until it is granted, without a time limit.
    ///
    /// # Errors
    /// [`AcquireError`]. If the server cannot be reached, the wait fails at once at its first call, and later after
    /// [`GateBuilder::outage`](crate::aio::GateBuilder::outage). After any error nothing stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and a grant that still arrives is released. Within a round trip
    /// the next caller is served.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1).await
    }

    /// Takes `permits` permits together. Waits in line until they are granted. At the head of the line, the request
    /// holds back smaller requests behind it, so it does not starve.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire). [`AcquireError::Invalid`] for 0 permits. [`AcquireError::AboveLimit`] for
    /// more than the limit in force.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit, AcquireError> {
        self.in_line(permits, None).await
    }

    /// Takes a permit. Waits in line for at most `timeout`, and returns after at most `timeout` plus 50 ms.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] if it was not granted in time; the caller leaves the line. [`AcquireError::Invalid`]
    /// for a timeout of zero. Otherwise as [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.acquire_many_timeout(1, timeout).await
    }

    /// Takes `permits` permits together. Waits in line for at most `timeout`, and returns after at most `timeout` plus
    /// 50 ms.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Semaphore::acquire_timeout) and [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_many_timeout(&self, permits: u32, timeout: Duration) -> Result<Permit, AcquireError> {
        let deadline = self.0.deadline(timeout)?;
        self.in_line(permits, deadline).await
    }

    /// As `acquire_many_timeout`, until `deadline`. If `deadline` has passed, it tries once without waiting.
    pub(super) async fn acquire_many_until(&self, permits: u32, deadline: Instant) -> Result<Permit, AcquireError> {
        match self.0.until(deadline) {
            None => self.try_acquire_many(permits).await.map_err(TryAcquireError::too_late),
            Some(left) => self.acquire_many_timeout(permits, left).await,
        }
    }

    /// Takes over the permit that `id` holds, and starts a new lease. The previous holder can be another process, or
    /// this process before a restart. Takes two round trips.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if `id` holds nothing. [`RefreshError::Failed`] also while a release of `id` by this gate
    /// is not confirmed.
    ///
    /// # Cancel safety
    /// If this is dropped, the permit stays held by `id` until the end of its lease, and can be adopted again.
    pub async fn adopt(&self, id: &str) -> Result<Permit, RefreshError> {
        self.0.adopt_by(id, Mode::Async).await.map(Permit)
    }

    async fn at_once(&self, permits: Option<u32>) -> Result<Permit, TryAcquireError> {
        let watched =
            self.0.shared.watch(|polled| async move { self.0.at_once(permits, Caller::polled(&polled)).await })?;
        watched.await.map(Permit)
    }

    async fn in_line(&self, permits: u32, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        let watched = self
            .0
            .shared
            .watch(|polled| async move { self.0.acquire_by(permits, deadline, Caller::polled(&polled)).await })?;
        watched.await.map(Permit)
    }
}

/// Inspects a semaphore, and changes it for all callers.
impl Semaphore {
    /// Takes away what `id` has: its permits, or its place in line.
    ///
    /// A holder notices it at its next refresh. Until then, only the fence and [`HOLDS`](crate::scripts::HOLDS) prevent
    /// its writes. A waiter receives a message, and its wait ends with
    /// [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked). If the message is lost, or a proxy does not
    /// deliver messages, the waiter asks again within 5 s and gets its place in line again.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        self.0.revoke_by(id, Mode::Async).await
    }

    /// Sets the limit for all callers and pins it: it no longer expires with the state. A higher limit grants permits
    /// to the waiters at once. A lower limit revokes no permit.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a limit of 0 or above 2^31-1. Nothing is changed then.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn resize(&self, limit: u32) -> Result<Resized, CallError> {
        self.0.set_limit(limit, None, Mode::Async).await
    }

    /// As [`resize`](Semaphore::resize), but only if `expected` is the limit in force (0: no limit is stored).
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn compare_and_resize(&self, expected: u32, limit: u32) -> Result<Resized, CallError> {
        self.0.set_limit(limit, Some(expected), Mode::Async).await
    }

    /// Removes the pin from the limit. If there are no holders and no waiters, the limit is removed at once, and the
    /// next caller's declared limit applies. Otherwise the limit in force stays until the state expires, one minute
    /// after the last lease.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn unpin(&self) -> Result<(), CallError> {
        self.0.unpin_by(Mode::Async).await
    }

    /// Returns the number of permits that are free now. Waiters are not subtracted.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated. [`CallError::Invalid`] if no limit is stored and this caller declares
    /// none.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn available_permits(&self) -> Result<u32, CallError> {
        self.0.free(Mode::Async).await
    }

    /// Returns the holders and the waiters: the first 1,000 of each, and the total numbers.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect(&self) -> Result<Inspection, CallError> {
        self.inspect_page(0, 1_000).await
    }

    /// Returns at most `count` (up to 1,000) holders and as many waiters, each list without its first `offset` entries.
    /// Two pages show two different instants.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a count above 1,000.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect_page(&self, offset: u32, count: u32) -> Result<Inspection, CallError> {
        self.0.inspect_by(offset, count, Mode::Async).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
