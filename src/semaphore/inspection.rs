//! The holders and waiters of a semaphore, as [`Semaphore::inspect`](crate::Semaphore::inspect) returns them
//! for display.

use crate::error::{Ticket, Used};
use luagate_core::id::label_of;
use luagate_core::invalid::MOST;
use luagate_core::reply::between;
use luagate_core::semaphore::State;
use std::fmt;
use std::time::Duration;

/// The state of a semaphore at one instant. Leases that have ended are neither listed nor counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The limit in force. `None`: no limit is stored, because the semaphore has not been used for a while.
    pub limit: Option<u32>,
    /// Whether [`resize`](crate::Semaphore::resize) set the limit. Such a limit does not expire.
    pub pinned: bool,
    /// The number of permits in use. It can exceed the limit after the limit was lowered, until enough
    /// permits are released.
    pub in_use: u32,
    /// The total number of holders, listed here or not.
    pub holder_count: u64,
    /// The total number of waiters, listed here or not.
    pub waiter_count: u64,
    /// The holders, and the permits that are cooling down. The order is that in which their leases end.
    pub holders: Vec<Holder>,
    /// The waiters, in the order in which they will be granted.
    pub waiters: Vec<Waiter>,
}

/// A holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the holder. U+FFFD replaces bytes that are not UTF-8.
    pub id: String,
    /// The number of permits. 0: unknown, because keys of the semaphore were lost.
    pub permits: u32,
    /// The fence of the permit.
    pub fence: u64,
    /// The time until the lease ends. `None`: permanent.
    pub remaining: Option<Duration>,
    /// The time since the grant, by the server's clock. Refreshing does not change it. It is computed from
    /// the fence, so it is too small if the server's clock was set back before the grant.
    pub age: Duration,
    /// The holder released these permits before the end of their [minimum hold](crate::Semaphore::at_least).
    /// Nobody holds them now; they stay in use for the time in [`remaining`](Holder::remaining).
    pub cooling_down: bool,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The id of the waiter, with replacements as in [`Holder::id`].
    pub id: String,
    /// The number of permits that it asks for.
    pub permits: u32,
    /// The ticket, which decides the order of the line: the smallest ticket is granted first.
    pub ticket: Ticket,
    /// The time since it joined the line, by the server's clock. It is computed from the ticket, with the
    /// restriction of
    /// [`Holder::age`].
    pub age: Duration,
    /// The time until the waiter's deadline on the server. It leaves the line then, unless it asks again
    /// before.
    pub patience: Duration,
}

impl Holder {
    /// The label in the id, if it has one.
    pub fn label(&self) -> Option<&str> {
        label_of(&self.id)
    }
}

impl Waiter {
    /// The label in the id, if it has one.
    pub fn label(&self) -> Option<&str> {
        label_of(&self.id)
    }
}

impl Inspection {
    pub(crate) fn new(state: State) -> Inspection {
        let now = state.now;
        let holders = state.holders.into_iter().map(|row| Holder {
            id: row.id,
            permits: row.permits,
            fence: row.fence,
            remaining: row.expires_at.map(|end| between(now, end)),
            age: since(row.fence, now),
            cooling_down: row.cooling_down,
        });
        let waiters = state.waiters.into_iter().map(|row| Waiter {
            id: row.id,
            permits: row.permits,
            ticket: Ticket::new(row.ticket),
            age: since(row.ticket, now),
            patience: between(now, row.patience_until),
        });
        Inspection {
            limit: (state.limit > 0).then_some(state.limit),
            pinned: state.pinned,
            in_use: state.in_use,
            holder_count: state.holder_count,
            waiter_count: state.waiter_count,
            holders: holders.collect(),
            waiters: waiters.collect(),
        }
    }
}

/// The time from a fence or ticket to this time of the server, in ms. The server takes each from its clock,
/// in µs, unless that would not be higher than the last one.
fn since(given: u64, now: u64) -> Duration {
    match given {
        0 => Duration::ZERO, // unknown, because keys of the semaphore were lost
        given => Duration::from_micros(now.saturating_mul(1_000).saturating_sub(given)),
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => Used(self.in_use, limit).fmt(f)?,
            None => f.write_str("not in use")?,
        }
        // Only a reader-writer lock has the highest limit.
        let share = |permits| match (self.limit, permits) {
            (Some(MOST), MOST) => ", writing".to_owned(),
            (Some(MOST), _) => ", reading".to_owned(),
            _ => format!(" x{permits}"),
        };
        for holder in &self.holders {
            let share = share(holder.permits);
            let held = if holder.cooling_down { "cooling down, released by" } else { "holds" };
            write!(f, "\n  {held} {}{share}, fence {}", holder.id, holder.fence)?;
            match holder.remaining {
                Some(left) => write!(f, ", {left:.1?} left")?,
                None => f.write_str(", permanent")?,
            }
        }
        for (place, waiter) in self.waiters.iter().enumerate() {
            let share = share(waiter.permits);
            write!(f, "\n  waits {}{share}, place {}", waiter.id, place + 1)?;
        }
        Ok(())
    }
}
