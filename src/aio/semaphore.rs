//! The counting semaphore.

mod manage;

use super::permit::Permit;
use super::shared::Shared;
use crate::clock::{Clock, machine_now};
use crate::error::{AcquireError, Invalid, Lost, RefreshError, TryAcquireError};
use crate::lease::store::OnLost;
use crate::protocol::held::Identity;
use crate::protocol::id;
use crate::protocol::lease::{Deadline, LeaseOptions};
use crate::protocol::semaphore::{Lookup, LookupAnswer, Refresh};
use crate::semaphore::settings;
use crate::settings::Settings;
use crate::trace::Operation;
use std::fmt;
use std::sync::Arc;
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
pub struct Semaphore {
    pub(super) shared: Arc<Shared>,
    settings: Settings,
}

settings!(Semaphore);

impl Semaphore {
    /// The first call reports an invalid name or limit.
    pub(super) fn new(shared: Arc<Shared>, kind: &str, name: &str, limit: Option<u32>) -> Semaphore {
        let settings = Settings::new(&shared.prefix, shared.label.as_deref(), kind, name, limit);
        Semaphore { shared, settings }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.settings.name()
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
        self.in_line(permits, self.settings.lease_options()?, self.settings.on_lost.as_ref(), None, &[]).await
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
        if timeout.is_zero() {
            let why = "got 0. Accepted: more than 0. To acquire without waiting, use `try_acquire_many`";
            return Err(Invalid::new("timeout", why).into());
        }
        let deadline = self.shared.now().checked_add(timeout); // no time limit if the clock cannot hold the deadline
        self.in_line(permits, self.settings.lease_options()?, self.settings.on_lost.as_ref(), deadline, &[]).await
    }

    /// As `acquire_many_timeout`, until `deadline`. If `deadline` has passed, it tries once without waiting.
    pub(super) async fn acquire_many_until(&self, permits: u32, deadline: Instant) -> Result<Permit, AcquireError> {
        let left = deadline.saturating_duration_since(machine_now());
        match left.is_zero() {
            true => self.try_acquire_many(permits).await.map_err(TryAcquireError::too_late),
            false => self.acquire_many_timeout(permits, left).await,
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
        let span = Operation::Adopt.on([self.settings.keys()?.meta.as_ref()]);
        span.run_async(self.take_over(id)).await
    }

    async fn take_over(&self, id: &str) -> Result<Permit, RefreshError> {
        self.shared.check_process()?;
        id::check_id(id)?;
        let keys = self.settings.keys()?;
        let lease = LeaseOptions { own_id: true, ..self.settings.lease_options()? };
        self.shared.releases.settle(&self.shared.servers, keys, id, None).await?;
        let _busy = self.shared.servers.clock.busy(); // until the permit is registered for renewal
        let lost = || RefreshError::Lost(Lost { id: id.to_owned() });
        // The fence is read first: a delayed refresh must not change a later permit of the same id.
        let LookupAnswer::Held(found) = self.shared.call(&Lookup { keys, id }).await? else {
            return Err(lost());
        };
        let refresh = Refresh { keys, id, lease_ms: lease.lease_ms, fence: Some(found.fence) };
        let (grant, sent) = self.shared.call_at(&refresh).await?;
        let grant = grant.ok_or_else(lost)?;
        let identity = Identity { keys: keys.clone(), id: id.to_owned(), fence: grant.fence, lease };
        let deadline = Deadline::after(sent, grant.left());
        let permit = Permit::new(&self.shared, identity, &grant, deadline, self.settings.on_lost.as_ref());
        Ok(permit.with_limit(self.settings.limit()))
    }

    fn clock(&self) -> &Clock {
        &self.shared.servers.clock
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    async fn at_once(&self, permits: Option<u32>) -> Result<Permit, TryAcquireError> {
        let mut target = self.settings.target(permits, self.settings.lease_options()?)?;
        let span = Operation::TryAcquire.on([target.keys.meta.as_ref()]);
        let shared = &self.shared;
        shared.check_process()?; // before any lock
        let watched = shared.futures.watch(|polled| async move {
            loop {
                let busy = shared.servers.clock.busy(); // until the permit is registered for renewal
                let granted = shared.at_once(&mut target, &polled).await?;
                let permit = Permit::granted(shared, (granted, busy), self.settings.on_lost.as_ref()).await;
                if !polled.is_given_back() {
                    return Ok(permit?);
                }
                permit.map(Permit::forget).ok();
            }
        });
        span.run_async(watched).await
    }

    /// Takes permits in line, with these lease options instead of those of the semaphore. `held`: the permits that the
    /// caller holds meanwhile.
    pub(super) async fn in_line(
        &self,
        permits: u32,
        lease: LeaseOptions,
        on_lost: Option<&OnLost>,
        deadline: Option<Instant>,
        held: &[Permit],
    ) -> Result<Permit, AcquireError> {
        let mut target = self.settings.target(Some(permits), lease)?;
        let span = Operation::Acquire.on([target.keys.meta.as_ref()]);
        let shared = &self.shared;
        shared.check_process()?; // before any lock
        let watched = shared.futures.watch(|polled| async move {
            let cancel = self.settings.cancel.as_ref();
            polled.holds(held.iter().map(Permit::held).collect());
            loop {
                let granted = shared.in_line(&target, deadline, cancel, &polled).await?;
                let ticket = granted.0.ticket;
                let permit = Permit::granted(shared, granted, on_lost).await;
                if !polled.is_given_back() {
                    return Ok(permit?);
                }
                // While it was confirmed. The next wait has the same place.
                target.entry.ticket = ticket.unwrap_or_default();
                permit.map(Permit::forget).ok();
            }
        });
        span.run_async(watched).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
