//! Permits of several semaphores, acquired together or not at all.

mod held;
mod in_line;
mod members;

pub use held::SeveralPermits;

use members::{Members, abandoned};

use crate::engine::connection::Connection;
use crate::engine::mode::block;
use crate::engine::servers::{Sending, Unanswered};
use crate::error::{AcquireSeveralError, CallError, Invalid, TryAcquireSeveralError};
use crate::guard::settings;
use crate::lease::releases::Earlier;
use crate::permit::{self, Permit};
use crate::protocol::call::Call;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{Deadline, Moment};
use crate::protocol::semaphore::{Grant, TryAcquireSeveral, TryAcquireSeveralAnswer, Usage};
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::polled::Asked;
use crate::wait::{Caller, MakeOnce};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Permits of several semaphores, which are acquired together or not at all.
///
/// Use it for several limits at once, for example 3 for each user and 100 in total. Use it also for work on several
/// things that each have a mutex. [`Gate::several`](crate::Gate::several) creates it, and
/// [`Gate::mutexes`](crate::Gate::mutexes) creates it for mutexes only.
///
/// It replaces acquiring one after the other: two callers that do so in different orders wait for each other for ever.
/// A caller that acquires only one of the semaphores waits in the same line. It is not re-entrant.
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
/// The [guide](crate::guide::several_at_once) explains the order, fairness, and the effect of callers that declare
/// different limits.
#[derive(Clone)]
pub struct Several {
    members: Members,
}

settings!(Several);

impl Several {
    pub(crate) fn new(semaphores: impl Iterator<Item = (Semaphore, u32)>) -> Several {
        Several { members: Members::new(semaphores) }
    }

    pub(crate) fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Several {
        Several { members: self.members.with(set) }
    }

    /// The gate whose thread watches a future of these.
    fn shared(&self) -> Result<&Shared, Invalid> {
        Ok(&self.members.check()?.0.shared)
    }

    /// Takes the permits of all semaphores with one script, if each has enough free permits and no caller waits for any
    /// of them. Otherwise it takes none. All semaphores must be of one gate. All names must share a group, as in
    /// `{group}:name`, so that one server stores them. Blocks for one round trip.
    ///
    /// # Errors
    /// [`TryAcquireSeveralError::Blocked`] names the first semaphore that did not grant, and contains the usage of
    /// each. [`TryAcquireSeveralError::Invalid`] for names of different groups, a semaphore given twice, no semaphore,
    /// more than 64, or a semaphore with an [id](Semaphore::id) chosen by the application. After any error nothing
    /// stays held.
    pub fn try_acquire(&self) -> Result<SeveralPermits, TryAcquireSeveralError> {
        block(|mode| self.try_acquire_by(Caller::of(mode)))
    }

    /// As [`try_acquire`](Several::try_acquire), without blocking.
    ///
    /// # Errors
    /// As [`try_acquire`](Several::try_acquire).
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire_async(&self) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = self.shared()?;
        shared.watch(|polled| async move { self.try_acquire_by(Caller::polled(&polled)).await })?.await
    }

    async fn try_acquire_by(&self, caller: Caller<'_>) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let (first, keys) = self.members.check()?;
        let span = Operation::TryAcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run_async(self.at_once(first, &keys, caller)).await
    }

    /// Takes the permits of all semaphores, one semaphore after the other. Waits in line for at most `timeout`, and
    /// blocks for at most `timeout` plus 50 ms.
    ///
    /// The order is: the smallest declared limit first, then by the bytes of their keys. All callers that declare the
    /// same limits use this order, so two of them never wait for each other. No caller holds a permit of a semaphore
    /// with a large limit while it waits for one with a small limit. While it waits, the permits that it already holds
    /// are renewed. At the end it checks that all of them are still held. It is fair: each line is first come, first
    /// served. The names need no common group, and the semaphores can be of different gates.
    ///
    /// # Errors
    /// [`AcquireSeveralError::TimedOut`] names the semaphore that was waited for. [`AcquireSeveralError::Lost`] if
    /// permits that were already granted were lost during the wait. [`AcquireSeveralError::Invalid`] for a timeout of
    /// zero, a semaphore given twice, no semaphore, more than 64, or a semaphore with an [id](Semaphore::id) chosen by
    /// the application. After any error nothing stays held.
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<SeveralPermits, AcquireSeveralError> {
        block(|mode| self.acquire_by(timeout, Caller::of(mode)))
    }

    /// As [`acquire_timeout`](Several::acquire_timeout), without blocking. If this future is woken but not polled for one
    /// second, the permits that it already holds are not renewed any more.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Several::acquire_timeout).
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and the permits that it already holds are released.
    pub async fn acquire_timeout_async(&self, timeout: Duration) -> Result<SeveralPermits, AcquireSeveralError> {
        let shared = self.shared()?;
        shared.watch(|polled| async move { self.acquire_by(timeout, Caller::polled(&polled)).await })?.await
    }

    async fn acquire_by(&self, timeout: Duration, caller: Caller<'_>) -> Result<SeveralPermits, AcquireSeveralError> {
        let (first, keys) = self.members.check()?;
        let span = Operation::AcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run_async(in_line::acquire(&self.members, first, timeout, caller)).await
    }

    async fn at_once(
        &self,
        first: &Semaphore,
        keys: &[&Keys],
        caller: Caller<'_>,
    ) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = &first.shared;
        shared.check_process()?;
        let asked = self.members.asked(first, keys)?;
        let id = first.settings().next_id()?;
        self.settle(shared, keys, caller).await?;
        let call = TryAcquireSeveral { id: &id, asked: &asked };
        loop {
            let _busy = shared.servers.clock.busy(); // until the permits are registered for renewal
            let earlier = shared.releases.earlier();
            let (answer, sent) = Once::ask(shared, &call, caller).await?;
            if let TryAcquireSeveralAnswer::Denied { .. } = answer {
                if self.has_overtaken(shared, keys, earlier, caller).await? {
                    continue;
                }
                shared.servers.counts.denied.add_one();
            }
            let grants = self.members.granted(answer)?;
            let held = SeveralPermits::new(self.members.names(), self.permits(shared, &id, &grants, sent)?);
            self.members.check_limits(&grants)?;
            let confirmed = permit::confirm(&held.permits.iter().collect::<Vec<_>>(), caller.mode).await;
            if caller.keeps_grant() {
                confirmed?;
                held.permits.iter().for_each(|_| shared.servers.counts.grant(false));
                return Ok(held);
            }
            held.into_permits().into_iter().for_each(Permit::forget);
        }
    }

    async fn settle(&self, shared: &Shared, keys: &[&Keys], caller: Caller<'_>) -> Result<(), CallError> {
        for keys in keys {
            shared.releases.settle(keys.meta.as_bytes(), None, None, caller.mode).await?;
        }
        Ok(())
    }

    async fn has_overtaken(
        &self,
        shared: &Shared,
        keys: &[&Keys],
        earlier: Earlier,
        caller: Caller<'_>,
    ) -> Result<bool, CallError> {
        let mut has_overtaken = false;
        for keys in keys {
            has_overtaken |= shared.releases.has_overtaken(keys.meta.as_bytes(), None, earlier, caller.mode).await?;
        }
        Ok(has_overtaken)
    }

    fn permits(
        &self,
        shared: &Arc<Shared>,
        id: &str,
        grants: &[(Grant, Usage)],
        sent: Moment,
    ) -> Result<Vec<Permit>, Invalid> {
        let identities = self.members.identities(id, grants)?.into_iter().zip(grants);
        let permits = identities.map(|((settings, identity), (grant, usage))| {
            let deadline = Deadline::after(sent, grant.left());
            let permit = Permit::new(shared, identity, grant, deadline, settings.on_lost.as_ref());
            permit.with_limit(usage.limit)
        });
        Ok(permits.collect())
    }
}

/// One call for several semaphores. If this is dropped before its answer is here, the permits are released.
struct Once<'a> {
    shared: &'a Shared,
    call: &'a TryAcquireSeveral<'a>,
    connection: Option<Arc<Connection>>,
    is_sent: bool,
}

impl<'a> Once<'a> {
    async fn ask(
        shared: &'a Shared,
        call: &'a TryAcquireSeveral<'a>,
        caller: Caller<'_>,
    ) -> Result<(TryAcquireSeveralAnswer, Moment), CallError> {
        let asks = || {
            call.asked
                .iter()
                .map(|one| Asked::of_id(one.keys, call.id, Duration::from_millis(one.lease_ms), None))
                .collect()
        };
        loop {
            caller.polled.inspect(|polled| polled.asks(asks()));
            let mut once = Once { shared, call, connection: None, is_sent: true };
            let packed = call.pack();
            let mut make = MakeOnce { call: &packed, connection: &mut once.connection };
            let answered = shared.servers.send_as(packed.key(), Sending::of(caller.mode), &mut make).await;
            let read = answered.and_then(|answered| answered.read_at(|reply| call.answer(reply)));
            let answer = read.map_err(|Unanswered { error, connection, .. }| {
                once.is_sent = matches!(error, CallError::Unknown(_));
                once.connection = connection;
                error
            })?;
            if !caller.is_given_back() {
                once.is_sent = false;
                return Ok(answer);
            }
            drop(once); // releases
            for one in call.asked {
                shared.releases.settle(one.keys.meta.as_bytes(), Some(call.id), None, caller.mode).await?;
            }
            caller.polled.inspect(|polled| polled.asks_again());
        }
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if self.is_sent && self.shared.servers.is_own_process() {
            for pending in abandoned(self.call, self.connection.take(), self.shared.now()) {
                self.shared.releases.post(pending);
            }
        }
    }
}

impl Semaphore {
    fn is_of_same_gate(&self, other: &Semaphore) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.members.fmt(f)
    }
}
