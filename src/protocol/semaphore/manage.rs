//! The calls that inspect a semaphore and change its limit.

use crate::error::CallError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::{INSPECT, RESIZE};
use redis::Value;

/// The answer of [`inspect`](crate::scripts::semaphore::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The limit in force; 0: none is stored.
    pub limit: u32,
    /// Whether `resize` pinned it.
    pub pinned: bool,
    /// How many permits are in use.
    pub in_use: u32,
    /// The number of holders.
    pub holder_count: u64,
    /// The number of waiters.
    pub waiter_count: u64,
    /// The last fence or ticket that was issued.
    pub last_fence: u64,
    /// The server's time at this reply.
    pub now: ServerTime,
    /// The holders, in the order in which their leases end.
    pub holders: Vec<HolderRow>,
    /// The waiters, in the order of the line.
    pub waiters: Vec<WaiterRow>,
}

/// A holder, as [`inspect`](crate::scripts::semaphore::inspect) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderRow {
    /// Its id.
    pub id: String,
    /// How many permits it holds. 0: unknown, because keys were lost.
    pub permits: u32,
    /// The fence of its permit.
    pub fence: u64,
    /// The end of its lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The permits were released before the end of their minimum hold. They have no holder, and are in use until
    /// `expires_at`.
    pub cooling_down: bool,
}

/// A waiter, as [`inspect`](crate::scripts::semaphore::inspect) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterRow {
    /// Its id.
    pub id: String,
    /// How many permits it asks for.
    pub permits: u32,
    /// Its ticket.
    pub ticket: u64,
    /// The waiter's deadline on the server: it leaves the line at this time unless it asks again.
    pub patience_until: ServerTime,
}

/// A call of [`inspect`](crate::scripts::semaphore::inspect).
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// How many holders and how many waiters to skip.
    pub offset: u32,
    /// How many of each to return at most, up to 1,000.
    pub count: u32,
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
                        cooling_down: row.flag()?,
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

/// The answer of [`resize`](crate::scripts::semaphore::resize).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeAnswer {
    /// The limit was set or unpinned.
    Resized {
        /// The limit that was in force before; 0: none.
        old: u32,
        /// The limit in force now.
        new: u32,
        /// How many permits are in use. This may exceed the limit for a while.
        in_use: u32,
    },
    /// The limit in force was not the expected one. Nothing was changed.
    Unchanged {
        /// The limit in force.
        current: u32,
        /// How many permits are in use.
        in_use: u32,
    },
}

/// A call of [`resize`](crate::scripts::semaphore::resize).
#[derive(Clone, Copy, Debug)]
pub struct Resize<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The new limit; 0: removes the pin.
    pub limit: u32,
    /// Changes the limit only if this one is in force; `None`: always.
    pub expected: Option<u32>,
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
