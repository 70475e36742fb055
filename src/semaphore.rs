//! The counting semaphore.

use crate::error::{AcquireError, CallError, Invalid, Lost, MOST, RefreshError, TryAcquireError};
use crate::inspection::Inspection;
use crate::lease::permits::OnLost;
use crate::permit::Permit;
use crate::protocol::held::Identity;
use crate::protocol::id;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{self, Deadline, LeaseOptions};
use crate::protocol::semaphore::{
    Inspect, Lookup, LookupAnswer, Refresh, Release, ReleaseAnswer, Resize, ResizeAnswer, State,
};
use crate::protocol::waiter::{Granted, PermitTarget};
use crate::shared::Shared;
use crate::trace::{Operation, words};
use crate::wait::cancel::Cancel;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A counting semaphore: at most so many permits are held at once, across all processes that name it.
///
/// Made by [`Gate::semaphore`](crate::Gate::semaphore). It is a name and settings; cloning it is cheap, and it may be
/// shared by any number of threads. Each acquire is an identity of its own: twenty threads with one `Semaphore` are twenty
/// callers. It is fair: first come, first served, across processes; nobody overtakes the queue, and a request for many
/// permits at its head holds back the smaller ones behind it until enough are free.
///
/// With nothing else chosen a permit has a lease of 30 s that is renewed while it lives.
#[derive(Clone)]
pub struct Semaphore {
    pub(crate) shared: Arc<Shared>,
    name: String,
    keys: Result<Keys, Invalid>,
    /// 0: none is declared, whatever is stored counts.
    limit: u32,
    label: Option<String>,
    id: Option<String>,
    lease: Option<Duration>,
    renewed: bool,
    permanent: bool,
    strict: bool,
    cancel: Option<Cancel>,
    on_lost: Option<OnLost>,
}

/// What came of a [`resize`](Semaphore::resize).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The limit is set. Shrinking takes from nobody: `in_use` may be above it until enough came back.
    Resized {
        /// The limit before; 0: none was stored.
        old: u32,
        /// How many permits are in use.
        in_use: u32,
    },
    /// Another limit than the expected one was in force, and still is.
    Unchanged {
        /// The limit in force; 0: none is stored.
        current: u32,
    },
}

/// What came of a [`revoke`](Semaphore::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It held, and holds no more.
    Held,
    /// It waited in line, and its wait ends with [`AcquireError::Revoked`].
    Waited,
    /// It had nothing.
    Nothing,
}

words! {
    Revoked { Held "released", Waited "cancelled", Nothing "gone" }
    Resized { Resized "resized", Unchanged "unchanged" }
}

impl Semaphore {
    /// What cannot be is told by the first call.
    pub(crate) fn new(
        shared: Arc<Shared>,
        kind: &str,
        name: &str,
        limit: Option<u32>,
    ) -> Semaphore {
        let keys = match limit {
            Some(limit) if !(1..=MOST).contains(&limit) => {
                let why = format!("takes 1 to {MOST}, got {limit}");
                Err(Invalid::new("limit", why))
            }
            _ => Keys::of(kind, &shared.prefix, name),
        };
        Semaphore {
            name: name.to_owned(),
            keys,
            limit: limit.unwrap_or(0),
            label: shared.label.clone(),
            id: None,
            lease: None,
            renewed: false,
            permanent: false,
            strict: false,
            cancel: None,
            on_lost: None,
            shared,
        }
    }

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
    /// [`Permit::limit`] tells it.
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

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a permit if one is free and nobody waits in front. Blocks for one round trip.
    ///
    /// # Errors
    /// [`TryAcquireError::Denied`] when all are in use, with when to ask again. Nothing stays held after any error.
    pub fn try_acquire(&self) -> Result<Permit, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` at once or none, if that many are free and nobody waits in front. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire); [`TryAcquireError::Invalid`] for 0, [`TryAcquireError::AboveLimit`]
    /// for more than the limit in force.
    pub fn try_acquire_many(&self, permits: u32) -> Result<Permit, TryAcquireError> {
        self.at_once(Some(permits))
    }

    /// Takes all that are free now, at least one, if nobody waits in front; [`Permit::permits`] tells how many. Blocks
    /// for one round trip.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    pub fn try_acquire_all(&self) -> Result<Permit, TryAcquireError> {
        self.at_once(None)
    }

    /// Takes a permit, in line for as long as it takes. Blocks until it is granted; another thread may end that through
    /// [`cancelled_by`](Semaphore::cancelled_by).
    ///
    /// # Errors
    /// [`AcquireError`]; an unreachable server is one after [`GateBuilder::outage`](crate::GateBuilder::outage), and at
    /// once where the first call fails. Nothing stays held after any error.
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1)
    }

    /// Takes `permits` together, in line for as long as it takes. At the head of the line it holds back smaller
    /// requests, so it does not starve. Blocks until it is granted.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire); [`AcquireError::Invalid`] for 0, [`AcquireError::AboveLimit`]
    /// for more than the limit in force.
    pub fn acquire_many(&self, permits: u32) -> Result<Permit, AcquireError> {
        self.in_line(permits, self.lease_options()?, self.on_lost.as_ref(), None)
    }

    /// Takes a permit, in line for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] when it was not granted in time; the place in line is given up. As
    /// [`acquire`](Semaphore::acquire) otherwise; a timeout of zero is [`AcquireError::Invalid`].
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, AcquireError> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Takes `permits` together, in line for at most `timeout`. Blocks for at most that and 50 ms.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Semaphore::acquire_timeout) and [`acquire_many`](Semaphore::acquire_many).
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> Result<Permit, AcquireError> {
        if timeout.is_zero() {
            let why =
                "takes more than zero; `try_acquire_many` takes permits at once or not at all";
            return Err(Invalid::new("timeout", why).into());
        }
        let deadline = self.shared.now().checked_add(timeout); // past what the clock can hold is for ever
        self.in_line(
            permits,
            self.lease_options()?,
            self.on_lost.as_ref(),
            deadline,
        )
    }

    /// As `acquire_many_timeout`, until `deadline`. One that has passed by now leaves the time for one try without waiting.
    pub(crate) fn acquire_many_until(
        &self,
        permits: u32,
        deadline: Instant,
    ) -> Result<Permit, AcquireError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => self
                .try_acquire_many(permits)
                .map_err(TryAcquireError::too_late),
            false => self.acquire_many_timeout(permits, left),
        }
    }

    /// Takes over the permit that `id` holds, from another process or an earlier life of this one, with a new lease.
    /// Blocks for two round trips.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] when `id` holds nothing. [`RefreshError::Failed`] also while a release of `id` by this gate is not
    /// confirmed.
    pub fn adopt(&self, id: &str) -> Result<Permit, RefreshError> {
        let span = Operation::Adopt.on([self.keys()?.meta.as_ref()]);
        span.run(|| self.take_over(id))
    }

    fn take_over(&self, id: &str) -> Result<Permit, RefreshError> {
        self.shared.check_process()?;
        id::check_id(id)?;
        let keys = self.keys()?;
        let lease = LeaseOptions {
            own_id: true,
            ..self.lease_options()?
        };
        self.shared.releases.settle(keys, id, None)?;
        let _busy = self.shared.servers.clock.busy(); // until the permit is looked after
        let lost = || RefreshError::Lost(Lost { id: id.to_owned() });
        // The fence comes first: a refresh that reaches the server late must not touch a later permit of the id.
        let LookupAnswer::Held(found) = self.shared.call(&Lookup { keys, id })? else {
            return Err(lost());
        };
        let refresh = Refresh {
            keys,
            id,
            lease_ms: lease.lease_ms,
            fence: Some(found.fence),
        };
        let (grant, sent) = self.shared.call_at(&refresh)?;
        let grant = grant.ok_or_else(lost)?;
        let identity = Identity {
            keys: keys.clone(),
            id: id.to_owned(),
            fence: grant.fence,
            lease,
        };
        let deadline = Deadline::told(sent, grant.left());
        let permit = Permit::new(
            &self.shared,
            identity,
            &grant,
            deadline,
            self.on_lost.as_ref(),
        );
        Ok(permit.with_limit(self.limit))
    }

    /// Takes away whatever `id` has: its permits, or its place in line. Blocks for one round trip.
    ///
    /// A holder learns of it at its next refresh; until then only the fence and [`HOLDS`](crate::scripts::HOLDS) keep it out. A
    /// waiter is sent a message, which ends its wait with [`AcquireError::Revoked`]. Where that message is lost, or the waiter
    /// is behind a proxy without messages, it asks again within 5 s and has its place back.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        let keys = self.keys()?;
        Operation::Revoke.on([keys.meta.as_ref()]).tell(|| {
            id::check_id(id)?;
            let release = Release {
                keys,
                id,
                keep: 0,
                fence: None,
            };
            Ok(match self.shared.call(&release)? {
                ReleaseAnswer::Released { .. } => Revoked::Held,
                ReleaseAnswer::Cancelled => Revoked::Waited,
                ReleaseAnswer::Gone => Revoked::Nothing,
            })
        })
    }

    /// Sets the limit for everybody and pins it, so that it no longer expires with the state. Growing hands over to
    /// whoever waits; shrinking takes from nobody. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a limit of 0 or above 2^31-1; nothing was changed then.
    pub fn resize(&self, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, None)
    }

    /// As [`resize`](Semaphore::resize), but only if `expected` is in force now (0: no limit is stored).
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    pub fn compare_and_resize(&self, expected: u32, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, Some(expected))
    }

    /// Forgets a pinned limit. Where nobody holds or waits that is at once, and the limit that the next caller declares counts.
    /// Otherwise the limit in force stays until the state expires, a minute after the last lease. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn unpin(&self) -> Result<(), CallError> {
        let keys = self.keys()?;
        Operation::Unpin.on([keys.meta.as_ref()]).run(|| {
            self.shared.call(&Resize {
                keys,
                limit: 0,
                expected: None,
            })?;
            Ok(())
        })
    }

    fn set_limit(&self, limit: u32, expected: Option<u32>) -> Result<Resized, CallError> {
        if limit == 0 {
            let why = "takes 1 to 2147483647, got 0; `unpin` lets a limit expire";
            return Err(Invalid::new("limit", why).into());
        }
        let keys = self.keys()?;
        Operation::Resize.on([keys.meta.as_ref()]).tell(|| {
            let resize = Resize {
                keys,
                limit,
                expected,
            };
            Ok(match self.shared.call(&resize)? {
                ResizeAnswer::Resized { old, in_use, .. } => Resized::Resized { old, in_use },
                ResizeAnswer::Unchanged { current, .. } => Resized::Unchanged { current },
            })
        })
    }

    /// How many permits are free now, whoever waits for them. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again. [`CallError::Invalid`] where no limit is stored and none declared.
    pub fn available_permits(&self) -> Result<u32, CallError> {
        let state = self.look(0, 0)?;
        match (state.limit, self.limit) {
            (0, 0) => {
                let why = "none is stored for this semaphore; `resize` stores one";
                Err(Invalid::new("no limit", why).into())
            }
            (0, declared) => Ok(declared),
            (stored, _) => Ok(stored.saturating_sub(state.in_use)),
        }
    }

    /// Who holds and who waits: the first 1,000 of each, and how many there are. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.inspect_page(0, 1_000)
    }

    /// At most `count` (up to 1,000) holders and waiters, each from the `offset`-th on. Blocks for one round trip; two
    /// pages are of two instants.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a count above 1,000.
    pub fn inspect_page(&self, offset: u32, count: u32) -> Result<Inspection, CallError> {
        self.look(offset, count).map(Inspection::new)
    }

    /// A look at the semaphore, with `count` holders and waiters at most.
    pub(crate) fn look(&self, offset: u32, count: u32) -> Result<State, CallError> {
        let keys = self.keys()?;
        let inspect = Inspect {
            keys,
            offset,
            count,
        };
        let span = Operation::Inspect.on([keys.meta.as_ref()]);
        span.run(|| self.shared.call(&inspect))
    }

    pub(crate) fn keys(&self) -> Result<&Keys, Invalid> {
        self.keys.as_ref().map_err(Invalid::clone)
    }

    /// The id of the next acquire.
    pub(crate) fn next_id(&self) -> Result<String, Invalid> {
        match &self.id {
            Some(id) => Ok(id.clone()),
            None => id::new_id(self.label.as_deref()),
        }
    }

    pub(crate) fn lease_options(&self) -> Result<LeaseOptions, Invalid> {
        Ok(LeaseOptions {
            lease_ms: match self.permanent {
                true => 0,
                false => lease::to_ms(self.lease.unwrap_or(lease::DEFAULT))?,
            },
            renewed: self.is_renewed()?,
            own_id: self.id.is_some(),
        })
    }

    fn is_renewed(&self) -> Result<bool, Invalid> {
        let lease = self.lease.unwrap_or(lease::DEFAULT);
        let renewed = !self.permanent && (self.renewed || self.lease.is_none());
        if renewed && lease < lease::SHORTEST_RENEWED {
            let shortest = lease::SHORTEST_RENEWED;
            let why = format!(
                "takes {shortest:?} or more with `auto_renew`, got {lease:?}; a shorter lease would end before a renewal is answered"
            );
            return Err(Invalid::new("lease", why));
        }
        Ok(renewed)
    }

    pub(crate) fn on_lost_callback(&self) -> Option<&OnLost> {
        self.on_lost.as_ref()
    }

    fn target(&self, permits: Option<u32>, lease: LeaseOptions) -> Result<PermitTarget, Invalid> {
        let (keys, id) = (self.keys.clone()?, self.next_id()?);
        let (limit, strict) = (self.limit, self.strict);
        Ok(PermitTarget::new(keys, id, permits, limit, strict, lease))
    }

    fn at_once(&self, permits: Option<u32>) -> Result<Permit, TryAcquireError> {
        let target = self.target(permits, self.lease_options()?)?;
        let key = target.keys.meta.clone();
        Operation::TryAcquire.on([key.as_ref()]).run(|| {
            let _busy = self.shared.servers.clock.busy(); // until the permit is looked after
            let granted = self.shared.waits.at_once(&target)?;
            let PermitTarget {
                keys, id, lease, ..
            } = target;
            Ok(self.permit(&keys, id, lease, self.on_lost.as_ref(), &granted)?)
        })
    }

    /// Takes permits in line, with these lease options in place of its own.
    pub(crate) fn in_line(
        &self,
        permits: u32,
        lease: LeaseOptions,
        on_lost: Option<&OnLost>,
        deadline: Option<Instant>,
    ) -> Result<Permit, AcquireError> {
        let target = self.target(Some(permits), lease)?;
        let (keys, id) = (target.keys.clone(), target.id.clone());
        Operation::Acquire.on([keys.meta.as_ref()]).run(|| {
            let cancel = self.cancel.as_ref();
            let (granted, _busy) = self.shared.waits.in_line(target, deadline, cancel)?;
            Ok(self.permit(&keys, id, lease, on_lost, &granted)?)
        })
    }

    fn permit(
        &self,
        keys: &Keys,
        id: String,
        lease: LeaseOptions,
        on_lost: Option<&OnLost>,
        granted: &Granted,
    ) -> Result<Permit, CallError> {
        let identity = Identity {
            keys: keys.clone(),
            id,
            fence: granted.grant.fence,
            lease,
        };
        Permit::granted(&self.shared, identity, granted, on_lost)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("lease", &self.lease)
            .field("permanent", &self.permanent)
            .field("label", &self.label)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
