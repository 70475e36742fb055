//! Several mutexes, locked together or not at all.

use crate::error::failure::{Failure, FailureKind};
use crate::error::{AcquireError, CallError, InTheWay, Invalid, LockAllError, RefreshError, TryLockAllError};
use crate::guard::{UnlockError, settings};
use crate::lease::releases::PendingRelease;
use crate::mutex::{Mutex, MutexGuard};
use crate::permit::{self, Permit, Released};
use crate::protocol::held::Identity;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{Deadline, LeaseOptions};
use crate::protocol::releases::Target;
use crate::protocol::semaphore::{TryLockAll, TryLockAllAnswer};
use crate::protocol::waiter::{LAST_CALL, denied};
use crate::semaphore::Semaphore;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::transport::pool::Sending;
use crate::transport::route::Unanswered;
use std::fmt;
use std::time::{Duration, Instant};

/// How many one script locks.
const MOST_NAMES: usize = 64;

/// Several mutexes that are locked together, all or none.
///
/// For work on several things at once, each of which has a mutex of its own. Made by [`Gate::mutexes`](crate::Gate::mutexes). It takes the place of locking one after the other by hand, where two who
/// do so in different orders wait for each other for ever. Whoever locks one of them alone by [`Gate::mutex`](crate::Gate::mutex)
/// stands in the same line. Not re-entrant.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let swap = gate.mutexes(["item:42", "item:17"]);
/// let guard = swap.lock_all(Duration::from_secs(2))?;
/// println!("swapping {} items", guard.iter().count());
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutexes {
    /// In the order in which they are locked: that of their keys' bytes, the same for everybody.
    semaphores: Vec<Semaphore>,
}

settings!(Mutexes);

impl Mutexes {
    pub(crate) fn new(mutexes: impl Iterator<Item = Mutex>) -> Mutexes {
        let mut semaphores: Vec<_> = mutexes.map(Mutex::into_semaphore).collect();
        semaphores.sort_by_key(|semaphore| semaphore.keys().map(|keys| keys.meta.clone()).ok());
        Mutexes { semaphores }
    }

    fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Mutexes {
        Mutexes { semaphores: self.semaphores.into_iter().map(set).collect() }
    }

    /// Locks all of them at once or none, by one script, if they are free and nobody waits for one of them. For one server to
    /// have them all their names share a group, written `{group}:name`. Blocks for one round trip.
    ///
    /// # Errors
    /// [`TryLockAllError::InTheWay`] tells the first that is not free; [`TryLockAllError::Invalid`] for names of several
    /// groups, a name given twice, none, or more than 64. Nothing stays held after any error.
    pub fn try_lock_all(&self) -> Result<MutexesGuard, TryLockAllError> {
        let (first, keys) = self.check()?;
        let span = Operation::TryLockAll.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run(|| self.lock_at_once(first, &keys))
    }

    fn lock_at_once(&self, first: &Semaphore, keys: &[&Keys]) -> Result<MutexesGuard, TryLockAllError> {
        let mut tags = keys.iter().map(|keys| keys.tag());
        let tag = tags.next();
        if tags.any(|other| Some(other) != tag) {
            let why = "takes names of one group, as in `{trade}:sword` and `{trade}:shield`; `lock_all` takes any";
            return Err(Invalid::new("names", why).into());
        }
        let (shared, lease) = (&first.shared, first.lease_options()?);
        let id = first.next_id()?;
        let _busy = shared.servers.clock.busy(); // until the permits are looked after
        let call = TryLockAll { mutexes: keys, id: &id, lease_ms: lease.first_lease_ms() };
        let answer = shared.servers.ask(&call, Sending::default());
        let (answer, sent) = answer.map_err(|unanswered| abandon(shared, &call, unanswered))?;
        let grants = match answer {
            TryLockAllAnswer::Granted(grants) | TryLockAllAnswer::Held(grants) => grants,
            TryLockAllAnswer::Denied { place, next_expiry, usage, waiting, .. } => {
                shared.servers.counts.denied.add_one();
                let in_the_way = self.semaphores.get(place).unwrap_or(first);
                return Err(TryLockAllError::InTheWay(InTheWay {
                    name: in_the_way.name().to_owned(),
                    denied: Some(denied(usage, waiting, next_expiry)),
                }));
            }
        };
        let permits = keys.iter().zip(grants).map(|(&keys, grant)| {
            let identity = Identity { keys: keys.clone(), id: id.clone(), fence: grant.fence, lease };
            let deadline = Deadline::told(sent, grant.left());
            let on_lost = first.on_lost_callback();
            Permit::new(shared, identity, &grant, deadline, on_lost).with_limit(1)
        });
        let guard = self.guard(permits.collect());
        permit::confirm(&guard.permits)?;
        for _ in &guard.permits {
            shared.servers.counts.grant(false);
        }
        Ok(guard)
    }

    /// Locks all of them, in line for at most `timeout`: one after the other in an order that is the same for everybody, so
    /// that no two wait for each other. What is locked already is renewed while the next is waited for,
    /// and all of it is checked at the end. Their names need not share a group. Blocks for at most `timeout` and 50 ms.
    ///
    /// # Errors
    /// [`LockAllError::TimedOut`] tells which was waited for; [`LockAllError::Lost`] when one that was locked already was
    /// taken away meanwhile; [`LockAllError::Invalid`] for a timeout of zero, a name given twice, none, or more than 64.
    /// Nothing stays held after any error.
    pub fn lock_all(&self, timeout: Duration) -> Result<MutexesGuard, LockAllError> {
        let (first, keys) = self.check()?;
        let span = Operation::LockAll.on(keys.iter().map(|keys| keys.meta.as_ref()));
        span.run(|| self.lock_in_line(first, timeout))
    }

    fn lock_in_line(&self, first: &Semaphore, timeout: Duration) -> Result<MutexesGuard, LockAllError> {
        if timeout.is_zero() {
            let why = "takes more than zero; to lock at once or not at all there is `try_lock_all`";
            return Err(Invalid::new("timeout", why).into());
        }
        let deadline = first.shared.now().checked_add(timeout); // past what the clock can hold is for ever
        let lease = first.lease_options()?;
        let mut permits = Vec::with_capacity(self.semaphores.len());
        if let Err(error) = self.lock_each(&first.shared, &mut permits, lease, deadline) {
            let latest = deadline.and_then(|end| end.checked_add(LAST_CALL));
            let left = latest.map(|end| end.saturating_duration_since(first.shared.now()));
            permit::drop_within(&mut permits, left.unwrap_or(LAST_CALL).min(LAST_CALL));
            return Err(error);
        }
        let permits = permits.into_iter().map(|permit| permit.under(lease, first.on_lost_callback()));
        Ok(self.guard(permits.collect()))
    }

    /// One after the other, then a look whether all are held.
    fn lock_each(
        &self,
        shared: &Shared,
        permits: &mut Vec<Permit>,
        lease: LeaseOptions,
        deadline: Option<Instant>,
    ) -> Result<(), LockAllError> {
        let meanwhile = LeaseOptions { renewed: lease.lease_ms > 0, ..lease };
        let is_over = || deadline.is_some_and(|end| end <= shared.now());
        for semaphore in &self.semaphores {
            if !permits.is_empty() && is_over() {
                return Err(too_late(shared, semaphore));
            }
            let permit = semaphore.in_line(1, meanwhile, None, deadline);
            permits.push(permit.map_err(|error| not_locked(error, semaphore))?);
        }
        let until = deadline.and_then(|end| end.checked_add(LAST_CALL));
        permit::refresh_all(permits, None, until).map_err(|error| match (&error, self.semaphores.last()) {
            (RefreshError::Unknown(failure) | RefreshError::Failed(failure), Some(last))
                if is_over() && failure.kind() == FailureKind::TimedOut =>
            {
                too_late(shared, last)
            }
            _ => error.into(),
        })
    }

    fn guard(&self, permits: Vec<Permit>) -> MutexesGuard {
        let names = self.semaphores.iter().map(|semaphore| semaphore.name().to_owned());
        MutexesGuard { names: names.collect(), permits }
    }

    /// What can be told to be wrong without asking the server. The first, and the keys of all.
    fn check(&self) -> Result<(&Semaphore, Vec<&Keys>), Invalid> {
        let keys = self.semaphores.iter().map(Semaphore::keys);
        let keys: Vec<&Keys> = keys.collect::<Result<_, _>>()?;
        let first = match self.semaphores.first() {
            Some(first) if keys.len() <= MOST_NAMES => first,
            _ => {
                let why = format!("takes 1 to {MOST_NAMES} names, got {}", keys.len());
                return Err(Invalid::new("names", why));
            }
        };
        let mut pairs = self.semaphores.iter().zip(self.semaphores.iter().skip(1));
        if let Some((twice, _)) = pairs.find(|(one, next)| one.name() == next.name()) {
            let why = format!("takes each name once, got {:?} twice", twice.name());
            return Err(Invalid::new("names", why));
        }
        Ok((first, keys))
    }
}

/// Releases what a call without an answer may have locked, in the background.
fn abandon(shared: &Shared, call: &TryLockAll, unanswered: Unanswered) -> CallError {
    if let CallError::Unknown(_) = unanswered.error {
        let until = shared.now().checked_add(Duration::from_millis(call.lease_ms));
        let pending = call.mutexes.iter().map(|&keys| PendingRelease {
            keys: keys.clone(),
            id: call.id.to_owned(),
            target: Target::Whatever,
            connection: unanswered.connection.clone(),
            until,
        });
        shared.releases.later(pending);
    }
    unanswered.error
}

fn too_late(shared: &Shared, semaphore: &Semaphore) -> LockAllError {
    shared.servers.counts.denied.add_one();
    LockAllError::TimedOut(InTheWay { name: semaphore.name().to_owned(), denied: None })
}

fn not_locked(error: AcquireError, semaphore: &Semaphore) -> LockAllError {
    match error {
        AcquireError::TimedOut(denied) => {
            LockAllError::TimedOut(InTheWay { name: semaphore.name().to_owned(), denied: Some(denied) })
        }
        AcquireError::Cancelled(cancelled) => LockAllError::Cancelled(cancelled),
        AcquireError::Invalid(invalid) => LockAllError::Invalid(invalid),
        AcquireError::Failed(failure) => LockAllError::Failed(failure),
        AcquireError::Unknown(failure) => LockAllError::Unknown(failure),
        AcquireError::Revoked(revoked) => LockAllError::Revoked(revoked),
        // Its id is new, it is not strict, and a limit is one or more.
        AcquireError::AlreadyHeld(_) | AcquireError::LimitMismatch(_) | AcquireError::AboveLimit(_) => {
            let kind = FailureKind::UnexpectedReply;
            LockAllError::Unknown(Failure::new(kind, error.to_string()))
        }
    }
}

impl fmt::Debug for Mutexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.semaphores.iter().map(Semaphore::name);
        f.debug_list().entries(names).finish()
    }
}

/// Several mutexes, held; dropping it unlocks them all.
///
/// That takes at most 100 ms in the dropping thread; what takes longer is done in the background.
#[must_use = "the mutexes are unlocked as soon as their guard is dropped"]
pub struct MutexesGuard {
    names: Vec<String>,
    permits: Vec<Permit>,
}

impl MutexesGuard {
    /// Each name and what is held by it, in the order in which they were locked.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Permit)> {
        self.names.iter().map(String::as_str).zip(&self.permits)
    }

    /// What is held by this name: its [`fence`](Permit::fence), say.
    pub fn get(&self, name: &str) -> Option<&Permit> {
        self.iter().find_map(|(other, permit)| (other == name).then_some(permit))
    }

    /// How long all of them are still held; see [`Permit::remaining`].
    pub fn remaining(&self) -> Option<Duration> {
        self.permits.iter().filter_map(Permit::remaining).min()
    }

    /// Whether one of them is not ours any more; see [`Permit::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Gives all of them a new lease, counted from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] when one of them is not ours any more. On any other error they live on until their old leases
    /// end.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        permit::refresh(&self.permits, None)
    }

    /// Unlocks them all. Blocks for one round trip. [`Released::Gone`] when one of them had been lost before; the others
    /// are given back all the same.
    ///
    /// # Errors
    /// [`UnlockError`] when the server did not confirm: it has the guard, to try again with.
    pub fn unlock(mut self) -> Result<Released, UnlockError<MutexesGuard>> {
        permit::release_all(&mut self.permits).map_err(|error| UnlockError::new(self, error))
    }

    /// A guard for each, to be unlocked one by one, in the order in which they were locked.
    #[must_use = "the mutexes are unlocked as soon as their guards are dropped"]
    pub fn into_guards(mut self) -> Vec<MutexGuard> {
        let permits = std::mem::take(&mut self.permits);
        permits.into_iter().map(MutexGuard).collect()
    }
}

impl Drop for MutexesGuard {
    fn drop(&mut self) {
        permit::drop_all(&mut self.permits);
    }
}

impl fmt::Debug for MutexesGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
