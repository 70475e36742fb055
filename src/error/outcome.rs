//! What an operation came to that is not a failure: refused, lost, timed out.

use std::fmt;
use std::time::Duration;

/// The highest limit of a semaphore, which is what a writer takes of a reader-writer lock, and the highest count of a latch.
pub(crate) const MOST: u32 = i32::MAX as u32;

/// Not granted: too many are inside, or others wait in front. Not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
    /// How many callers wait in line.
    pub waiting: u64,
    /// When the next lease expires, unless its holder renews it. `None`: no lease that runs now ever expires. Where the line is
    /// full this is the earliest time: a lease that was renewed before may expire later.
    ///
    /// This is not when a permit will be free: a holder may release long before, and a lease that is renewed expires only if
    /// its holder crashes. For the `Retry-After` of a web service take [`retry_after`](Denied::retry_after).
    pub next_expiry: Option<Duration>,
}

impl Denied {
    /// An estimate of when a permit will be free for the caller, if each permit is held for `hold`, the typical time of the
    /// work: `hold` × (`waiting` + 1) / `limit`. At least one millisecond. Asks nobody.
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
        let used = Used(self.in_use, self.limit);
        write!(f, "{used} and {} wait", self.waiting)?;
        match self.next_expiry {
            Some(after) => write!(f, "; the next lease expires in {after:?} or later"),
            None => write!(f, "; no lease expires"),
        }
    }
}

impl std::error::Error for Denied {}

/// How full a semaphore is, in words: of this limit so many are in use. Only a reader-writer lock has the highest limit.
pub(crate) struct Used(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Used(0, MOST) => f.write_str("neither read nor written"),
            Used(MOST, MOST) => f.write_str("being written"),
            Used(readers, MOST) => write!(f, "being read by {readers}"),
            Used(in_use, limit) => write!(f, "{in_use} of {limit} permits are in use"),
        }
    }
}

/// Of several semaphores, the first that did not grant. Nothing is held of any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// Its name.
    pub name: String,
    /// How it was refused; `None`: the time was over before it was asked for permits.
    pub denied: Option<Denied>,
    /// How full each is, in the order in which they are asked; empty after a wait in line, where they are asked one by one.
    pub usages: Vec<NamedUsage>,
}

/// How full a semaphore is, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedUsage {
    /// Its name.
    pub name: String,
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
    /// How many callers wait in line.
    pub waiting: u64,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.denied {
            Some(denied) => write!(f, "{}: {denied}", self.name),
            None => write!(f, "the time was over before {} was asked for permits", self.name),
        }
    }
}

impl std::error::Error for Blocked {}

/// The id that was chosen for this call holds already, and an id holds one permit at most.
///
/// It may be another caller with the same id, or an earlier call of this one whose reply was lost:
/// [`Semaphore::adopt`](crate::Semaphore::adopt) takes the permit over, [`Semaphore::revoke`](crate::Semaphore::revoke)
/// gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyHeld {
    /// The id.
    pub id: String,
    /// How many permits it holds.
    pub permits: u32,
    /// The fence of the permit that it holds.
    pub fence: u64,
}

/// A strict semaphore found another limit in force than the one it declares. Nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitMismatch {
    /// The name of the semaphore.
    pub name: String,
    /// What this caller declares.
    pub declared: u32,
    /// What is in force.
    pub in_force: u32,
}

impl LimitMismatch {
    /// Whether a strict caller may take permits under this limit. 0: it declares none.
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

/// More permits were asked for than the limit in force allows, so waiting cannot help. Nothing is held.
///
/// The limit may be another one than the caller declares: somebody changed it with
/// [`Semaphore::resize`](crate::Semaphore::resize), or the first grant stored another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboveLimit {
    /// The name of the semaphore.
    pub name: String,
    /// How many permits were asked for.
    pub permits: u32,
    /// The limit in force.
    pub limit: u32,
}

/// Somebody took the place in line away with [`Semaphore::revoke`](crate::Semaphore::revoke). Nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceRevoked {
    /// The id that waited.
    pub id: String,
}

/// The permit is not this holder's any more: its lease ended, it was released or revoked, or the server forgot it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The id that held it.
    pub id: String,
}

/// The latch is not open: not all have counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StillClosed {
    /// How many have still to count down.
    pub left: u32,
    /// How many there are in all.
    pub count: u32,
}

/// The wait was ended by a [`Cancel`](crate::Cancel): from another thread, or since its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

/// What was waited for when the time was over, and how it stood then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimedOut {
    /// A permit of a semaphore, or a lock.
    Acquire(Denied),
    /// Permits of several semaphores.
    Several(Blocked),
    /// A latch.
    Latch(StillClosed),
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimedOut::Acquire(denied) => write!(f, "in line: {denied}"),
            TimedOut::Several(blocked) => write!(f, "in line: {blocked}"),
            TimedOut::Latch(closed) => write!(f, "waiting for a latch: {closed}"),
        }
    }
}

impl std::error::Error for TimedOut {}

/// Which line was full, and how it stood then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineFull {
    /// That of a semaphore, or a lock.
    Acquire(Denied),
    /// That of one of several semaphores.
    Several(Blocked),
}

impl fmt::Display for LineFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFull::Acquire(denied) => denied.fmt(f),
            LineFull::Several(blocked) => blocked.fmt(f),
        }
    }
}

impl std::error::Error for LineFull {}

/// What each of these says of itself.
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
    AlreadyHeld { id, fence } "the id {id} holds already (fence {fence}); adopt it, revoke it, or use another id",
    LimitMismatch { name, declared, in_force }
        "{name}: the limit in force is {in_force}, not {declared} as declared here; `resize` it, or declare the same everywhere",
    AboveLimit { name, permits, limit }
        "{name}: {permits} permits were asked for, but the limit in force is {limit}; ask for fewer, or raise the limit with `resize`",
    PlaceRevoked { id } "the place in line of {id} was revoked",
    Lost { id } "{id} no longer holds its permit; stop what it protects, then acquire anew",
    StillClosed { left, count } "{left} of {count} have still to count down",
    Cancelled {} "the wait was cancelled",
}
