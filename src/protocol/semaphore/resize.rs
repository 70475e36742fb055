//! The limit, for everybody.

use crate::error::CallError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::RESIZE;
use redis::Value;

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
        })
    }
}
