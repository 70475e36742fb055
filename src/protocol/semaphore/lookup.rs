//! What an id has.

use super::Grant;
use crate::error::CallError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::LOOKUP;
use redis::Value;

/// What [`lookup`](crate::scripts::semaphore::lookup) answers.
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

pub(crate) struct Lookup<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: &'a str,
}

impl Call for Lookup<'_> {
    type Answer = LookupAnswer;

    fn pack(&self) -> Packed {
        Packed::new(&LOOKUP, &self.keys.packed, &[self.id.into()])
    }

    fn answer(&self, reply: Value) -> Result<LookupAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "held" => Ok(LookupAnswer::Held(Grant::read(reply)?)),
            "queued" => Ok(LookupAnswer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                now: reply.number()?,
            }),
            "gone" => Ok(LookupAnswer::Gone {
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}
