//! The scripts of the semaphore: their calls and answers.

mod acquire;
mod inspect;
mod lookup;
mod refresh;
mod release;
mod resize;
mod try_lock_all;

pub use acquire::{Answer, Ask};
pub use inspect::{HolderRow, State, WaiterRow};
pub use lookup::LookupAnswer;
pub use release::ReleaseAnswer;
pub use resize::ResizeAnswer;
pub use try_lock_all::TryLockAllAnswer;

pub(crate) use acquire::Acquire;
pub(crate) use inspect::Inspect;
pub(crate) use lookup::Lookup;
pub(crate) use refresh::Refresh;
pub(crate) use release::Release;
pub(crate) use resize::Resize;
pub(crate) use try_lock_all::TryLockAll;

use super::lease::ServerTime;
use super::reply::{Reply, between, unexpected};
use crate::error::CallError;
use std::time::Duration;

/// A permit as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many permits are held.
    pub permits: u32,
    /// The fencing token: higher than that of every earlier grant of this semaphore.
    pub fence: u64,
    /// The end of the lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The server's time at this reply.
    pub now: ServerTime,
}

impl Grant {
    fn read(reply: &mut Reply) -> Result<Grant, CallError> {
        let grant = Grant {
            permits: reply.number()?,
            fence: reply.number()?,
            expires_at: reply.number_or_never()?,
            now: reply.number()?,
        };
        grant.checked()
    }

    /// A grant of this very call, with the lease that it asked for.
    fn read_of_lease(reply: &mut Reply, lease_ms: u64) -> Result<Grant, CallError> {
        let grant = Grant::read(reply)?;
        let end = (lease_ms > 0).then(|| grant.now.saturating_add(lease_ms));
        match grant.expires_at == end {
            true => Ok(grant),
            false => Err(unexpected(&grant)),
        }
    }

    /// Nobody holds zero permits, or by a lease that has ended.
    fn checked(self) -> Result<Grant, CallError> {
        let lives = self.expires_at.is_none_or(|end| end > self.now);
        match self.permits > 0 && self.fence > 0 && lives {
            true => Ok(self),
            false => Err(unexpected(&self)),
        }
    }

    /// How long the lease ran at the server's `now`; `None`: for ever.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.expires_at.map(|end| between(self.now, end))
    }
}

/// How full a semaphore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
}

impl Usage {
    fn read(reply: &mut Reply) -> Result<Usage, CallError> {
        Ok(Usage {
            in_use: reply.number()?,
            limit: reply.number()?,
        })
    }
}
