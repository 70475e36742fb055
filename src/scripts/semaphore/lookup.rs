//! What an id has.

use super::{Grant, grant};
use crate::error::CallError;
use crate::protocol::script::{Call, LazyScript};
use crate::scripts::{Keys, ServerTime, error_of, read, unexpected};
use redis::ConnectionLike;

static LOOKUP: LazyScript = script!("semaphore/lookup");

/// What [`lookup`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// It holds.
    Held(Grant),
    /// It waits in line.
    Queued {
        /// Its ticket.
        ticket: u64,
        /// Its place in line, from 1.
        position: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// It has nothing.
    Gone {
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// What an id has. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for an id that cannot be; otherwise what kept the server from answering.
pub fn lookup(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    id: &str,
) -> Result<LookupAnswer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![id.into()],
    };
    read(
        LOOKUP.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "held" => Ok(LookupAnswer::Held(grant(reply)?)),
            "queued" => Ok(LookupAnswer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                now: reply.number()?,
            }),
            "gone" => Ok(LookupAnswer::Gone {
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}
