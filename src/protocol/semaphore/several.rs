//! Permits of several semaphores by one script: all or none.

use super::{Grant, Usage};
use crate::error::CallError;
use crate::protocol::call::{Argument, Call, Packed, PackedKeys};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{Reply, read, unexpected};
use crate::protocol::script::TRY_ACQUIRE_SEVERAL;
use redis::Value;

/// The arguments of [`try_acquire_several`](crate::scripts::semaphore::try_acquire_several) for one semaphore.
#[derive(Clone, Copy, Debug)]
pub struct AskOne<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// How many permits: 1 to the limit in force.
    pub permits: u32,
    /// The limit that this caller declares; a grant stores it if none is stored. 0: declares none, the stored limit
    /// applies.
    pub limit: u32,
    /// The lease in ms, up to 100 years: the permit ends after this time unless it is refreshed. 0: permanent.
    pub lease_ms: u64,
    /// Minimum hold, in ms; 0: none. See [`Ask::at_least_ms`](super::Ask::at_least_ms).
    pub at_least_ms: u64,
}

impl<'a> AskOne<'a> {
    /// A mutex, for 30 s.
    pub fn mutex(keys: &'a Keys) -> AskOne<'a> {
        AskOne { keys, permits: 1, limit: 1, lease_ms: 30_000, at_least_ms: 0 }
    }
}

/// How full a semaphore is, and how many callers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// How full the semaphore is.
    pub usage: Usage,
    /// How many callers wait in line.
    pub waiting: u64,
}

/// The answer of [`try_acquire_several`](crate::scripts::semaphore::try_acquire_several). Lists have the order of the
/// arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryAcquireSeveralAnswer {
    /// All are granted. The list includes permits that the id already held.
    Granted(Vec<(Grant, Usage)>),
    /// The id already held all of them. Nothing was granted twice.
    Held(Vec<(Grant, Usage)>),
    /// None is granted, and the id holds none of them.
    Denied {
        /// The first semaphore with too few free permits or with waiters; from 0.
        index: usize,
        /// The time in ms until its next lease expires, unless it is renewed. `None`: no current lease on it ever
        /// expires.
        next_expiry: Option<u64>,
        /// The server's time at this reply.
        now: ServerTime,
        /// How full each is.
        lines: Vec<Line>,
    },
    /// The call asked one of the semaphores for more permits than its limit in force. The id holds none of them.
    AboveLimit {
        /// The index of that semaphore, from 0.
        index: usize,
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of [`try_acquire_several`](crate::scripts::semaphore::try_acquire_several).
#[derive(Clone, Copy, Debug)]
pub struct TryAcquireSeveral<'a> {
    /// The id of the caller, as in [`Ask::id`](super::Ask::id).
    pub id: &'a str,
    /// The permits of each semaphore: 1 to 64 semaphores.
    pub asked: &'a [AskOne<'a>],
}

impl Call for TryAcquireSeveral<'_> {
    type Answer = TryAcquireSeveralAnswer;

    fn pack(&self) -> Packed {
        let keys: Vec<&str> = self.asked.iter().flat_map(|one| one.keys.names()).collect();
        let mut arguments: Vec<Argument> = vec![self.id.into()];
        for one in self.asked {
            arguments.extend([one.permits.into(), one.limit.into(), one.lease_ms.into(), one.at_least_ms.into()]);
        }
        Packed::new(&TRY_ACQUIRE_SEVERAL, &PackedKeys::new(&keys), &arguments)
    }

    fn answer(&self, reply: Value) -> Result<TryAcquireSeveralAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => Ok(TryAcquireSeveralAnswer::Granted(self.grants(reply)?)),
            "held" => Ok(TryAcquireSeveralAnswer::Held(self.grants(reply)?)),
            "denied" => Ok(TryAcquireSeveralAnswer::Denied {
                index: self.index(reply)?,
                next_expiry: reply.number_or_never()?,
                now: reply.number()?,
                lines: self.rows(reply, |row| Ok(Line { usage: Usage::read(row)?, waiting: row.number()? }))?,
            }),
            "above_limit" => Ok(TryAcquireSeveralAnswer::AboveLimit {
                index: self.index(reply)?,
                limit: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

impl TryAcquireSeveral<'_> {
    /// The id's permit of each semaphore. It may have held one of them before, with another number of permits and
    /// another lease.
    fn grants(&self, reply: &mut Reply) -> Result<Vec<(Grant, Usage)>, CallError> {
        let now = reply.number()?;
        self.rows(reply, |row| {
            let grant = Grant { permits: row.number()?, fence: row.number()?, expires_at: row.number_or_never()?, now };
            Ok((grant.checked()?, Usage::read(row)?))
        })
    }

    /// A list with a row for each semaphore.
    fn rows<T>(
        &self,
        reply: &mut Reply,
        row: impl Fn(&mut Reply) -> Result<T, CallError>,
    ) -> Result<Vec<T>, CallError> {
        let rows = reply.rows(row)?;
        if rows.len() == self.asked.len() { Ok(rows) } else { Err(unexpected(&rows.len())) }
    }

    /// Reads a number that begins at 1, and returns it as an index that begins at 0.
    fn index(&self, reply: &mut Reply) -> Result<usize, CallError> {
        let number: usize = reply.number()?;
        match number.checked_sub(1) {
            Some(index) if index < self.asked.len() => Ok(index),
            _ => Err(unexpected(&number)),
        }
    }
}
