//! The settings of a semaphore.

use super::Semaphore;
use crate::error::{Invalid, Lost, MOST};
use crate::lease::permits::OnLost;
use crate::protocol::lease::{self, LeaseOptions};
use crate::wait::cancel::Cancel;
use std::sync::Arc;
use std::time::Duration;

impl Semaphore {
    /// How long a permit lives unless refreshed: 1 ms to 100 years. It is then not renewed unless
    /// [`auto_renew`](Semaphore::auto_renew) asks for that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Semaphore {
        self.lease = Some(lease);
        self.permanent = false;
        self
    }

    /// Renews permits at a third of their lease, from one thread for the whole gate, for as long as they live. The lease is
    /// 30 ms or longer; a shorter one is [`Invalid`](crate::errors::Invalid) at the first call.
    #[must_use]
    pub fn auto_renew(mut self) -> Semaphore {
        self.renewed = true;
        self
    }

    /// Permits without an end. One whose holder crashed stays until somebody [`revoke`](Semaphore::revoke)s it.
    #[must_use]
    pub fn permanent(mut self) -> Semaphore {
        self.permanent = true;
        self.lease = None;
        self
    }

    /// Waits in line only while fewer than `n` (1 to 2^31-1) wait; otherwise the call is refused at once, as
    /// [`LineFull`](crate::errors::AcquireError::LineFull), which tells how many wait. For a service that would rather refuse work
    /// than let it wait for long.
    ///
    /// The server decides in the same step in which it would put the caller in line. A caller in line stays there, also when
    /// others declare a smaller `n`. Waiters whose process has died do not count; up to a hundred of them are removed when the line
    /// is full.
    #[must_use]
    pub fn max_waiting(mut self, n: u32) -> Semaphore {
        self.max_waiting = Some(n);
        self
    }

    /// Minimum hold: a permit that is released earlier than `least` (1 ms to 100 years) after its grant is in use until then.
    /// The lease is not shorter.
    ///
    /// A limit of 10 with `at_least` of one second grants at most ten permits in any second: a rate limit with a line, see
    /// [`guide::rate_limits`](crate::guide::rate_limits). A mutex with it keeps a second machine whose clock is late from running
    /// the same job again.
    ///
    /// Releasing takes no longer: the caller holds nothing from then on, and the first waiter gets the permit when `least` is over,
    /// as after any lease that ends. [`inspect`](Semaphore::inspect) shows it as [cooling
    /// down](crate::inspection::Holder::cooling_down). Of permits that are given back in parts each part is in use until the same
    /// instant. A permit that is granted while the caller gives up, and is given back unused, counts too.
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Semaphore {
        self.at_least = Some(least);
        self
    }

    /// A label in front of each id, `<label>/<uuid>`: shows who holds what. 1 to 163 bytes without white space.
    #[must_use]
    pub fn label(mut self, label: &str) -> Semaphore {
        self.label = Some(label.to_owned());
        self
    }

    /// An identity of the application's own in place of a new id for each acquire. It holds at most one permit: a second
    /// caller with it gets [`AlreadyHeld`](crate::errors::AlreadyHeld), also after a crash of the first, which may then
    /// [`adopt`](Semaphore::adopt).
    ///
    /// One caller at a time uses it. Calls one after the other are safe whatever stalls in between: each waits until the last
    /// release of the id is confirmed, for at most its own time or the read timeout, and names the fence, so that a call that
    /// reaches the server late never touches a later permit. A permit of an own id that is lost is not released any more.
    ///
    /// A wait that times out while another caller holds with the id may take a second longer: whether a grant was this wait's own
    /// is known by its message.
    ///
    /// Before you revoke such an id and give it to another process, make sure that the first holder has stopped: until its next
    /// refresh it still believes that it holds the permit.
    #[must_use]
    pub fn id(mut self, id: &str) -> Semaphore {
        self.id = Some(id.to_owned());
        self
    }

    /// Takes nothing when another limit is in force than the one declared here, see
    /// [`LimitMismatch`](crate::errors::LimitMismatch). Otherwise the one in force counts, and
    /// [`Permit::limit`](crate::Permit::limit) tells it.
    #[must_use]
    pub fn strict(mut self) -> Semaphore {
        self.strict = true;
        self
    }

    /// Lets `cancel` end the waits of this semaphore, from another thread or at a time. Use one [`Cancel`] for each request or job,
    /// since it stays cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Semaphore {
        cancel.go_by(&self.shared.servers.clock);
        self.cancel = Some(cancel.clone());
        self
    }

    /// Calls `on_lost` when a permit turns out to be lost while it is looked after: when its renewal was refused, or its
    /// lease ended by this machine's clock. Runs on a thread of its own, shared by all callbacks of the gate.
    #[must_use]
    pub fn on_lost(self, on_lost: impl Fn(&Lost) + Send + Sync + 'static) -> Semaphore {
        self.told_by(Arc::new(on_lost))
    }

    pub(crate) fn told_by(mut self, on_lost: OnLost) -> Semaphore {
        self.on_lost = Some(on_lost);
        self
    }

    pub(crate) fn lease_options(&self) -> Result<LeaseOptions, Invalid> {
        Ok(LeaseOptions {
            lease_ms: match self.permanent {
                true => 0,
                false => lease::to_ms(self.lease.unwrap_or(lease::DEFAULT))?,
            },
            renewed: self.is_renewed()?,
            own_id: self.id.is_some(),
            at_least_ms: match self.at_least {
                Some(least) => lease::at_least_ms(least)?,
                None => 0,
            },
        })
    }

    /// 0: any line is joined.
    pub(super) fn checked_max_waiting(&self) -> Result<u32, Invalid> {
        match self.max_waiting {
            None => Ok(0),
            Some(n @ 1..=MOST) => Ok(n),
            Some(n) => {
                let why = format!(
                    "{n} is out of range. Accepted: 1 to {MOST}. To acquire without waiting, use `try_acquire`"
                );
                Err(Invalid::new("max_waiting", why))
            }
        }
    }

    fn is_renewed(&self) -> Result<bool, Invalid> {
        let lease = self.lease.unwrap_or(lease::DEFAULT);
        let renewed = !self.permanent && (self.renewed || self.lease.is_none());
        if renewed && lease < lease::SHORTEST_RENEWED {
            let shortest = lease::SHORTEST_RENEWED;
            let why = format!(
                "{lease:?} is too short for `auto_renew`. Accepted: {shortest:?} or more. Use a longer lease, or leave out `auto_renew`"
            );
            return Err(Invalid::new("lease", why));
        }
        Ok(renewed)
    }
}
