//! Permits of several semaphores, acquired together or not at all.

mod held;
mod in_line;

pub use held::SeveralPermits;

use super::permit::{Permit, confirm};
use super::semaphore::Semaphore;
use super::shared::Shared;
use super::transport::servers::Make;
use super::transport::{Connection, Sending, Server};
use super::wait::polled::{Asked, Polled};
use crate::error::failure::Failure;
use crate::error::{AcquireSeveralError, CallError, TryAcquireSeveralError};
use crate::guard::settings;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::{Deadline, Moment};
use crate::protocol::semaphore::{Grant, TryAcquireAll, TryAcquireAllAnswer, Usage};
use crate::settings::Settings;
use crate::several::{AnySemaphore, Members, abandoned};
use crate::trace::Operation;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Permits of several semaphores, which are acquired together or not at all.
///
/// See [`luagate::Several`](crate::Several). [`Gate::several`](crate::aio::Gate::several) creates it, and
/// [`Gate::mutexes`](crate::aio::Gate::mutexes) creates it for mutexes only.
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), luagate::Error> {
/// # let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
/// let user = gate.semaphore("export:user:17", 3);
/// let total = gate.semaphore("export", 100);
/// let both = gate.several([(&user, 1), (&total, 1)]);
/// let held = both.acquire_timeout(Duration::from_secs(10)).await?; // a permit of each
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// The [guide](crate::guide::several_at_once) explains the order, fairness, and the effect of callers that declare
/// different limits.
#[derive(Clone)]
pub struct Several {
    members: Members<Semaphore>,
}

settings!(Several);

impl Several {
    pub(super) fn new(semaphores: impl Iterator<Item = (Semaphore, u32)>) -> Several {
        Several { members: Members::new(semaphores) }
    }

    fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Several {
        Several { members: self.members.with(set) }
    }

    /// Takes the permits of all semaphores with one script, if each has enough free permits and no caller waits for any
    /// of them. Otherwise it takes none. All semaphores must be of one gate. All names must share a group, as in
    /// `{group}:name`, so that one server stores them.
    ///
    /// # Errors
    /// [`TryAcquireSeveralError::Blocked`] names the first semaphore that did not grant, and contains the usage of
    /// each. [`TryAcquireSeveralError::Invalid`] for names of different groups, a semaphore given twice, no semaphore,
    /// more than 64, or a semaphore with an [id](Semaphore::id) chosen by the application. After any error nothing
    /// stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire(&self) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let (first, keys) = self.members.check()?;
        first.shared.check_process()?; // before any lock
        let span = Operation::TryAcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        let watched = first.shared.futures.watch(|polled| self.at_once(first, &keys, polled));
        span.run_async(watched).await
    }

    /// Takes the permits of all semaphores, one semaphore after the other. Waits in line for at most `timeout`, and
    /// returns after at most `timeout` plus 50 ms.
    ///
    /// The order is: the smallest declared limit first, then by the bytes of their keys. All callers that declare the
    /// same limits use this order, so two of them never wait for each other. No caller holds a permit of a semaphore
    /// with a large limit while it waits for one with a small limit. While it waits, the permits that it already holds
    /// are renewed. At the end it checks that all of them are still held. It is fair: each line is first come, first
    /// served. The names need no common group, and the semaphores can be of different gates.
    ///
    /// If this future is woken but not polled for one second, the permits that it already holds are not renewed any more.
    ///
    /// # Errors
    /// [`AcquireSeveralError::TimedOut`] names the semaphore that was waited for. [`AcquireSeveralError::Lost`] if
    /// permits that were already granted were lost during the wait. [`AcquireSeveralError::Invalid`] for a timeout of
    /// zero, a semaphore given twice, no semaphore, more than 64, or a semaphore with an [id](Semaphore::id) chosen by
    /// the application. After any error nothing stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and the permits that it already holds are released.
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<SeveralPermits, AcquireSeveralError> {
        let (first, keys) = self.members.check()?;
        let span = Operation::AcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run_async(in_line::acquire(&self.members, first, timeout)).await
    }

    async fn at_once(
        &self,
        first: &Semaphore,
        keys: &[&Keys],
        polled: Arc<Polled>,
    ) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = &first.shared;
        let asked = self.members.asked(first, keys)?;
        let id = first.settings().next_id()?;
        let call = TryAcquireAll { id: &id, asked: &asked };
        polled
            .asks(call.asked.iter().map(|one| Asked::of(one.keys, &id, Duration::from_millis(one.lease_ms))).collect());
        loop {
            let _busy = shared.servers.clock.busy(); // until the permits are registered for renewal
            let (answer, sent) = TakeAll::new(shared, &call).send().await?;
            if let TryAcquireAllAnswer::Denied { .. } = answer {
                shared.servers.counts.denied.add_one();
            }
            let grants = self.members.granted(answer)?;
            let held = SeveralPermits::new(self.members.names(), self.permits(shared, &id, &grants, sent)?);
            self.members.check_limits(&grants)?;
            let confirmed = confirm(held.permits()).await;
            if !polled.is_given_back() {
                confirmed?;
                held.permits().iter().for_each(|_| shared.servers.counts.grant(false));
                return Ok(held);
            }
            held.into_permits().into_iter().for_each(Permit::forget);
            for one in call.asked {
                shared.releases.settle(&shared.servers, one.keys, &id, None).await?;
            }
            polled.asks_again();
        }
    }

    fn permits(
        &self,
        shared: &Arc<Shared>,
        id: &str,
        grants: &[(Grant, Usage)],
        sent: Moment,
    ) -> Result<Vec<Permit>, CallError> {
        let identities = self.members.identities(id, grants)?.into_iter().zip(grants);
        let permits = identities.map(|((settings, identity), (grant, usage))| {
            let deadline = Deadline::after(sent, grant.left());
            let permit = Permit::new(shared, identity, grant, deadline, settings.on_lost.as_ref());
            permit.with_limit(usage.limit)
        });
        Ok(permits.collect())
    }
}

/// The call that takes the permits of all. If this is dropped before its answer, permits that the server granted are
/// released.
struct TakeAll<'a> {
    shared: &'a Shared,
    call: &'a TryAcquireAll<'a>,
    packed: Packed,
    connection: Option<Arc<Connection>>,
    is_sent: bool,
}

impl<'a> TakeAll<'a> {
    fn new(shared: &'a Shared, call: &'a TryAcquireAll<'a>) -> TakeAll<'a> {
        TakeAll { shared, call, packed: call.pack(), connection: None, is_sent: false }
    }

    async fn send(mut self) -> Result<(TryAcquireAllAnswer, Moment), CallError> {
        let shared = self.shared;
        let key = self.packed.key().to_owned();
        let answered = shared.servers.send_as(&key, Sending::default(), &mut self).await;
        let read = answered.and_then(|answered| {
            let sent = answered.sent;
            Ok((answered.read(|reply| self.call.answer(reply))?, sent))
        });
        self.is_sent = matches!(&read, Err(unanswered) if matches!(unanswered.error, CallError::Unknown(_)));
        read.map_err(|unanswered| {
            self.connection = unanswered.connection;
            unanswered.error
        })
    }
}

impl Make for TakeAll<'_> {
    async fn make(&mut self, _: &Arc<Server>) -> Result<Cow<'_, Packed>, Failure> {
        Ok(Cow::Borrowed(&self.packed))
    }

    fn sends_on(&mut self, connection: &Arc<Connection>) {
        self.connection = Some(connection.clone());
        self.is_sent = true;
    }
}

impl Drop for TakeAll<'_> {
    fn drop(&mut self) {
        if self.is_sent {
            self.shared.release_later(abandoned(self.call, self.connection.take(), self.shared.now()));
        }
    }
}

impl AnySemaphore for Semaphore {
    fn settings(&self) -> &Settings {
        self.settings()
    }

    fn is_of_same_gate(&self, other: &Semaphore) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.members.fmt(f)
    }
}
