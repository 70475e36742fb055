//! Giving permits back, or a place in line.

use super::Usage;
use crate::error::CallError;
use crate::protocol::call::{Argument, Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::RELEASE;
use redis::Value;

/// What [`release`](crate::scripts::semaphore::release) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// Given back, but for `left`.
    Released {
        /// How many permits the id still holds.
        left: u32,
        /// How full the semaphore is now.
        usage: Usage,
    },
    /// It was in line, and left.
    Cancelled,
    /// It held nothing: its lease had ended, or it was released before.
    Gone,
}

pub(crate) struct Release<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: &'a str,
    /// How many permits the id keeps.
    pub(crate) keep: u32,
    /// Only the permit with this fence, or the place in line with this ticket.
    pub(crate) fence: Option<u64>,
}

impl Call for Release<'_> {
    type Answer = ReleaseAnswer;

    fn pack(&self) -> Packed {
        let mut arguments = vec![self.id.into(), self.keep.into()];
        arguments.extend(self.fence.map(Argument::Number));
        Packed::new(&RELEASE, &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<ReleaseAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "released" => Ok(ReleaseAnswer::Released {
                left: reply.number()?,
                usage: Usage::read(reply)?,
            }),
            "cancelled" => Ok(ReleaseAnswer::Cancelled),
            "gone" => Ok(ReleaseAnswer::Gone),
            other => Err(unexpected(&other)),
        })
    }
}
