//! Who holds and who waits.

use crate::error::CallError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::read;
use crate::protocol::script::INSPECT;
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
