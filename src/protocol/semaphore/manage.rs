//! Looking at a semaphore, its limit for everybody, and several mutexes in one script.

use super::{Grant, Usage};
use crate::error::CallError;
use crate::protocol::call::{Call, Packed, PackedKeys};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{Reply, read, unexpected};
use crate::protocol::script::{INSPECT, RESIZE, TRY_LOCK_ALL};
use redis::Value;

/// What [`inspect`](crate::scripts::semaphore::inspect) answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The limit in force; 0: none is stored.
    pub limit: u32,
    /// Whether `resize` pinned it.
    pub pinned: bool,
    /// How many permits are in use.
    pub in_use: u32,
    /// How many hold.
    pub holder_count: u64,
    /// How many wait.
    pub waiter_count: u64,
    /// The last fence or ticket that was given.
    pub last_fence: u64,
    /// The server's time at this reply.
    pub now: ServerTime,
    /// Who holds, whose lease ends first, first.
    pub holders: Vec<HolderRow>,
    /// Who waits, in the order of the queue.
    pub waiters: Vec<WaiterRow>,
}

/// A holder, as [`inspect`](crate::scripts::semaphore::inspect) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderRow {
    /// Who.
    pub id: String,
    /// How many permits; 0 where keys were lost and it is not known any more.
    pub permits: u32,
    /// The fence of its permit.
    pub fence: u64,
    /// The end of its lease; `None`: never.
    pub expires_at: Option<ServerTime>,
}

/// A waiter, as [`inspect`](crate::scripts::semaphore::inspect) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterRow {
    /// Who.
    pub id: String,
    /// How many permits it wants.
    pub permits: u32,
    /// Its ticket.
    pub ticket: u64,
    /// Until when it stays in line unless it asks again.
    pub patience_until: ServerTime,
}

pub(crate) struct Inspect<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) offset: u32,
    pub(crate) count: u32,
}

impl Call for Inspect<'_> {
    type Answer = State;

    fn pack(&self) -> Packed {
        let arguments = [self.offset.into(), self.count.into()];
        Packed::new(&INSPECT, &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<State, CallError> {
        read(reply, |reply| {
            Ok(State {
                limit: reply.number()?,
                pinned: reply.flag()?,
                in_use: reply.number()?,
                holder_count: reply.number()?,
                waiter_count: reply.number()?,
                last_fence: reply.number()?,
                now: reply.number()?,
                holders: reply.rows(|row| {
                    Ok(HolderRow {
                        id: row.word()?.to_owned(),
                        permits: row.number()?,
                        fence: row.number()?,
                        expires_at: row.number_or_never()?,
                    })
                })?,
                waiters: reply.rows(|row| {
                    Ok(WaiterRow {
                        id: row.word()?.to_owned(),
                        permits: row.number()?,
                        ticket: row.number()?,
                        patience_until: row.number()?,
                    })
                })?,
            })
        })
    }
}

/// What [`resize`](crate::scripts::semaphore::resize) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeAnswer {
    /// Done.
    Resized {
        /// The limit that was in force before; 0: none.
        old: u32,
        /// The limit in force now.
        new: u32,
        /// How many permits are in use; may be more than the limit for a while.
        in_use: u32,
    },
    /// Another limit was in force than expected; nothing was changed.
    Unchanged {
        /// The limit in force.
        current: u32,
        /// How many permits are in use.
        in_use: u32,
    },
}

pub(crate) struct Resize<'a> {
    pub(crate) keys: &'a Keys,
    /// 0 unpins.
    pub(crate) limit: u32,
    /// Only if this limit is in force.
    pub(crate) expected: Option<u32>,
}

impl Call for Resize<'_> {
    type Answer = ResizeAnswer;

    fn pack(&self) -> Packed {
        let expected = match self.expected {
            Some(limit) => limit.into(),
            None => "-1".into(),
        };
        Packed::new(&RESIZE, &self.keys.packed, &[self.limit.into(), expected])
    }

    fn answer(&self, reply: Value) -> Result<ResizeAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "resized" => {
                Ok(ResizeAnswer::Resized { old: reply.number()?, new: reply.number()?, in_use: reply.number()? })
            }
            "unchanged" => Ok(ResizeAnswer::Unchanged { current: reply.number()?, in_use: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}

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
        Packed::new(&TRY_LOCK_ALL, &PackedKeys::new(&keys), &[self.id.into(), self.lease_ms.into()])
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
        let grant = Grant { permits: 1, fence: row.number()?, expires_at: row.number_or_never()?, now };
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
