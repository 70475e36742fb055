//! The limit, for everybody.

use crate::error::CallError;
use crate::protocol::script::{Call, LazyScript};
use crate::scripts::{Keys, error_of, read, unexpected};
use redis::ConnectionLike;

static RESIZE: LazyScript = script!("semaphore/resize");

/// What [`resize`] answers.
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

/// Sets the limit and pins it, so that it no longer expires; 0 unpins. With `expected`, only if that is in force.
///
/// # Errors
/// What kept the server from answering.
pub fn resize(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    limit: u32,
    expected: Option<u32>,
) -> Result<ResizeAnswer, CallError> {
    let expected = expected.map(|limit| limit.to_string());
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![
            u64::from(limit).into(),
            expected.as_deref().unwrap_or("-1").into(),
        ],
    };
    read(
        RESIZE.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "resized" => Ok(ResizeAnswer::Resized {
                old: reply.number()?,
                new: reply.number()?,
                in_use: reply.number()?,
            }),
            "unchanged" => Ok(ResizeAnswer::Unchanged {
                current: reply.number()?,
                in_use: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}
