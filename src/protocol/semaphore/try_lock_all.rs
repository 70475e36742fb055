//! Several mutexes in one script.

use super::{Grant, Usage};
use crate::error::CallError;
use crate::protocol::call::{Call, Packed, PackedKeys};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{Reply, read, unexpected};
use crate::protocol::script::TRY_LOCK_ALL;
use redis::Value;

/// What [`try_lock_all`](crate::scripts::semaphore::try_lock_all) answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryLockAllAnswer {
    /// All are locked: a permit of each, in the order of the keys.
    Granted(Vec<Grant>),
    /// The id had locked all of them already; nothing was granted twice.
    Held(Vec<Grant>),
    /// The id holds none of them.
    Denied {
        /// Which is in the way, from 0 in the order of the keys: the first that is held, or that somebody waits for.
        place: usize,
        /// In how many ms its next lease expires unless it is renewed; `None`: no lease on it that runs now ever expires.
        next_expiry: Option<u64>,
        /// How full it is.
        usage: Usage,
        /// How many wait in line for it.
        waiting: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

pub(crate) struct TryLockAll<'a> {
    pub(crate) mutexes: &'a [&'a Keys],
    pub(crate) id: &'a str,
    /// 0: permanent.
    pub(crate) lease_ms: u64,
}

impl Call for TryLockAll<'_> {
    type Answer = TryLockAllAnswer;

    fn pack(&self) -> Packed {
        let keys: Vec<&str> = self.mutexes.iter().flat_map(|keys| keys.names()).collect();
        Packed::new(
            &TRY_LOCK_ALL,
            &PackedKeys::new(&keys),
            &[self.id.into(), self.lease_ms.into()],
        )
    }

    fn answer(&self, reply: Value) -> Result<TryLockAllAnswer, CallError> {
        let count = self.mutexes.len();
        read(reply, |reply| match reply.word()? {
            // One of them may have been locked before, with another lease.
            "granted" => Ok(TryLockAllAnswer::Granted(locks(reply, count)?)),
            "held" => Ok(TryLockAllAnswer::Held(locks(reply, count)?)),
            "denied" => Ok(TryLockAllAnswer::Denied {
                place: index(reply, count)?,
                next_expiry: reply.number_or_never()?,
                usage: Usage::read(reply)?,
                waiting: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

fn locks(reply: &mut Reply, count: usize) -> Result<Vec<Grant>, CallError> {
    let now = reply.number()?;
    let grants = reply.rows(|row| {
        let grant = Grant {
            permits: 1,
            fence: row.number()?,
            expires_at: row.number_or_never()?,
            now,
        };
        grant.checked()
    })?;
    match grants.len() == count {
        true => Ok(grants),
        false => Err(unexpected(&grants)),
    }
}

/// A number from 1 to `count`, as an index from 0.
fn index(reply: &mut Reply, count: usize) -> Result<usize, CallError> {
    let number: usize = reply.number()?;
    match number.checked_sub(1) {
        Some(index) if index < count => Ok(index),
        _ => Err(unexpected(&number)),
    }
}
