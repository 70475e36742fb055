//! Asking for permits, at once or in line.

use super::{Grant, Usage};
use crate::error::CallError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::keys::Keys;
use crate::protocol::lease::ServerTime;
use crate::protocol::reply::{read, unexpected};
use crate::protocol::script::ACQUIRE;
use redis::Value;

/// What [`acquire`](crate::scripts::semaphore::acquire) asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The id of the caller: 1 to 200 bytes without white space or control characters. An id holds one permit at most.
    pub id: &'a str,
    /// How many permits, 1 to the limit in force; `None`: all that are free now, at least 1, never in line.
    pub permits: Option<u32>,
    /// The limit that this caller declares; the first grant stores it. 0: whatever is stored.
    pub limit: u32,
    /// How long the permit lives unless refreshed, in ms, up to 100 years; 0: permanent.
    pub lease_ms: u64,
    /// How long the caller stays in line after this call, in ms, up to a day (60 s with no inbox); 0: does not wait.
    pub wait_ms: u64,
    /// The channel to which the server sends a message when it grants; subscribe to it before asking. Whoever may publish there
    /// can send what looks like a grant, so let a secret of this wait follow, `<channel>#<secret>`: then messages end with the
    /// SHA-1 of the secret and the text before it, as `lua/README.md` describes. Empty: the caller only asks again.
    pub inbox: &'a str,
    /// 0, or the ticket of an earlier answer: brings back the place of a waiter that the server forgot.
    pub ticket: u64,
}

impl Default for Ask<'_> {
    /// One permit for 30 s, at once or not at all. The id and, where none is stored, the limit have to be filled in.
    fn default() -> Self {
        Ask {
            id: "",
            permits: Some(1),
            limit: 0,
            lease_ms: 30_000,
            wait_ms: 0,
            inbox: "",
            ticket: 0,
        }
    }
}

/// What [`acquire`](crate::scripts::semaphore::acquire) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Granted by this call.
    Granted(Grant, Usage),
    /// The id held already; nothing was granted twice.
    Held(Grant, Usage),
    /// In line.
    Queued {
        /// The place in line, for all who wait: the smallest is granted first.
        ticket: u64,
        /// The place in line now, from 1.
        position: u64,
        /// In how many ms asking again makes sense without a message.
        retry_after: u64,
        /// How full it is.
        usage: Usage,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// Not granted and not in line.
    Denied {
        /// In how many ms the next lease expires unless it is renewed; `None`: no lease that runs now ever expires.
        next_expiry: Option<u64>,
        /// How full it is.
        usage: Usage,
        /// How many wait in line.
        waiting: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// More permits were asked for than the limit in force allows. The id has no place in line.
    AboveLimit {
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

pub(crate) struct Acquire<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) ask: Ask<'a>,
}

impl Call for Acquire<'_> {
    type Answer = Answer;

    fn pack(&self) -> Packed {
        let ask = &self.ask;
        let arguments = [
            ask.id.into(),
            match ask.permits {
                Some(permits) => permits.into(),
                None => "all".into(),
            },
            ask.limit.into(),
            ask.lease_ms.into(),
            ask.wait_ms.into(),
            ask.inbox.into(),
            ask.ticket.into(),
        ];
        Packed::new(&ACQUIRE, &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<Answer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => {
                let grant = Grant::read_of_lease(reply, self.ask.lease_ms)?;
                match self.ask.permits {
                    Some(asked) if asked != grant.permits => Err(unexpected(&grant)),
                    _ => Ok(Answer::Granted(grant, Usage::read(reply)?)),
                }
            }
            "held" => Ok(Answer::Held(Grant::read(reply)?, Usage::read(reply)?)),
            "queued" => Ok(Answer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                retry_after: reply.number()?,
                usage: Usage::read(reply)?,
                now: reply.number()?,
            }),
            "denied" => Ok(Answer::Denied {
                next_expiry: reply.number_or_never()?,
                usage: Usage::read(reply)?,
                waiting: reply.number()?,
                now: reply.number()?,
            }),
            "above_limit" => Ok(Answer::AboveLimit {
                limit: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}
