//! The counting semaphore.

mod acquire;
pub mod inspection;
pub(crate) mod manage;
pub(crate) mod settings;

pub use manage::{Resized, Revoked};

use crate::error::{Lost, Ticket};
use crate::shared::Shared;
use crate::wait::cancel::Cancel;
use settings::{Lease, Settings};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A counting semaphore: it limits how many permits are held at the same time, over all processes that use
/// its name.
///
/// [`Gate::semaphore`](crate::Gate::semaphore) creates it. It consists of a name and settings: clones are
/// cheap, and any number of threads can share it. Each acquire has a new id, so 20 threads with one
/// `Semaphore` are 20 callers.
///
/// It is fair: first come, first served, over all processes. No caller overtakes the line, except with a
/// [head start](Self::head_start). A request for many permits at the head of the line holds back the smaller
/// requests behind it until enough permits are free.
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

    /// How long a permit is valid unless it is refreshed. By default the lease is 30 s, and it is renewed
    /// until the permit is dropped: `Lease::renewed(Duration::from_secs(30))`.
    #[doc(alias("ttl", "expire", "expiration", "watchdog", "heartbeat"))]
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Joins the line only while fewer than `n` (1 to 2^31-1) wait. Otherwise the call returns
    /// [`LineFull`](crate::errors::AcquireError::LineFull) at once, with the number of waiters. For a service
    /// that refuses work instead of a long wait.
    ///
    /// The server decides this in the same step that adds a waiter to the line. A caller that is already in
    /// line stays there, even if other callers declare a smaller `n`. Waiters whose process has ended do not
    /// count. When the line is full, the server removes up to 100 of them.
    #[must_use]
    pub fn max_waiting(mut self, n: u32) -> Self {
        self.settings.max_waiting = Some(n);
        self
    }

    /// Head start (0 to a day): the call joins the line as if it had come that much earlier. So it comes
    /// before waiters that came within the last `by`, and behind those that came earlier still. If it is then
    /// the first in line, and enough permits are free for it, it is granted at once.
    ///
    /// This is a priority without starvation: only calls that come within the head start after a waiter can
    /// overtake it. With [`max_waiting`](Self::max_waiting) only the waiters before its place count.
    /// `try_acquire` of
    /// [several](crate::Several) semaphores ignores it. See
    /// [`guide::waiting_and_fairness`](crate::guide::waiting_and_fairness).
    #[doc(alias = "priority")]
    #[must_use]
    pub fn head_start(mut self, by: Duration) -> Self {
        self.settings.head_start = by;
        self
    }

    /// Minimum hold: a permit stays in use until `least` (1 ms to 100 years) after its grant, even if it is
    /// released earlier. Its lease is never shorter than that.
    ///
    /// For example, a limit of 10 with `at_least` of one second grants at most 10 permits in any second. This
    /// is a rate limit with a line: see [`guide::rate_limits`](crate::guide::rate_limits). A mutex with
    /// `at_least` prevents a second run of the same job on a machine whose clock is late.
    ///
    /// The release itself takes no longer: the caller holds nothing after it. When `least` is over, the first
    /// waiter gets the permit, as after the end of a lease. Until then, [`inspect`](Self::inspect) shows it
    /// as [cooling down](crate::inspection::Holder::cooling_down). If permits are released in parts, all
    /// parts stay in use until the same instant. A permit counts too if it is granted while the caller gives
    /// up, and is released unused.
    #[doc(alias("cooldown", "rate_limit"))]
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Self {
        self.settings.at_least = Some(least);
        self
    }

    /// A label at the start of each id, `<label>/<uuid>`, which shows the owner of a permit. 1 to 163 bytes
    /// without white space.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.settings.label = Some(label.to_owned());
        self
    }

    /// Uses an id chosen by the application instead of a new id for each acquire. An id holds at most one
    /// permit. A second caller with the same id gets [`AlreadyHeld`](crate::errors::AlreadyHeld), also after
    /// the first one has crashed. It can then [`adopt`](Self::adopt) the permit.
    ///
    /// Only one caller at a time may use the id. Consecutive calls are safe, even if one of them is delayed:
    /// a call first waits until the gate knows what became of the last one, for at most its own timeout or
    /// the read timeout. If a call with this id is not answered within the read timeout, the gate closes its
    /// connection, so that the server does not run it later.
    ///
    /// A wait in line takes every permit that its id gets, since the message or the reply with its own grant
    /// may have been lost. If a connection broke and a call was sent again, it takes a permit that its id got
    /// since the first attempt. So if a second caller uses the id meanwhile, both may believe that they hold
    /// the permit.
    ///
    /// Before you revoke such an id and give it to another process, make sure that the first holder has
    /// stopped. Until its next refresh it still believes that it holds the permit.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.settings.id = Some(id.to_owned());
        self
    }

    /// Refuses a limit other than the declared one: no permit is taken if the limit in force differs from it,
    /// see
    /// [`LimitMismatch`](crate::errors::LimitMismatch). Without this setting the limit in force applies, and
    /// [`Permit::limit`](crate::Permit::limit) returns it.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.settings.strict = true;
        self
    }

    /// Lets `cancel` end the waits of this semaphore, from another thread or task, or at a deadline. A
    /// cancelled wait leaves the line and holds nothing. A [`Cancel`] stays cancelled, so use one for each
    /// request or job.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        cancel.go_by(&self.shared.servers.clock);
        self.settings.cancel = Some(cancel.clone());
        self
    }

    /// Lets the next wait join the line at the place of a wait that was cancelled: its
    /// [`Cancelled::ticket`](crate::errors::Cancelled::ticket). `None`: at the end of the line.
    ///
    /// A cancelled wait has left the line, so waiters behind it may have been granted since. Those that still
    /// wait are behind it again. [`max_waiting`](Self::max_waiting) does not refuse this wait. If enough
    /// permits are free and nobody waits, it is granted at once.
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
    /// Use a ticket for one wait, and only for the same name: every other wait with it overtakes the line.
    /// `try_acquire` ignores it. [Several](crate::Several) semaphores refuse it. A ticket that no server gave
    /// counts as none: one later than the last fence and ticket of the name, and more than a minute ahead of
    /// the server's clock. With an [id](Self::id) chosen by the application, take another id for the new
    /// wait: a delayed release of the cancelled wait names the same id and place, and would end the new wait
    /// with [`Revoked`](crate::errors::AcquireError::Revoked).
    #[must_use]
    pub fn ticket(mut self, ticket: impl Into<Option<Ticket>>) -> Self {
        self.settings.ticket = ticket.into();
        self
    }

    /// Calls `on_lost` when a permit is lost while it is held. This is the case if its renewal was refused,
    /// or if its lease has ended by this machine's clock. The callbacks of a gate run one after the other, in
    /// a thread that does nothing else: it may block, and may use the gate. The captured values are dropped
    /// there too. A panic ends only this call. A second call of `on_lost` replaces the first callback.
    ///
    /// It is not called if only the release of the permit finds the loss: then
    /// [`Permit::release`](crate::Permit::release) returns `Gone`.
    #[must_use]
    pub fn on_lost(mut self, on_lost: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.settings.on_lost = Some(Arc::new(on_lost));
        self
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
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
