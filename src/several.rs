//! Permits of several semaphores, acquired together or not at all.

mod held;
mod in_line;
mod members;

pub use held::SeveralPermits;
pub(crate) use members::{AnySemaphore, Members, abandoned};
#[cfg(feature = "tokio")]
pub(crate) use members::{Member, check_timeout, not_acquired, too_late};

use crate::error::{AcquireSeveralError, CallError, TryAcquireSeveralError};
use crate::guard::settings;
use crate::permit::{self, Permit};
use crate::protocol::keys::Keys;
use crate::protocol::lease::Deadline;
use crate::protocol::semaphore::{TryAcquireAll, TryAcquireAllAnswer};
use crate::semaphore::Semaphore;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::transport::pool::Sending;
use crate::transport::route::Unanswered;
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
    members: Members<Semaphore>,
}

settings!(Several);

impl Several {
    pub(crate) fn new(semaphores: impl Iterator<Item = (Semaphore, u32)>) -> Several {
        Several { members: Members::new(semaphores) }
    }

    fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Several {
        Several { members: self.members.with(set) }
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
        let (first, keys) = self.members.check()?;
        let span = Operation::TryAcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run(|| self.at_once(first, &keys))
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
        let (first, keys) = self.members.check()?;
        let span = Operation::AcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run(|| in_line::acquire(&self.members, first, timeout))
    }

    fn at_once(&self, first: &Semaphore, keys: &[&Keys]) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = &first.shared;
        let asked = self.members.asked(first, keys)?;
        let id = first.settings().next_id()?;
        let _busy = shared.servers.clock.busy(); // until the permits are registered for renewal
        let call = TryAcquireAll { id: &id, asked: &asked };
        let answer = shared.servers.ask(&call, Sending::default());
        let (answer, sent) = answer.map_err(|unanswered| abandon(shared, &call, unanswered))?;
        if let TryAcquireAllAnswer::Denied { .. } = answer {
            shared.servers.counts.denied.add_one();
        }
        let grants = self.members.granted(answer)?;
        let identities = self.members.identities(&id, &grants)?.into_iter().zip(&grants);
        let permits = identities.map(|((settings, identity), (grant, usage))| {
            let deadline = Deadline::after(sent, grant.left());
            let permit = Permit::new(shared, identity, grant, deadline, settings.on_lost.as_ref());
            permit.with_limit(usage.limit)
        });
        let held = SeveralPermits::new(self.members.names(), permits.collect());
        self.members.check_limits(&grants)?;
        permit::confirm(held.permits())?;
        for _ in held.permits() {
            shared.servers.counts.grant(false);
        }
        Ok(held)
    }
}

/// Releases the permits that an unanswered call may have acquired, in the background.
fn abandon(shared: &Shared, call: &TryAcquireAll, unanswered: Unanswered) -> CallError {
    if let CallError::Unknown(_) = unanswered.error {
        shared.releases.later(abandoned(call, unanswered.connection, shared.now()));
    }
    unanswered.error
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
