//! What a caller declares about a semaphore.

use super::Semaphore;
use crate::error::Lost;
use crate::settings::Lease;
use crate::wait::cancel::Cancel;
use std::sync::Arc;
use std::time::Duration;

impl Semaphore {
    /// How long a permit is valid unless it is refreshed: a [`Lease`], or a [`Duration`] for a lease of 1 ms to 100 years that
    /// is not renewed. By default the lease is 30 s, and it is renewed until the permit is dropped.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Lease>) -> Self {
        self.settings.lease = lease.into();
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
    /// been lost. So if a second caller uses the id meanwhile, both may believe that they hold the permit.
    ///
    /// Before you revoke such an id and give it to another process, make sure that the first holder has stopped. Until
    /// its next refresh it still believes that it holds the permit.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.settings.id = Some(id.to_owned());
        self
    }

    /// Refuses to take permits if the limit in force differs from the declared one: see
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
        cancel.go_by(self.clock());
        self.settings.cancel = Some(cancel.clone());
        self
    }

    /// Calls `on_lost` when a permit is lost while it is held. This is the case if its renewal was refused, or if its
    /// lease has ended by this machine's clock. The callbacks of a gate run one after the other, separate from its other work.
    #[must_use]
    pub fn on_lost(mut self, on_lost: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.settings.on_lost = Some(Arc::new(on_lost));
        self
    }
}
