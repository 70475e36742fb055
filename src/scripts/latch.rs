//! The scripts of the latch: it opens once so many ids have counted down, and stays open until it is forgotten.
//!
//! ```no_run
//! use luagate::scripts::{LatchKeys, latch};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let keys = LatchKeys::new("luagate", "import:2026-07-01")?;
//! latch::count_down(&mut con, &keys, "part-1", 3, 86_400_000)?;
//! if let latch::CountAnswer::Closed { left, .. } = latch::count(&mut con, &keys)? {
//!     println!("{left} parts are left");
//! }
//! # Ok(())
//! # }
//! ```

use super::{LatchKeys, ServerTime, error_of, read, unexpected};
use crate::error::CallError;
use crate::protocol::script::{Call, LazyScript};
use redis::ConnectionLike;

static COUNT_DOWN: LazyScript = script!("latch/count_down");
static WAIT: LazyScript = script!("latch/wait");
static COUNT: LazyScript = script!("latch/count");
static DELETE: LazyScript = script!("latch/delete");

/// What [`count_down`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountDownAnswer {
    /// Counted by this call.
    Counted {
        /// How many have still to count down; 0: the latch is open.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The id had counted before, or the latch was open: nothing was counted.
    Already {
        /// How many have still to count down; 0: the latch is open.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// Counts `id`, once; the last of `count` opens the latch. Again with the same id, it counts nothing twice. The latch is kept
/// for `life_ms` (1 to 100 years) from now at least.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn count_down(
    con: &mut dyn ConnectionLike,
    keys: &LatchKeys,
    id: &str,
    count: u32,
    life_ms: u64,
) -> Result<CountDownAnswer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![id.into(), u64::from(count).into(), life_ms.into()],
    };
    read(
        COUNT_DOWN.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "counted" => Ok(CountDownAnswer::Counted {
                left: reply.number()?,
                count: reply.number()?,
                now: reply.number()?,
            }),
            "already" => Ok(CountDownAnswer::Already {
                left: reply.number()?,
                count: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}

/// What [`wait`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitAnswer {
    /// All have counted down.
    Open {
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// Not all have.
    Closed {
        /// How many have still to count down.
        left: u32,
        /// The count in force.
        count: u32,
        /// In how many ms asking again makes sense without a message.
        retry_after: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// Asks whether the latch is open, and to be told on the channel `inbox` if it opens within `wait_ms` (up to a day; 0, or an
/// empty inbox: is not told). The latch is kept for `life_ms` (1 to 100 years) from now at least. Blocks for the call only.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn wait(
    con: &mut dyn ConnectionLike,
    keys: &LatchKeys,
    count: u32,
    life_ms: u64,
    wait_ms: u64,
    inbox: &str,
) -> Result<WaitAnswer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![
            u64::from(count).into(),
            life_ms.into(),
            wait_ms.into(),
            inbox.into(),
        ],
    };
    read(
        WAIT.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "open" => Ok(WaitAnswer::Open {
                count: reply.number()?,
                now: reply.number()?,
            }),
            "closed" => Ok(WaitAnswer::Closed {
                left: reply.number()?,
                count: reply.number()?,
                retry_after: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}

/// What [`count`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAnswer {
    /// Nobody has counted down or waited, so no count is stored.
    None {
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// All have counted down.
    Open {
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// Not all have.
    Closed {
        /// How many have still to count down.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// How many have still to count down. Changes nothing.
///
/// # Errors
/// What kept the server from answering.
pub fn count(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<CountAnswer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![],
    };
    read(
        COUNT.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "none" => Ok(CountAnswer::None {
                now: reply.number()?,
            }),
            "open" => Ok(CountAnswer::Open {
                count: reply.number()?,
                now: reply.number()?,
            }),
            "closed" => Ok(CountAnswer::Closed {
                left: reply.number()?,
                count: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}

/// What [`delete`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// There was a latch, open or closed; it is deleted.
    Deleted {
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// There was none.
    None {
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// Deletes the latch and what was counted. Sends a message to at most 100 of the inboxes that wait for it. Who asks after that
/// starts it afresh, with the count that this caller declares.
///
/// # Errors
/// What kept the server from answering.
pub fn delete(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<DeleteAnswer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![],
    };
    read(
        DELETE.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "deleted" => Ok(DeleteAnswer::Deleted {
                now: reply.number()?,
            }),
            "none" => Ok(DeleteAnswer::None {
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}
