//! Takes permits: at once, in line, or over from another process.

use super::Semaphore;
use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, Lost, PermitError, RunError, Ticket, TryAcquireError};
use crate::lease::permits::OnLost;
use crate::permit::{Permit, Released};
use crate::trace::Operation;
use crate::wait::Caller;
use crate::wait::polled::KeptTicket;
use luagate_core::id;
use luagate_core::lease::LeaseOptions;
use luagate_core::outbox::Ordered;
use luagate_core::semaphore::{Lookup, LookupAnswer, Refresh};
use luagate_core::waiter::{Granted, last_call_ends};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

impl Semaphore {
    /// Takes a permit if one is free and no caller waits. Blocks for one round trip. It does not wait, so it
    /// ignores
    /// [`cancelled_by`](Self::cancelled_by).
    ///
    /// # Errors
    /// [`TryAcquireError::Denied`] if no permit is free or others wait. The error contains the time until the
    /// next lease expires. If the server refuses the call [only for
    /// now](crate::guide::errors#errors-that-pass), it is repeated for the
    /// [read timeout](crate::GateBuilder::read_timeout). After any error nothing stays held.
    pub fn try_acquire(&self) -> Result<Permit, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// As [`try_acquire`](Semaphore::try_acquire), without blocking.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_async(&self) -> Result<Permit, TryAcquireError> {
        self.try_acquire_many_async(1).await
    }

    /// Takes `permits` permits together, if that many are free and no caller waits. Otherwise it takes none.
    /// Blocks for one round trip.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire). [`TryAcquireError::Invalid`] for 0 permits.
    /// [`TryAcquireError::AboveLimit`] for more than the limit in force.
    pub fn try_acquire_many(&self, permits: u32) -> Result<Permit, TryAcquireError> {
        block(|mode| self.at_once(Some(permits), Caller::of(mode)))
    }

    /// As [`try_acquire_many`](Semaphore::try_acquire_many), without blocking.
    ///
    /// # Errors
    /// As [`try_acquire_many`](Semaphore::try_acquire_many).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_many_async(&self, permits: u32) -> Result<Permit, TryAcquireError> {
        self.at_once_async(Some(permits)).await
    }

    /// Takes the permits that are free now, one or more, if no caller waits. It does not wait for the others.
    /// [`Permit::permits`] returns the number. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    #[doc(alias = "drainPermits")]
    pub fn try_acquire_available(&self) -> Result<Permit, TryAcquireError> {
        block(|mode| self.at_once(None, Caller::of(mode)))
    }

    /// As [`try_acquire_available`](Semaphore::try_acquire_available), without blocking.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_available_async(&self) -> Result<Permit, TryAcquireError> {
        self.at_once_async(None).await
    }

    /// Takes a permit. Waits in line, and blocks until it is granted, without a time limit. Another thread
    /// can end the wait through [`cancelled_by`](Semaphore::cancelled_by).
    ///
    /// # Errors
    /// [`AcquireError`]. If the server cannot be reached, the wait fails at once at its first call, and later
    /// after [`GateBuilder::outage_timeout`](crate::GateBuilder::outage_timeout). After any error nothing
    /// stays held.
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1)
    }

    /// As [`acquire`](Semaphore::acquire), without blocking.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and a grant that still arrives is released. Within a
    /// round trip the next caller is served.
    pub async fn acquire_async(&self) -> Result<Permit, AcquireError> {
        self.acquire_many_async(1).await
    }

    /// Takes `permits` permits together. Waits in line, and blocks until they are granted. At the head of the
    /// line, the request holds back smaller requests behind it, so it does not starve.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire). [`AcquireError::Invalid`] for 0 permits.
    /// [`AcquireError::AboveLimit`] for more than the limit in force.
    pub fn acquire_many(&self, permits: u32) -> Result<Permit, AcquireError> {
        block(|mode| self.acquire_by(permits, None, Caller::of(mode)))
    }

    /// As [`acquire_many`](Semaphore::acquire_many), without blocking.
    ///
    /// # Errors
    /// As [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire_async`](Semaphore::acquire_async).
    pub async fn acquire_many_async(&self, permits: u32) -> Result<Permit, AcquireError> {
        self.in_line_async(permits, None).await
    }

    /// Takes a permit. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms. A
    /// timeout of zero tries without waiting. The timeout of the async form begins when the future is polled
    /// for the first time.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] if it was not granted in time; the caller leaves the line. Otherwise as
    /// [`acquire`](Semaphore::acquire).
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.acquire_many_timeout(1, timeout)
    }

    /// As [`acquire_timeout`](Semaphore::acquire_timeout), without blocking.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Semaphore::acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`acquire_async`](Semaphore::acquire_async).
    pub async fn acquire_timeout_async(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.acquire_many_timeout_async(1, timeout).await
    }

    /// Takes `permits` permits together. Waits in line for at most `timeout`, and blocks for at most
    /// `timeout` plus 50 ms.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Semaphore::acquire_timeout) and [`acquire_many`](Semaphore::acquire_many).
    pub fn acquire_many_timeout(&self, permits: u32, timeout: Duration) -> Result<Permit, AcquireError> {
        block(|mode| self.acquire_by(permits, self.shared.deadline(timeout), Caller::of(mode)))
    }

    /// As [`acquire_many_timeout`](Semaphore::acquire_many_timeout), without blocking.
    ///
    /// # Errors
    /// As [`acquire_many_timeout`](Semaphore::acquire_many_timeout).
    ///
    /// # Cancel safety
    /// As [`acquire_async`](Semaphore::acquire_async).
    pub async fn acquire_many_timeout_async(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> Result<Permit, AcquireError> {
        self.in_line_async(permits, self.shared.deadline(timeout)).await
    }

    /// Waits for a permit for at most `timeout`, runs `work` with it, and releases it. If the permit is lost,
    /// `work` is dropped at its next `await`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn order(fence: u64) {}
    /// # async fn example() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open_async("redis://127.0.0.1/").await?;
    /// let market = gate.semaphore("market:account:17", 5);
    /// market.run_async(Duration::from_secs(2), async |permit| order(permit.fence()).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if there was no permit in time; then `work` did not run. [`RunError::Lost`]
    /// if the permit was lost before `work` ended. Then another caller may have held it at the same time, and
    /// only the [fence](Permit::fence) protects what `work` has changed. A release that the server did not
    /// confirm is no error: it continues in the background.
    ///
    /// # Cancel safety
    /// If this is dropped, `work` is dropped, and the permit is released in the background.
    pub async fn run_async<T>(
        &self,
        timeout: Duration,
        work: impl AsyncFnOnce(&Permit) -> T,
    ) -> Result<T, RunError> {
        let permit = self.acquire_timeout_async(timeout).await?;
        let done = {
            let (mut work, mut lost) = (pin!(work(&permit)), pin!(permit.lost_async()));
            let done = poll_fn(|cx| match work.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Ok(done)),
                Poll::Pending => lost.as_mut().poll(cx).map(Err),
            });
            done.await.map_err(RunError::Lost)?
        };
        let lost = Lost { name: permit.name().to_owned(), id: permit.id().to_owned() };
        match permit.release_async().await {
            Ok(Released::Gone) => Err(RunError::Lost(lost)),
            Ok(Released::Released) | Err(_) => Ok(done),
        }
    }

    /// Takes over the permit that `id` holds, and starts a new lease. The previous holder can be another
    /// process, or this process before a restart. Blocks for two round trips.
    ///
    /// # Errors
    /// [`PermitError::Lost`] if `id` holds nothing. [`PermitError::Failed`] also while a release of `id` by
    /// this gate is not confirmed.
    pub fn adopt(&self, id: &str) -> Result<Permit, PermitError> {
        block(|mode| self.adopt_by(id, mode))
    }

    /// As [`adopt`](Semaphore::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](Semaphore::adopt).
    ///
    /// # Cancel safety
    /// If this is dropped, the permit stays held by `id` until the end of its lease, and can be adopted
    /// again.
    pub async fn adopt_async(&self, id: &str) -> Result<Permit, PermitError> {
        self.adopt_by(id, Mode::Async).await
    }

    async fn adopt_by(&self, id: &str, mode: Mode) -> Result<Permit, PermitError> {
        let span = Operation::Adopt.on([self.settings.keys()?.meta.as_ref()]);
        span.run(self.take_over(id, mode)).await
    }

    async fn take_over(&self, id: &str, mode: Mode) -> Result<Permit, PermitError> {
        self.shared.servers.check_process()?;
        id::check_id(id)?;
        let keys = self.settings.keys()?;
        let lease = LeaseOptions { own_id: true, ..self.settings.lease_options()? };
        let ordered = Ordered { key: keys.meta.as_bytes(), own_id: Some(id), after: None, only_own: false };
        let floor = self.shared.releases.before(ordered, None, mode).await?.floor;
        let _busy = self.shared.servers.clock.busy(); // until the permit is registered for renewal
        let lost = || PermitError::Lost(Lost { name: self.name().to_owned(), id: id.to_owned() });
        // The fence is read first: a delayed refresh must not change a later permit of the same id.
        let found = match self.shared.call(&Lookup { keys, id }, mode).await? {
            LookupAnswer::Held(found) if found.fence > floor => found,
            _ => return Err(lost()),
        };
        let refresh = Refresh { keys, id, lease_ms: lease.lease_ms, fence: Some(found.fence) };
        let (grant, sent) = self.shared.call_at(&refresh, mode).await?;
        let grant = grant.ok_or_else(lost)?;
        let granted =
            Granted::new(keys, id, lease, grant, 0, sent.at).not_ended(self.shared.servers.clock.moment())?;
        Ok(Permit::new(&self.shared, granted, self.settings.on_lost.as_ref()))
    }

    /// Whether this deadline has passed.
    pub(crate) fn is_over(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|end| end <= self.shared.now())
    }

    async fn at_once_async(&self, permits: Option<u32>) -> Result<Permit, TryAcquireError> {
        let make = || {
            let this = self.clone();
            async move { this.at_once(permits, Caller::of(Mode::Async)).await }
        };
        self.shared.watch(make).await
    }

    async fn in_line_async(&self, permits: u32, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        let kept = KeptTicket::default();
        let make = || {
            let (this, kept) = (self.clone(), kept.clone());
            async move {
                let caller = Caller { kept: Some(&kept), ..Caller::of(Mode::Async) };
                this.acquire_by(permits, deadline, caller).await
            }
        };
        self.shared.watch(make).await
    }

    /// Takes permits at once, or none. `None`: all that are free.
    async fn at_once(&self, permits: Option<u32>, caller: Caller<'_>) -> Result<Permit, TryAcquireError> {
        let mut target = self.settings.target(permits, self.settings.lease_options()?)?;
        let span = Operation::TryAcquire.on([target.keys.meta.as_ref()]);
        let work = async {
            let _busy = self.shared.servers.clock.busy(); // until the permit is registered for renewal
            let granted = self.shared.waits.at_once(&mut target, caller).await?;
            let on_lost = self.settings.on_lost.as_ref();
            Ok(Permit::granted(&self.shared, granted, on_lost, None, caller.mode).await?)
        };
        span.run(work).await
    }

    /// Takes permits in line, until `deadline` at the latest.
    async fn acquire_by(
        &self,
        permits: u32,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<Permit, AcquireError> {
        self.in_line(
            permits,
            self.settings.lease_options()?,
            self.settings.on_lost.as_ref(),
            deadline,
            caller,
        )
        .await
    }

    /// Takes permits in line, with these lease options instead of those of the semaphore.
    pub(crate) async fn in_line(
        &self,
        permits: u32,
        lease: LeaseOptions,
        on_lost: Option<&OnLost>,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<Permit, AcquireError> {
        let span = Operation::Acquire.on([self.settings.keys()?.meta.as_ref()]);
        let ticket = self.settings.ticket.map(Ticket::number);
        let work = async {
            let caller = Caller { cancel: self.settings.cancel.as_ref(), ..caller };
            let mut target = self.settings.target(Some(permits), lease)?;
            target.entry.ticket = caller.kept.and_then(KeptTicket::ticket).or(ticket).unwrap_or(0);
            let (granted, _busy) = self.shared.waits.in_line(target, deadline, caller).await?;
            // If this is stopped while the grant is confirmed, it has the same place again.
            caller.kept.inspect(|kept| kept.keep(granted.ticket.filter(|_| !lease.own_id).unwrap_or(0)));
            let until = last_call_ends(deadline);
            Ok(Permit::granted(&self.shared, granted, on_lost, until, caller.mode).await?)
        };
        span.run(work).await
    }
}
