//! Permits of several semaphores, acquired together or not at all.

use crate::engine::mode::{Mode, block};
use crate::error::{
    AboveLimit, AcquireError, Cancelled, Denied, FailureKind, Invalid, Lost, PermitError, TryAcquireError,
};
use crate::permit::{self, Permit, ReleaseError, Released};
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::{Caller, Doubt, Part};
use luagate_core::keys::Keys;
use luagate_core::lease::{LeaseOptions, Moment, Sent};
use luagate_core::semaphore::{AskOne, Grant, TryAcquireSeveral, TryAcquireSeveralAnswer, Usage};
use luagate_core::waiter::{self, Granted, last_call_ends};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The maximum number of semaphores of one acquire.
pub(crate) const MOST_SEMAPHORES: usize = 64;

/// Permits of several semaphores, which are acquired together or not at all.
///
/// Use it for several limits at once, for example 3 for each user and 100 in total. Use it also for work on
/// several things that each have a lock. [`Gate::several`](crate::Gate::several) creates it, and
/// [`Gate::mutexes`](crate::Gate::mutexes) creates it for mutexes only.
///
/// It replaces acquiring one after the other: two callers that do so in different orders wait for each other
/// for ever. A caller that acquires only one of the semaphores waits in the same line. It is not re-entrant.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let user = gate.semaphore("export:user:17", 3);
/// let total = gate.semaphore("export", 100);
/// let both = gate.several([(&user, 1), (&total, 1)]);
/// let held = both.acquire_timeout(Duration::from_secs(10))?; // a permit of each
/// held.release()?;
/// # Ok(())
/// # }
/// ```
///
/// The [guide](crate::guide::several_at_once) explains the order, fairness, and the effect of callers that
/// declare different limits.
#[derive(Clone)]
pub struct Several {
    /// In the order of waiting: the smallest declared limit first, then by the bytes of their keys.
    members: Vec<Member>,
}

/// One semaphore, and the number of permits to take.
#[derive(Clone)]
struct Member {
    semaphore: Semaphore,
    permits: u32,
    /// Its place in the list of the caller.
    index: usize,
}

impl Several {
    pub(crate) fn new(semaphores: impl Iterator<Item = (Semaphore, u32)>) -> Several {
        let members = semaphores.enumerate();
        let members = members.map(|(index, (semaphore, permits))| Member { semaphore, permits, index });
        let mut members: Vec<_> = members.collect();
        members.sort_by_cached_key(|Member { semaphore, .. }| {
            let key = semaphore.settings.keys().map(|keys| keys.meta.clone()).ok();
            // A semaphore without a declared limit is the last one to wait for.
            (semaphore.settings.limit.checked_sub(1).unwrap_or(u32::MAX), key)
        });
        Several { members }
    }

    /// Changes these settings of each semaphore. Its other settings stay:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let items = gate.mutexes(["item:1", "item:2"]).with(|settings| settings.max_waiting(10));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(mut self, set: impl Fn(Semaphore) -> Semaphore) -> Several {
        for member in &mut self.members {
            member.semaphore = member.semaphore.clone().with(&set);
        }
        self
    }

    /// Takes the permits of all semaphores with one script, if each has enough free permits and no caller
    /// waits for any of them. Otherwise it takes none. All semaphores must be of one gate. All names must
    /// share a group, as in `{group}:name`, so that one server stores them. Blocks for one round trip.
    ///
    /// # Errors
    /// [`TryAcquireError::Denied`] names the first semaphore that did not grant. [`TryAcquireError::Invalid`]
    /// for names of different groups, a semaphore given twice, no semaphore, more than 64, or a semaphore
    /// with an [id](Semaphore::id) or a [ticket](Semaphore::ticket) chosen by the application. After any
    /// error nothing stays held.
    pub fn try_acquire(&self) -> Result<SeveralPermits, TryAcquireError> {
        block(|mode| self.try_acquire_by(Caller::of(mode)))
    }

    /// As [`try_acquire`](Several::try_acquire), without blocking.
    ///
    /// # Errors
    /// As [`try_acquire`](Several::try_acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_async(&self) -> Result<SeveralPermits, TryAcquireError> {
        let shared = self.shared()?;
        let make = || {
            let this = self.clone();
            async move { this.try_acquire_by(Caller::of(Mode::Async)).await }
        };
        shared.watch(make).await
    }

    /// Takes the permits of all semaphores, one semaphore after the other. Waits in line, and blocks until
    /// all are granted, without a time limit.
    ///
    /// The order is: the smallest declared limit first, then by the bytes of their keys. All callers that
    /// declare the same limits use this order, so two of them never wait for each other. No caller holds a
    /// permit of a semaphore with a large limit while it waits for one with a small limit. While it waits,
    /// the permits that it already holds are renewed. At the end it checks that all of them are still held.
    /// It is fair: each line is first come, first served. The names need no common group, and the semaphores
    /// can be of different gates.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]. [`AcquireError::Lost`] if permits that were already granted were lost
    /// during the wait. [`AcquireError::Invalid`] for a semaphore given twice, no semaphore, more than 64, or
    /// a semaphore with an
    /// [id](Semaphore::id) or a [ticket](Semaphore::ticket) chosen by the application. After any error
    /// nothing stays held.
    pub fn acquire(&self) -> Result<SeveralPermits, AcquireError> {
        block(|mode| self.acquire_by(None, Caller::of(mode)))
    }

    /// As [`acquire`](Several::acquire), without blocking. If this future is woken but not polled for 1 s,
    /// the permits that it already holds are released, and it begins anew when it is polled. If more than 100
    /// futures of the gate are not polled, this time is 10 s.
    ///
    /// # Errors
    /// As [`acquire`](Several::acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and the permits that it already holds are released.
    pub async fn acquire_async(&self) -> Result<SeveralPermits, AcquireError> {
        self.in_line_async(None).await
    }

    /// As [`acquire`](Several::acquire), for at most `timeout`. Blocks for at most `timeout` plus 50 ms. A
    /// timeout of zero asks the first semaphore without waiting.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] names the semaphore that was waited for. Otherwise as
    /// [`acquire`](Several::acquire).
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<SeveralPermits, AcquireError> {
        let deadline = self.deadline(timeout)?;
        block(|mode| self.acquire_by(deadline, Caller::of(mode)))
    }

    /// As [`acquire_timeout`](Several::acquire_timeout), without blocking. A future that is not polled is
    /// treated as by
    /// [`acquire_async`](Several::acquire_async).
    ///
    /// # Errors
    /// As [`acquire_timeout`](Several::acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`acquire_async`](Several::acquire_async).
    pub async fn acquire_timeout_async(&self, timeout: Duration) -> Result<SeveralPermits, AcquireError> {
        self.in_line_async(self.deadline(timeout)?).await
    }

    async fn in_line_async(&self, deadline: Option<Instant>) -> Result<SeveralPermits, AcquireError> {
        let shared = self.shared()?;
        let make = || {
            let this = self.clone();
            async move { this.acquire_by(deadline, Caller::of(Mode::Async)).await }
        };
        shared.watch(make).await
    }

    fn deadline(&self, timeout: Duration) -> Result<Option<Instant>, Invalid> {
        Ok(self.shared()?.deadline(timeout))
    }

    /// The gate whose thread watches a future of these.
    fn shared(&self) -> Result<&Shared, Invalid> {
        Ok(&self.checked()?.0.shared)
    }

    /// Checks the arguments. Returns the first semaphore, and the keys of all.
    fn checked(&self) -> Result<(&Semaphore, Vec<&Keys>), Invalid> {
        let members = &self.members;
        let keys = members.iter().map(|member| member.semaphore.settings.keys());
        let keys: Vec<&Keys> = keys.collect::<Result<_, _>>()?;
        let Some(first) = members.first().filter(|_| keys.len() <= MOST_SEMAPHORES) else {
            let why = format!("got {}. Accepted: 1 to {MOST_SEMAPHORES}", keys.len());
            return Err(Invalid::new("semaphores", why));
        };
        for (index, Member { semaphore, permits, .. }) in members.iter().enumerate() {
            let name = semaphore.name();
            let settings = &semaphore.settings;
            let refused = [("id", settings.id.is_some()), ("ticket", settings.ticket.is_some())];
            if let Some((what, _)) = refused.iter().find(|(_, is_set)| *is_set) {
                let why = format!(
                    "the semaphore {name} has a chosen {what}. Accepted: semaphores without `{what}`. Remove the call of `{what}`"
                );
                return Err(Invalid::new(what, why));
            }
            if members.iter().take(index).any(|before| before.semaphore.is_same(semaphore)) {
                return Err(Invalid::new(
                    "semaphores",
                    format!("{name:?} twice. Accepted: each semaphore once"),
                ));
            }
            if *permits == 0 {
                return Err(Invalid::new("permits", format!("got 0 of {name}. Accepted: 1 to the limit")));
            }
        }
        Ok((&first.semaphore, keys))
    }

    /// The keys in the order of the caller, for a span.
    fn listed<'a>(&'a self, keys: &'a [&Keys]) -> impl Iterator<Item = &'a str> + Clone {
        (0..self.members.len()).filter_map(|index| {
            let place = self.members.iter().position(|member| member.index == index)?;
            keys.get(place).map(|keys| keys.meta.as_ref())
        })
    }

    async fn acquire_by(
        &self,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<SeveralPermits, AcquireError> {
        let (_, keys) = self.checked()?;
        let span = Operation::AcquireSeveral.on(self.listed(&keys));
        span.run(self.in_line(deadline, caller)).await
    }

    /// Acquires one after the other, and then checks that all are held.
    async fn in_line(
        &self,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<SeveralPermits, AcquireError> {
        let leases = self.members.iter().map(|member| member.semaphore.settings.lease_options());
        let leases: Vec<LeaseOptions> = leases.collect::<Result<_, _>>()?;
        let mut permits: Vec<Permit> = Vec::with_capacity(leases.len());
        for (member, lease) in self.members.iter().zip(&leases) {
            if !permits.is_empty() && member.semaphore.is_over(deadline) {
                return Err(late(&member.semaphore));
            }
            // Permits that are already held are renewed during the next wait, even if their settings do not
            // ask for renewal. They are not permanent yet: this process may end before all are granted.
            let lease_ms = if lease.lease_ms == 0 { lease.first_lease_ms() } else { lease.lease_ms };
            let meanwhile = LeaseOptions { renewed: true, lease_ms, ..*lease };
            let acquired = member.semaphore.in_line(member.permits, meanwhile, None, deadline, caller).await;
            permits.push(acquired.map_err(|error| match error {
                AcquireError::Cancelled(_) => AcquireError::Cancelled(Cancelled { ticket: None }), // of one of them
                error => error,
            })?);
        }
        let becomes_permanent = |(permit, lease): (Permit, &LeaseOptions)| match lease.lease_ms {
            0 => permit.under(*lease, None),
            _ => permit,
        };
        let permits: Vec<Permit> = permits.into_iter().zip(&leases).map(becomes_permanent).collect();
        let (all, until): (Vec<_>, _) = (permits.iter().collect(), last_call_ends(deadline));
        let held = permit::refresh_together(&all, None, until, caller.mode).await;
        if let (Err(PermitError::Unknown(failure) | PermitError::Failed(failure)), Some(last)) =
            (&held, self.members.last())
            && failure.kind() == FailureKind::TimedOut
            && last.semaphore.is_over(deadline)
        {
            return Err(late(&last.semaphore));
        }
        held?;
        permit::all_held(&all)?;
        let permits = permits.into_iter().zip(&self.members).zip(leases);
        let permits = permits
            .map(|((permit, member), lease)| permit.under(lease, member.semaphore.settings.on_lost.as_ref()));
        Ok(SeveralPermits::new(&self.members, permits.collect()))
    }

    async fn try_acquire_by(&self, caller: Caller<'_>) -> Result<SeveralPermits, TryAcquireError> {
        let (first, keys) = self.checked()?;
        let span = Operation::TryAcquireSeveral.on(self.listed(&keys));
        span.run(self.at_once(first, &keys, caller)).await
    }

    async fn at_once(
        &self,
        first: &Semaphore,
        keys: &[&Keys],
        caller: Caller<'_>,
    ) -> Result<SeveralPermits, TryAcquireError> {
        let shared = &first.shared;
        shared.servers.check_process()?;
        let asked = self.asked(shared, keys)?;
        let id = first.settings.next_id()?;
        let call = TryAcquireSeveral { id: &id, asked: &asked };
        let parts = asked.iter().map(|one| {
            let longest = Duration::from_millis(one.lease_ms);
            Part { keys: one.keys, id: &id, is_own_id: false, longest }
        });
        let parts: Vec<Part> = parts.collect();
        let doubts = |answer: &TryAcquireSeveralAnswer, _: Sent, _: u64| match answer {
            TryAcquireSeveralAnswer::Denied { still_held, .. }
            | TryAcquireSeveralAnswer::AboveLimit { still_held, .. } => {
                Some(Doubt { still_held: *still_held, is_overtaken: false })
            }
            _ => None,
        };
        let _busy = shared.servers.clock.busy(); // until the permits are registered for renewal
        let (answer, sent, _) = shared.waits.once(&call, &parts, doubts, caller).await?;
        if matches!(answer, TryAcquireSeveralAnswer::Denied { .. }) {
            shared.servers.counts.denied.add_one();
        }
        let grants = self.granted(answer)?;
        let held = SeveralPermits::new(&self.members, self.permits(shared, &id, &grants, sent.at)?);
        self.check_limits(grants.iter().map(|(_, usage)| usage.limit))?;
        permit::confirm(&held.permits.iter().collect::<Vec<_>>(), None, caller.mode).await?;
        held.permits.iter().for_each(|_| shared.servers.counts.grant(false));
        Ok(held)
    }

    /// The arguments of the script that takes the permits of all semaphores, or none.
    fn asked<'a>(&self, shared: &Arc<Shared>, keys: &[&'a Keys]) -> Result<Vec<AskOne<'a>>, Invalid> {
        let tag = keys.first().map_or("", |keys| keys.tag());
        let is_elsewhere = |member: &Member| !Arc::ptr_eq(&member.semaphore.shared, shared);
        if self.members.iter().any(is_elsewhere) || keys.iter().any(|other| other.tag() != tag) {
            let why = "different gates or groups. Accepted: one gate and one group, as in `{trade}:sword` and `{trade}:shield`. \
                       For any other semaphores use `acquire_timeout`";
            return Err(Invalid::new("semaphores", why));
        }
        let asked = self.members.iter().zip(keys).map(|(member, &keys)| {
            let settings = &member.semaphore.settings;
            let (lease, limit) = (settings.lease_options()?, settings.limit);
            let (lease_ms, at_least_ms) = (lease.first_lease_ms(), lease.at_least_ms);
            Ok(AskOne { keys, permits: member.permits, limit, lease_ms, at_least_ms })
        });
        asked.collect()
    }

    /// The grants in the answer to this call.
    fn granted(&self, answer: TryAcquireSeveralAnswer) -> Result<Vec<(Grant, Usage)>, TryAcquireError> {
        let name = |index: usize| self.members.get(index).map_or("", |member| member.semaphore.name());
        match answer {
            TryAcquireSeveralAnswer::Granted(grants) | TryAcquireSeveralAnswer::Held(grants) => Ok(grants),
            TryAcquireSeveralAnswer::Denied { index, next_expiry, lines, .. } => {
                self.check_limits(lines.iter().map(|line| line.usage.limit))?;
                let line = lines.get(index).copied().unwrap_or_default();
                let denied = waiter::Denied { usage: line.usage, waiting: line.waiting, next_expiry };
                Err(TryAcquireError::Denied(Denied::of(name(index), &denied)))
            }
            TryAcquireSeveralAnswer::AboveLimit { index, limit, .. } => {
                let permits = self.members.get(index).map_or(0, |member| member.permits);
                Err(AboveLimit { name: name(index).to_owned(), permits, limit }.into())
            }
        }
    }

    /// Whether the callers accept the limits in force.
    fn check_limits(&self, in_force: impl Iterator<Item = u32>) -> Result<(), TryAcquireError> {
        for (member, limit) in self.members.iter().zip(in_force) {
            member.semaphore.settings.check_limit(limit)?;
        }
        Ok(())
    }

    fn permits(
        &self,
        shared: &Arc<Shared>,
        id: &str,
        grants: &[(Grant, Usage)],
        sent: Moment,
    ) -> Result<Vec<Permit>, Invalid> {
        let permits = self.members.iter().zip(grants).map(|(member, (grant, usage))| {
            let settings = &member.semaphore.settings;
            let granted =
                Granted::new(settings.keys()?, id, settings.lease_options()?, *grant, usage.limit, sent);
            Ok(Permit::new(shared, granted, settings.on_lost.as_ref()))
        });
        permits.collect()
    }
}

/// The time was over before this semaphore was asked, or before the grants were confirmed.
fn late(semaphore: &Semaphore) -> AcquireError {
    semaphore.shared.servers.counts.denied.add_one();
    let denied = waiter::Denied { usage: Usage::default(), waiting: 0, next_expiry: None };
    AcquireError::TimedOut(Denied::of(semaphore.name(), &denied))
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.members.iter().map(|member| (member.semaphore.name(), member.permits)))
            .finish()
    }
}

/// Permits of several semaphores, held together. Dropping this releases all of them.
///
/// Dropping sends the releases and does not wait for the replies, as for one [`Permit`].
#[must_use = "the permits are released as soon as this is dropped"]
pub struct SeveralPermits {
    /// In the order of the caller.
    permits: Vec<Permit>,
}

impl SeveralPermits {
    fn new(members: &[Member], permits: Vec<Permit>) -> SeveralPermits {
        let mut permits: Vec<_> = members.iter().zip(permits).collect();
        permits.sort_by_key(|(member, _)| member.index);
        SeveralPermits { permits: permits.into_iter().map(|(_, permit)| permit).collect() }
    }

    /// The name and the permit of each semaphore, in the order in which the caller has listed them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Permit)> {
        self.permits.iter().map(|permit| (permit.name(), permit))
    }

    /// The permit of the semaphore or lock with this name. `None` if there is none, or more than one: a
    /// semaphore and a lock can have the same name.
    pub fn get(&self, name: &str) -> Option<&Permit> {
        let mut found = self.iter().filter_map(|(other, permit)| (other == name).then_some(permit));
        found.next().filter(|_| found.next().is_none())
    }

    /// The fencing token of the permit that [`get`](Self::get) returns. See [`Permit::fence`].
    pub fn fence(&self, name: &str) -> Option<u64> {
        self.get(name).map(Permit::fence)
    }

    /// The time for which all of them are still held. See [`Permit::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.permits.iter().filter_map(Permit::remaining).min()
    }

    /// Whether one of them is lost. See [`Permit::is_lost`].
    #[must_use = "the work must stop if one of them is lost"]
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Waits until one of them is lost. See [`Permit::lost_async`].
    ///
    /// # Cancel safety
    /// As [`Permit::lost_async`].
    pub async fn lost_async(&self) -> Lost {
        let mut losses: Vec<_> = self.permits.iter().map(|permit| Box::pin(permit.lost_async())).collect();
        poll_fn(|cx| {
            let lost = losses.iter_mut().map(|lost| lost.as_mut().poll(cx));
            lost.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Starts a new lease for all of them from now. Blocks for one round trip to each gate.
    ///
    /// # Errors
    /// [`PermitError::Lost`] if one of them is lost. After any other error they are valid until their old
    /// leases end.
    pub fn refresh(&self) -> Result<(), PermitError> {
        block(|mode| self.refresh_by(mode))
    }

    /// As [`refresh`](SeveralPermits::refresh), without blocking.
    ///
    /// # Errors
    /// As [`refresh`](SeveralPermits::refresh).
    ///
    /// # Cancel safety
    /// As [`Permit::refresh_async`].
    pub async fn refresh_async(&self) -> Result<(), PermitError> {
        self.refresh_by(Mode::Async).await
    }

    /// Releases all of them. Returns [`Released::Gone`] if one of them had been lost before; the others are
    /// released nevertheless. Blocks for one round trip to each gate.
    ///
    /// # Errors
    /// [`ReleaseError`] if a server did not confirm the release. It contains the permits, so that the caller
    /// can try again.
    pub fn release(self) -> Result<Released, ReleaseError<SeveralPermits>> {
        block(|mode| self.release_by(mode))
    }

    /// As [`release`](SeveralPermits::release), without blocking.
    ///
    /// # Errors
    /// As [`release`](SeveralPermits::release).
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    pub async fn release_async(self) -> Result<Released, ReleaseError<SeveralPermits>> {
        self.release_by(Mode::Async).await
    }

    async fn refresh_by(&self, mode: Mode) -> Result<(), PermitError> {
        permit::refresh_all(&self.permits.iter().collect::<Vec<_>>(), None, mode).await
    }

    async fn release_by(self, mode: Mode) -> Result<Released, ReleaseError<SeveralPermits>> {
        permit::release_all(&self.permits, mode).await.map_err(|error| ReleaseError::new(self, error))
    }

    /// The separate permits, in the order in which the caller has listed them. Each of them can be released
    /// alone.
    #[must_use = "the permits are released as soon as they are dropped"]
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }
}

impl fmt::Debug for SeveralPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
