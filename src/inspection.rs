//! Who holds and who waits, as people look at it: what [`Semaphore::inspect`](crate::Semaphore::inspect) tells.

use crate::error::{MOST, Used};
use crate::protocol::id::label_of;
use crate::protocol::reply::between;
use crate::protocol::semaphore::State;
use std::fmt;
use std::time::Duration;

/// A look at a semaphore at one instant. Leases that have ended are neither listed nor counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The limit in force; `None`: none is stored, since nobody has used the semaphore for a while.
    pub limit: Option<u32>,
    /// Whether [`resize`](crate::Semaphore::resize) set the limit, so that it does not expire.
    pub pinned: bool,
    /// How many permits are in use. Above the limit after it was lowered, until enough came back.
    pub in_use: u32,
    /// How many hold, listed here or not.
    pub holder_count: u64,
    /// How many wait, listed here or not.
    pub waiter_count: u64,
    /// Who holds, and what is cooling down; whose lease ends first, first.
    pub holders: Vec<Holder>,
    /// Who waits, in the order in which they will be granted.
    pub waiters: Vec<Waiter>,
}

/// One who holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its id. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub id: String,
    /// How many permits; 0 where keys of the semaphore were lost and it is not known any more.
    pub permits: u32,
    /// The fence of its permit.
    pub fence: u64,
    /// How long its lease still runs; `None`: permanent.
    pub remaining: Option<Duration>,
    /// It released these permits before their [minimum hold](crate::Semaphore::at_least) ended: nobody holds them, and they are in
    /// use for as long as [`remaining`](Holder::remaining) says.
    pub cooling_down: bool,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Its id, as [`Holder::id`].
    pub id: String,
    /// How many permits it wants.
    pub permits: u32,
    /// Its place: the smallest is granted first.
    pub ticket: u64,
    /// How long it stays in line unless it asks again.
    pub patience: Duration,
}

impl Holder {
    /// The label in its id, if it was made with one.
    pub fn label(&self) -> Option<&str> {
        label_of(&self.id)
    }
}

impl Waiter {
    /// The label in its id, if it was made with one.
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
            cooling_down: row.cooling_down,
        });
        let waiters = state.waiters.into_iter().map(|row| Waiter {
            id: row.id,
            permits: row.permits,
            ticket: row.ticket,
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
