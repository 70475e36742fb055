//! The outcomes that are no failures: denied, lost, timed out and others.

use super::Ticket;
use luagate_core::held::Identity;
use luagate_core::invalid::MOST;
use luagate_core::semaphore::Usage;
use std::fmt;
use std::time::Duration;

/// Not granted: too few permits are free, or other callers wait in line. Not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The name of the semaphore. Of several, the first one that did not grant.
    pub name: String,
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force. 0 if the timeout ended before this one of several semaphores was asked: nothing is
    /// known then.
    pub limit: u32,
    /// How many callers wait in line.
    pub waiting: u64,
    /// The time until the next lease expires, unless its holder renews it. `None`: no current lease expires.
    /// If the line is full, this is a lower bound: a lease that was renewed before can expire later.
    ///
    /// This does not say when a permit becomes free. A holder can release long before, and a renewed lease
    /// expires only if its holder crashes. For the `Retry-After` of a web service use
    /// [`retry_after`](Denied::retry_after).
    pub next_expiry: Option<Duration>,
}

impl Denied {
    pub(crate) fn of(name: &str, denied: &luagate_core::waiter::Denied) -> Denied {
        let luagate_core::waiter::Denied { usage: Usage { in_use, limit }, waiting, next_expiry } = *denied;
        Denied {
            name: name.to_owned(),
            in_use,
            limit,
            waiting,
            next_expiry: next_expiry.map(Duration::from_millis),
        }
    }

    /// Estimates the time until a permit is free for the caller: `hold` × (`waiting` + 1) / `limit`, at least
    /// one millisecond. `hold` is the typical time for which a permit is held. Sends nothing to the server.
    ///
    /// ```
    /// # fn answer(denied: &luagate::errors::Denied) {
    /// let after = denied.retry_after(std::time::Duration::from_millis(500));
    /// println!("Retry-After: {}", after.as_millis().div_ceil(1_000)); // whole seconds
    /// # }
    /// ```
    pub fn retry_after(&self, hold: Duration) -> Duration {
        let callers = self.waiting.saturating_add(1) as f64;
        let estimate = hold.as_secs_f64() * callers / f64::from(self.limit.max(1));
        let estimate = Duration::try_from_secs_f64(estimate).unwrap_or(Duration::MAX);
        estimate.max(Duration::from_millis(1))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.limit == 0 {
            return write!(f, "{}: the timeout ended before this semaphore was asked", self.name);
        }
        let used = Used(self.in_use, self.limit);
        write!(f, "{}: {used}, waiting in line: {}, ", self.name, self.waiting)?;
        match self.next_expiry {
            Some(after) => write!(f, "next lease end: in {after:?} or later"),
            None => write!(f, "next lease end: never"),
        }
    }
}

impl std::error::Error for Denied {}

/// Displays the permits in use (first) of the limit (second). Only a reader-writer lock has the highest
/// limit.
pub(crate) struct Used(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Used(0, MOST) => f.write_str("not locked"),
            Used(MOST, MOST) => f.write_str("locked for writing"),
            Used(readers, MOST) => write!(f, "locked for reading by {readers}"),
            Used(in_use, limit) => write!(f, "{in_use} of {limit} permits are in use"),
        }
    }
}

/// The chosen id already holds a permit, and an id can hold only one.
///
/// Another caller may use the same id, or the reply to an earlier call of this caller was lost. A call takes
/// its own grant, also if a connection broke and the call was sent again. To take the permit over, call
/// [`Semaphore::adopt`](crate::Semaphore::adopt). To release it, call
/// [`Semaphore::revoke`](crate::Semaphore::revoke).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyHeld {
    /// The name of the semaphore or lock.
    pub name: String,
    /// The id.
    pub id: String,
    /// How many permits the id holds.
    pub permits: u32,
    /// The fence of the permit that the id holds.
    pub fence: u64,
}

/// The semaphore is strict, and the limit in force is not the one that it declares. The caller holds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitMismatch {
    /// The name of the semaphore.
    pub name: String,
    /// The limit that this caller declares.
    pub declared: u32,
    /// The limit in force.
    pub in_force: u32,
}

impl LimitMismatch {
    /// Checks whether a strict caller accepts this limit. 0: the caller declares none.
    pub(crate) fn check<'a>(
        name: impl FnOnce() -> &'a str,
        strict: Option<u32>,
        in_force: u32,
    ) -> Result<(), LimitMismatch> {
        match strict {
            None | Some(0) => Ok(()),
            Some(declared) if declared == in_force => Ok(()),
            Some(declared) => Err(LimitMismatch { name: name().to_owned(), declared, in_force }),
        }
    }
}

/// The caller asked for more permits than the limit in force, so waiting cannot help. The caller holds
/// nothing.
///
/// The limit in force can differ from the declared one: a call of
/// [`Semaphore::resize`](crate::Semaphore::resize) changed it, or the first grant stored another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboveLimit {
    /// The name of the semaphore.
    pub name: String,
    /// How many permits the caller asked for.
    pub permits: u32,
    /// The limit in force.
    pub limit: u32,
}

/// The place in line was revoked with [`Semaphore::revoke`](crate::Semaphore::revoke). The caller holds
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceRevoked {
    /// The name of the semaphore or lock.
    pub name: String,
    /// The id that waited.
    pub id: String,
}

/// The permit no longer belongs to this holder: its lease ended, it was released or revoked, or the server
/// lost its data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The name of the semaphore or lock.
    pub name: String,
    /// The id that held the permit.
    pub id: String,
}

impl Lost {
    pub(crate) fn of(identity: &Identity) -> Lost {
        Lost { name: identity.keys.name().to_owned(), id: identity.id.clone() }
    }
}

/// The latch is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StillClosed {
    /// How many ids must still count down.
    pub left: u32,
    /// How many ids must count down in all.
    pub count: u32,
}

/// A [`Cancel`](crate::Cancel) handle ended the wait: another thread cancelled it, or its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled {
    /// The ticket of the wait. With it, a later wait can have the same place in line: see
    /// [`Semaphore::ticket`](crate::Semaphore::ticket). `None`: the caller was not in line yet, or waited for
    /// several semaphores or for a latch.
    pub ticket: Option<Ticket>,
}

/// The displayed text of each outcome.
macro_rules! say {
    ($($type:ident { $($field:ident),* } $text:literal,)*) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $type { $($field,)* .. } = self;
                write!(f, $text)
            }
        }

        impl std::error::Error for $type {})*
    };
}

say! {
    AlreadyHeld { name, id, fence }
        "{name}: the id {id} already holds a permit (fence {fence}). Take it over with `adopt`, release it with `revoke`, or use another id",
    LimitMismatch { name, declared, in_force }
        "{name}: the limit in force is {in_force}, this caller declares {declared}. Declare {in_force}, or change the limit with `resize`",
    AboveLimit { name, permits, limit }
        "{name}: {permits} permits are more than the limit in force. Accepted: 1 to {limit}. Ask for fewer, or raise the limit with `resize`",
    PlaceRevoked { name, id } "{name}: the place in line of the id {id} was revoked. Call again to join the end of the line",
    Lost { name, id } "{name}: the id {id} no longer holds its permit. Stop the work that the permit protects, then acquire again",
    StillClosed { left, count } "{left} of {count} must still count down",
    Cancelled {} "the wait was cancelled by its `Cancel` handle. Call again with a new handle to wait again",
}
