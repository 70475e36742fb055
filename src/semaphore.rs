//! The counting semaphore.

pub mod inspection;
pub(crate) mod settings;

pub use manage::{Resized, Revoked};

use crate::engine::mode::{Mode, block};
use crate::error::{AcquireError, Lost, PermitError, RunError, TryAcquireError};
use crate::lease::permits::OnLost;
use crate::permit::{Permit, Released};
use crate::protocol::id;
use crate::protocol::lease::LeaseOptions;
use crate::protocol::semaphore::{Lookup, LookupAnswer, Refresh};
use crate::protocol::waiter::Granted;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::Caller;
use crate::wait::cancel::Cancel;
use settings::{Lease, Settings};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A counting semaphore: it limits how many permits are held at the same time, over all processes that use its name.
///
/// [`Gate::semaphore`](crate::Gate::semaphore) creates it. It consists of a name and settings: clones are cheap, and
/// any number of threads can share it. Each acquire has a new id, so 20 threads with one `Semaphore` are 20 callers.
///
/// It is fair: first come, first served, over all processes. No caller overtakes the line, except with a [head
/// start](Self::head_start). A request for many permits at the head of the line holds back the smaller requests behind it
/// until enough permits are free.
///
/// By default a permit has a lease of 30 s, which is renewed until the permit is dropped.
#[derive(Clone)]
pub struct Semaphore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
}

impl Semaphore {
    /// The first call reports an invalid name or limit.
    pub(crate) fn new(shared: Arc<Shared>, kind: &str, name: &str, limit: Option<u32>) -> Semaphore {
        let settings = Settings::new(&shared.prefix, shared.label.as_deref(), kind, name, limit);
        Semaphore { shared, settings }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// How long a permit is valid unless it is refreshed. By default the lease is 30 s, and it is renewed until the permit is
    /// dropped: `Lease::renewed(Duration::from_secs(30))`.
    #[doc(alias("ttl", "expire", "expiration", "watchdog", "heartbeat"))]
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Joins the line only while fewer than `n` (1 to 2^31-1) wait. Otherwise the call returns
    /// [`LineFull`](crate::errors::AcquireError::LineFull) at once, with the number of waiters. For a service that
    /// refuses work instead of a long wait.
    ///
    /// The server decides this in the same step that adds a waiter to the line. A caller that is already in line stays
    /// there, even if other callers declare a smaller `n`. Waiters whose process has ended do not count. When the line
    /// is full, the server removes up to 100 of them.
    #[must_use]
    pub fn max_waiting(mut self, n: u32) -> Self {
        self.settings.max_waiting = Some(n);
        self
    }

    /// Head start (0 to a day): the call joins the line as if it had come that much earlier. So it comes before waiters
    /// that came within the last `by`, and behind those that came earlier still. If it is then the first in line, and
    /// enough permits are free for it, it is granted at once.
    ///
    /// This is a priority without starvation: only calls that come within the head start after a waiter can overtake
    /// it. With [`max_waiting`](Self::max_waiting) only the waiters before its place count. `try_acquire` of
    /// [several](crate::Several) semaphores ignores it. See
    /// [`guide::waiting_and_fairness`](crate::guide::waiting_and_fairness).
    #[doc(alias = "priority")]
    #[must_use]
    pub fn head_start(mut self, by: Duration) -> Self {
        self.settings.head_start = by;
        self
    }

    /// Minimum hold: a permit stays in use until `least` (1 ms to 100 years) after its grant, even if it is released
    /// earlier. Its lease is never shorter than that.
    ///
    /// For example, a limit of 10 with `at_least` of one second grants at most 10 permits in any second. This is a rate
    /// limit with a line: see [`guide::rate_limits`](crate::guide::rate_limits). A mutex with `at_least` prevents a
    /// second run of the same job on a machine whose clock is late.
    ///
    /// The release itself takes no longer: the caller holds nothing after it. When `least` is over, the first waiter
    /// gets the permit, as after the end of a lease. Until then, [`inspect`](Self::inspect) shows it as [cooling
    /// down](crate::inspection::Holder::cooling_down). If permits are released in parts, all parts stay in use until
    /// the same instant. A permit counts too if it is granted while the caller gives up, and is released unused.
    #[doc(alias("cooldown", "rate_limit"))]
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Self {
        self.settings.at_least = Some(least);
        self
    }

    /// A label at the start of each id, `<label>/<uuid>`, which shows the owner of a permit. 1 to 163 bytes without
    /// white space.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.settings.label = Some(label.to_owned());
        self
    }

    /// Uses an id chosen by the application instead of a new id for each acquire. An id holds at most one permit. A
    /// second caller with the same id gets [`AlreadyHeld`](crate::errors::AlreadyHeld), also after the first one has
    /// crashed. It can then [`adopt`](Self::adopt) the permit.
    ///
    /// Only one caller at a time may use the id. Consecutive calls are safe, even if one of them is delayed. Each call
    /// first waits until the last release of the id is confirmed, for at most its own timeout or the read timeout. It
    /// also sends the fence, so a delayed call never changes a later permit.
    ///
    /// A wait in line takes every permit that its id gets, since the message or the reply with its own grant may have
    /// been lost. If a connection broke and a call was sent again, it takes a permit that its id got since the first attempt. So if a second caller uses the id meanwhile, both may believe that they hold the permit.
    ///
    /// Before you revoke such an id and give it to another process, make sure that the first holder has stopped. Until
    /// its next refresh it still believes that it holds the permit.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.settings.id = Some(id.to_owned());
        self
    }

    /// Refuses a limit other than the declared one: no permit is taken if the limit in force differs from it, see
    /// [`LimitMismatch`](crate::errors::LimitMismatch). Without this setting the limit in force applies, and
    /// [`Permit::limit`](crate::Permit::limit) returns it.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.settings.strict = true;
        self
    }

    /// Lets `cancel` end the waits of this semaphore, from another thread or task, or at a deadline. A cancelled wait leaves the
    /// line and holds nothing. A [`Cancel`] stays cancelled, so use one for each request or job.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        cancel.go_by(&self.shared.servers.clock);
        self.settings.cancel = Some(cancel.clone());
        self
    }

    /// Lets the next wait join the line at the place of a wait that was cancelled: its
    /// [`Cancelled::ticket`](crate::errors::Cancelled::ticket). `None`: at the end of the line.
    ///
    /// A cancelled wait has left the line, so waiters behind it may have been granted since. Those that still wait are
    /// behind it again. [`max_waiting`](Self::max_waiting) does not refuse this wait. If enough permits are free and
    /// nobody waits, it is granted at once.
    ///
    /// ```no_run
    /// use luagate::errors::AcquireError;
    ///
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// # let pause = luagate::Cancel::new();
    /// let jobs = gate.semaphore("jobs", 2);
    /// let permit = match jobs.clone().cancelled_by(&pause).acquire() {
    ///     Err(AcquireError::Cancelled(cancelled)) => {
    ///         // Do something else here. Meanwhile nobody waits for this program.
    ///         jobs.ticket(cancelled.ticket).acquire()?
    ///     }
    ///     acquired => acquired?,
    /// };
    /// # permit.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Use a ticket for one wait, and only for the same name: every other wait with it overtakes the line. `try_acquire`
    /// ignores it. [Several](crate::Several) semaphores refuse it. With an [id](Self::id) chosen by the application, take
    /// another id for the new wait: a delayed release of the cancelled wait names the same id and place, and would end
    /// the new wait with [`Revoked`](crate::errors::AcquireError::Revoked).
    ///
    /// # Errors
    /// The wait returns [`Invalid`](crate::errors::AcquireError::Invalid) for a number that is no ticket, above 2^52.
    #[must_use]
    pub fn ticket(mut self, ticket: impl Into<Option<u64>>) -> Self {
        self.settings.ticket = ticket.into().unwrap_or(0);
        self
    }

    /// Calls `on_lost` when a permit is lost while it is held. This is the case if its renewal was refused, or if its
    /// lease has ended by this machine's clock. The callbacks of a gate run one after the other, separate from its other work. A second
    /// call of `on_lost` replaces the first callback.
    #[must_use]
    pub fn on_lost(mut self, on_lost: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.settings.on_lost = Some(Arc::new(on_lost));
        self
    }

    /// Takes a permit if one is free and no caller waits. Blocks for one round trip. It does not wait, so it ignores
    /// [`cancelled_by`](Self::cancelled_by).
    ///
    /// # Errors
    /// [`TryAcquireError::Denied`] if no permit is free or others wait. The error contains the time until the next lease
    /// expires. After any error nothing stays held.
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

    /// Takes `permits` permits together, if that many are free and no caller waits. Otherwise it takes none. Blocks for
    /// one round trip.
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

    /// Takes a permit. Waits in line, and blocks until it is granted, without a time limit. Another thread can end the
    /// wait through [`cancelled_by`](Semaphore::cancelled_by).
    ///
    /// # Errors
    /// [`AcquireError`]. If the server cannot be reached, the wait fails at once at its first call, and later after
    /// [`GateBuilder::outage_timeout`](crate::GateBuilder::outage_timeout). After any error nothing stays held.
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1)
    }

    /// As [`acquire`](Semaphore::acquire), without blocking.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and a grant that still arrives is released. Within a round trip
    /// the next caller is served.
    pub async fn acquire_async(&self) -> Result<Permit, AcquireError> {
        self.acquire_many_async(1).await
    }

    /// Takes `permits` permits together. Waits in line, and blocks until they are granted. At the head of the line, the
    /// request holds back smaller requests behind it, so it does not starve.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire). [`AcquireError::Invalid`] for 0 permits. [`AcquireError::AboveLimit`] for
    /// more than the limit in force.
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

    /// Takes a permit. Waits in line for at most `timeout`, and blocks for at most `timeout` plus 50 ms. A timeout of zero
    /// tries without waiting. The timeout of the async form begins when the future is polled for the first time.
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

    /// Takes `permits` permits together. Waits in line for at most `timeout`, and blocks for at most `timeout` plus
    /// 50 ms.
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
    pub async fn acquire_many_timeout_async(&self, permits: u32, timeout: Duration) -> Result<Permit, AcquireError> {
        self.in_line_async(permits, self.shared.deadline(timeout)).await
    }

    /// Waits for a permit for at most `timeout`, runs `work` with it, and releases it. If the permit is lost, `work` is
    /// dropped at its next `await`.
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
    /// [`RunError::NotAcquired`] if there was no permit in time; then `work` did not run. [`RunError::Lost`] if the permit
    /// was lost before `work` ended. Then another caller may have held it at the same time, and only the
    /// [fence](Permit::fence) protects what `work` has changed. A release that the server did not confirm is no error: it
    /// continues in the background.
    ///
    /// # Cancel safety
    /// If this is dropped, `work` is dropped, and the permit is released in the background.
    pub async fn run_async<T>(&self, timeout: Duration, work: impl AsyncFnOnce(&Permit) -> T) -> Result<T, RunError> {
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

    /// Takes over the permit that `id` holds, and starts a new lease. The previous holder can be another process, or
    /// this process before a restart. Blocks for two round trips.
    ///
    /// # Errors
    /// [`PermitError::Lost`] if `id` holds nothing. [`PermitError::Failed`] also while a release of `id` by this gate
    /// is not confirmed.
    pub fn adopt(&self, id: &str) -> Result<Permit, PermitError> {
        block(|mode| self.adopt_by(id, mode))
    }

    /// As [`adopt`](Semaphore::adopt), without blocking.
    ///
    /// # Errors
    /// As [`adopt`](Semaphore::adopt).
    ///
    /// # Cancel safety
    /// If this is dropped, the permit stays held by `id` until the end of its lease, and can be adopted again.
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
        self.shared.releases.settle(keys.meta.as_bytes(), Some(id), None, mode).await?;
        let _busy = self.shared.servers.clock.busy(); // until the permit is registered for renewal
        let lost = || PermitError::Lost(Lost { name: self.name().to_owned(), id: id.to_owned() });
        // The fence is read first: a delayed refresh must not change a later permit of the same id.
        let LookupAnswer::Held(found) = self.shared.call(&Lookup { keys, id }, mode).await? else {
            return Err(lost());
        };
        let refresh = Refresh { keys, id, lease_ms: lease.lease_ms, fence: Some(found.fence) };
        let (grant, sent) = self.shared.call_at(&refresh, mode).await?;
        let grant = grant.ok_or_else(lost)?;
        let granted = Granted::new(keys, id, lease, grant, 0, sent.at);
        Ok(Permit::new(&self.shared, granted, self.settings.on_lost.as_ref()))
    }

    /// The same semaphore, with the settings that `set` changes.
    pub(crate) fn with(self, set: impl FnOnce(Semaphore) -> Semaphore) -> Semaphore {
        let changed = set(self.clone());
        Semaphore { shared: self.shared, settings: self.settings.changed_to(changed.settings) }
    }

    /// Whether both have the same keys on the same server.
    pub(crate) fn is_same(&self, other: &Semaphore) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.settings.keys == other.settings.keys
    }

    /// Whether this deadline has passed.
    pub(crate) fn is_over(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|end| end <= self.shared.now())
    }

    async fn at_once_async(&self, permits: Option<u32>) -> Result<Permit, TryAcquireError> {
        self.shared.watch(|polled| async move { self.at_once(permits, Caller::polled(&polled)).await }).await
    }

    async fn in_line_async(&self, permits: u32, deadline: Option<Instant>) -> Result<Permit, AcquireError> {
        let shared = &self.shared;
        shared.watch(|polled| async move { self.acquire_by(permits, deadline, Caller::polled(&polled)).await }).await
    }

    /// Takes permits at once, or none. `None`: all that are free.
    async fn at_once(&self, permits: Option<u32>, caller: Caller<'_>) -> Result<Permit, TryAcquireError> {
        let mut target = self.settings.target(permits, self.settings.lease_options()?)?;
        let span = Operation::TryAcquire.on([target.keys.meta.as_ref()]);
        let work = async {
            loop {
                let _busy = self.shared.servers.clock.busy(); // until the permit is registered for renewal
                let granted = self.shared.waits.at_once(&mut target, caller).await?;
                let on_lost = self.settings.on_lost.as_ref();
                let permit = Permit::granted(&self.shared, granted, on_lost, caller.mode).await;
                if caller.keeps_grant() {
                    return Ok(permit?);
                }
                permit.inspect(Permit::hand_on).ok(); // another release has been posted
            }
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
        self.in_line(permits, self.settings.lease_options()?, self.settings.on_lost.as_ref(), deadline, caller).await
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
        let mut ticket = self.settings.ticket;
        let work = async {
            let caller = Caller { cancel: self.settings.cancel.as_ref(), ..caller };
            loop {
                let mut target = self.settings.target(Some(permits), lease)?;
                target.entry.ticket = ticket;
                let (granted, _busy) = self.shared.waits.in_line(target, deadline, caller).await?;
                ticket = granted.ticket.unwrap_or_default();
                // The lease can be over before the reply is read, for example after a pause of this process.
                let is_late = granted.deadline.is_past(self.shared.servers.clock.moment());
                if !is_late || self.is_over(deadline) {
                    let permit = Permit::granted(&self.shared, granted, on_lost, caller.mode).await;
                    if caller.keeps_grant() {
                        return Ok(permit?);
                    }
                    permit.inspect(Permit::hand_on).ok(); // another release has been posted
                }
                // It came too late, or was given back while it was confirmed. The next wait has the same place.
            }
        };
        span.run(work).await
    }
}

mod manage; // here, so that the methods that acquire come first in the documentation

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
