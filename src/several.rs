//! Permits of several semaphores, acquired together or not at all.

mod held;
mod in_line;

pub use held::SeveralPermits;

use crate::error::{
    AboveLimit, AcquireSeveralError, Blocked, CallError, Invalid, LimitMismatch, NamedUsage, TryAcquireSeveralError,
};
use crate::guard::settings;
use crate::lease::releases::PendingRelease;
use crate::permit::{self, Permit};
use crate::protocol::held::Identity;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{Deadline, Moment};
use crate::protocol::semaphore::{AskOne, Grant, Line, TryAcquireAll, TryAcquireAllAnswer, Usage};
use crate::protocol::waiter::denied;
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::transport::pool::Sending;
use crate::transport::route::Unanswered;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of semaphores of one script call.
const MOST_SEMAPHORES: usize = 64;

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
    /// In the order of waiting: the smallest declared limit first, then by the bytes of their keys.
    members: Vec<Member>,
}

/// One semaphore, and the number of permits to take.
#[derive(Clone)]
struct Member {
    semaphore: Semaphore,
    permits: u32,
}

settings!(Several);

impl Several {
    pub(crate) fn new(semaphores: impl Iterator<Item = (Semaphore, u32)>) -> Several {
        let members = semaphores.map(|(semaphore, permits)| Member { semaphore, permits });
        let mut members: Vec<_> = members.collect();
        members.sort_by_cached_key(|Member { semaphore, .. }| {
            let key = semaphore.settings().keys().map(|keys| keys.meta.clone()).ok();
            // A semaphore without a declared limit is the last one to wait for.
            (semaphore.settings().limit().checked_sub(1).unwrap_or(u32::MAX), key)
        });
        Several { members }
    }

    fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Several {
        let members = self.members.into_iter();
        let members = members.map(|Member { semaphore, permits }| Member { semaphore: set(semaphore), permits });
        Several { members: members.collect() }
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
        let (first, keys) = self.check()?;
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
        let (first, keys) = self.check()?;
        let span = Operation::AcquireSeveral.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run(|| in_line::acquire(&self.members, first, timeout))
    }

    /// Checks the arguments without the server. Returns the first semaphore, and the keys of all.
    fn check(&self) -> Result<(&Semaphore, Vec<&Keys>), Invalid> {
        let semaphores = self.members.iter().map(|member| &member.semaphore);
        let keys: Vec<&Keys> =
            semaphores.clone().map(|semaphore| semaphore.settings().keys()).collect::<Result<_, _>>()?;
        let Some(first) = semaphores.clone().next().filter(|_| keys.len() <= MOST_SEMAPHORES) else {
            let why = format!("got {}. Accepted: 1 to {MOST_SEMAPHORES}", keys.len());
            return Err(Invalid::new("semaphores", why));
        };
        for (index, semaphore) in semaphores.enumerate() {
            if semaphore.settings().id.is_some() {
                let why = format!(
                    "the semaphore {} has a chosen id. Accepted: semaphores without `id`. Remove the call of `id`",
                    semaphore.name()
                );
                return Err(Invalid::new("id", why));
            }
            let mut before = self.members.iter().take(index).map(|member| &member.semaphore);
            if before.any(|other| other.is_same(semaphore)) {
                return Err(Invalid::new(
                    "semaphores",
                    format!("{:?} twice. Accepted: each semaphore once", semaphore.name()),
                ));
            }
        }
        if let Some(member) = self.members.iter().find(|member| member.permits == 0) {
            return Err(Invalid::new(
                "permits",
                format!("got 0 of {}. Accepted: 1 to the limit", member.semaphore.name()),
            ));
        }
        Ok((first, keys))
    }

    fn at_once(&self, first: &Semaphore, keys: &[&Keys]) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = &first.shared;
        let is_elsewhere = |member: &Member| !Arc::ptr_eq(&member.semaphore.shared, shared);
        if self.members.iter().any(is_elsewhere) || keys.iter().any(|other| other.tag() != first_tag(keys)) {
            let why = "different gates or groups. Accepted: one gate and one group, as in `{trade}:sword` and `{trade}:shield`. \
                       For any other semaphores use `acquire_timeout`";
            return Err(Invalid::new("semaphores", why).into());
        }
        let id = first.settings().next_id()?;
        let asked = self.members.iter().zip(keys).map(|(member, &keys)| {
            let lease = member.semaphore.settings().lease_options()?;
            let (permits, limit) = (member.permits, member.semaphore.settings().limit());
            Ok(AskOne { keys, permits, limit, lease_ms: lease.first_lease_ms(), at_least_ms: lease.at_least_ms })
        });
        let asked: Vec<AskOne> = asked.collect::<Result<_, Invalid>>()?;
        let _busy = shared.servers.clock.busy(); // until the permits are registered for renewal
        let call = TryAcquireAll { id: &id, asked: &asked };
        let answer = shared.servers.ask(&call, Sending::default());
        let (answer, sent) = answer.map_err(|unanswered| abandon(shared, &call, unanswered))?;
        match answer {
            TryAcquireAllAnswer::Granted(grants) | TryAcquireAllAnswer::Held(grants) => {
                self.granted(shared, &call, &grants, sent)
            }
            TryAcquireAllAnswer::Denied { index, next_expiry, lines, .. } => {
                shared.servers.counts.denied.add_one();
                for (member, line) in self.members.iter().zip(&lines) {
                    member.semaphore.settings().check_limit(line.usage.limit)?;
                }
                Err(self.blocked(index, next_expiry, &lines))
            }
            TryAcquireAllAnswer::AboveLimit { index, limit, .. } => {
                let member = self.members.get(index);
                let (name, permits) = member.map_or(("", 0), |member| (member.semaphore.name(), member.permits));
                let above = AboveLimit { name: name.to_owned(), permits, limit };
                Err(TryAcquireSeveralError::AboveLimit(above))
            }
        }
    }

    fn granted(
        &self,
        shared: &Arc<Shared>,
        call: &TryAcquireAll,
        grants: &[(Grant, Usage)],
        sent: Moment,
    ) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let mut permits = Vec::with_capacity(grants.len());
        let mut mismatch: Option<LimitMismatch> = None;
        for (Member { semaphore, .. }, (grant, usage)) in self.members.iter().zip(grants) {
            let (keys, lease) = (semaphore.settings().keys()?.clone(), semaphore.settings().lease_options()?);
            let identity = Identity { keys, id: call.id.to_owned(), fence: grant.fence, lease };
            let deadline = Deadline::after(sent, grant.left());
            let permit = Permit::new(shared, identity, grant, deadline, semaphore.settings().on_lost.as_ref());
            permits.push(permit.with_limit(usage.limit));
            mismatch = mismatch.or(semaphore.settings().check_limit(usage.limit).err());
        }
        let held = SeveralPermits::new(&self.members, permits);
        if let Some(mismatch) = mismatch {
            drop(held);
            return Err(mismatch.into());
        }
        permit::confirm(held.permits())?;
        for _ in held.permits() {
            shared.servers.counts.grant(false);
        }
        Ok(held)
    }

    fn blocked(&self, index: usize, next_expiry: Option<u64>, lines: &[Line]) -> TryAcquireSeveralError {
        let usages = self.members.iter().zip(lines).map(|(member, line)| NamedUsage {
            name: member.semaphore.name().to_owned(),
            in_use: line.usage.in_use,
            limit: line.usage.limit,
            waiting: line.waiting,
        });
        let usages: Vec<_> = usages.collect();
        TryAcquireSeveralError::Blocked(Blocked {
            name: usages.get(index).map(|usage| usage.name.clone()).unwrap_or_default(),
            denied: lines.get(index).map(|line| denied(line.usage, line.waiting, next_expiry)),
            usages,
        })
    }
}

fn first_tag<'a>(keys: &[&'a Keys]) -> &'a str {
    keys.first().map_or("", |keys| keys.tag())
}

/// Releases the permits that an unanswered call may have acquired, in the background.
fn abandon(shared: &Shared, call: &TryAcquireAll, unanswered: Unanswered) -> CallError {
    if let CallError::Unknown(_) = unanswered.error {
        let pending = call.asked.iter().map(|one| {
            let until = shared.now().checked_add(Duration::from_millis(one.lease_ms));
            PendingRelease::of_call(one.keys, call.id, false, unanswered.connection.clone(), until)
        });
        shared.releases.later(pending);
    }
    unanswered.error
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.iter().map(|member| (member.semaphore.name(), member.permits));
        f.debug_map().entries(members).finish()
    }
}
