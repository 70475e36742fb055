//! Who holds and who waits.

use crate::error::CallError;
use crate::protocol::script::{Call, LazyScript};
use crate::scripts::{Keys, ServerTime, error_of, read};
use redis::ConnectionLike;

static INSPECT: LazyScript = script!("semaphore/inspect");

/// What [`inspect`] answers.
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

/// A holder, as [`inspect`] lists it.
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

/// A waiter, as [`inspect`] lists it.
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

/// Who holds and who waits: at most `count` (up to 1,000) of each, from the `offset`-th on. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for a count above 1,000; otherwise what kept the server from answering.
pub fn inspect(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    offset: u32,
    count: u32,
) -> Result<State, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![u64::from(offset).into(), u64::from(count).into()],
    };
    let reply = INSPECT.run(con, &call).map_err(error_of)?;
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
