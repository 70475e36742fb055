//! Permits of several semaphores in one script, all or none.

use super::{Grant, Usage};
use crate::error::CallError;
use crate::protocol::call::{Argument, Call, Packed, PackedKeys};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{Reply, read, unexpected};
use crate::protocol::script::TRY_ACQUIRE_ALL;
use redis::Value;

/// What [`try_acquire_all`](crate::scripts::semaphore::try_acquire_all) asks of one semaphore.
#[derive(Clone, Copy, Debug)]
pub struct AskOne<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// How many permits, 1 to the limit in force.
    pub permits: u32,
    /// The limit that this caller declares; a grant stores it where none is stored. 0: whatever is stored.
    pub limit: u32,
    /// How long the permit lives unless refreshed, in ms, up to 100 years; 0: permanent.
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

/// How full a semaphore is, and how long its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// How full it is.
    pub usage: Usage,
    /// How many wait in line.
    pub waiting: u64,
}

/// What [`try_acquire_all`](crate::scripts::semaphore::try_acquire_all) answers. Lists are in the order of what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryAcquireAllAnswer {
    /// All are granted; what the id held already is among them.
    Granted(Vec<(Grant, Usage)>),
    /// The id held all of them already; nothing was granted twice.
    Held(Vec<(Grant, Usage)>),
    /// The id holds none of them.
    Denied {
        /// The first that has too little free, or that somebody waits for; from 0.
        index: usize,
        /// In how many ms its next lease expires unless it is renewed; `None`: no lease on it that runs now ever expires.
        next_expiry: Option<u64>,
        /// The server's time at this reply.
        now: ServerTime,
        /// How full each is.
        lines: Vec<Line>,
    },
    /// Of one of them more permits were asked for than the limit in force allows. The id holds none of them.
    AboveLimit {
        /// Which, from 0.
        index: usize,
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

pub(crate) struct TryAcquireAll<'a> {
    pub(crate) id: &'a str,
    pub(crate) asked: &'a [AskOne<'a>],
}

impl Call for TryAcquireAll<'_> {
    type Answer = TryAcquireAllAnswer;

    fn pack(&self) -> Packed {
        let keys: Vec<&str> = self.asked.iter().flat_map(|one| one.keys.names()).collect();
        let mut arguments: Vec<Argument> = vec![self.id.into()];
        for one in self.asked {
            arguments.extend([one.permits.into(), one.limit.into(), one.lease_ms.into(), one.at_least_ms.into()]);
        }
        Packed::new(&TRY_ACQUIRE_ALL, &PackedKeys::new(&keys), &arguments)
    }

    fn answer(&self, reply: Value) -> Result<TryAcquireAllAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => Ok(TryAcquireAllAnswer::Granted(self.grants(reply)?)),
            "held" => Ok(TryAcquireAllAnswer::Held(self.grants(reply)?)),
            "denied" => Ok(TryAcquireAllAnswer::Denied {
                index: self.index(reply)?,
                next_expiry: reply.number_or_never()?,
                now: reply.number()?,
                lines: self.rows(reply, |row| Ok(Line { usage: Usage::read(row)?, waiting: row.number()? }))?,
            }),
            "above_limit" => Ok(TryAcquireAllAnswer::AboveLimit {
                index: self.index(reply)?,
                limit: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

impl TryAcquireAll<'_> {
    /// What the id has of each. One of them may have been held before, with other permits and another lease.
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
        match rows.len() == self.asked.len() {
            true => Ok(rows),
            false => Err(unexpected(&rows.len())),
        }
    }

    /// A number from 1 on, as an index from 0.
    fn index(&self, reply: &mut Reply) -> Result<usize, CallError> {
        let number: usize = reply.number()?;
        match number.checked_sub(1) {
            Some(index) if index < self.asked.len() => Ok(index),
            _ => Err(unexpected(&number)),
        }
    }
}
