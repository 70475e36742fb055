//! The scripts of the semaphore: their calls and answers. Here are those by which one caller asks and holds.

mod manage;
mod several;

pub use manage::{HolderRow, ResizeAnswer, State, WaiterRow};
pub(crate) use manage::{Inspect, Resize};
pub(crate) use several::TryAcquireAll;
pub use several::{AskOne, Line, TryAcquireAllAnswer};

use super::call::{Argument, Call, Packed};
use super::keys::Keys;
use super::lease::ServerTime;
use super::reply::{Reply, between, read, unexpected};
use super::script::{ACQUIRE, LOOKUP, REFRESH, RELEASE};
use crate::error::CallError;
use redis::Value;
use std::time::Duration;

/// A permit as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many permits are held.
    pub permits: u32,
    /// The fencing token: higher than that of every earlier grant of this semaphore.
    pub fence: u64,
    /// The end of the lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The server's time at this reply.
    pub now: ServerTime,
}

impl Grant {
    fn read(reply: &mut Reply) -> Result<Grant, CallError> {
        let grant = Grant {
            permits: reply.number()?,
            fence: reply.number()?,
            expires_at: reply.number_or_never()?,
            now: reply.number()?,
        };
        grant.checked()
    }

    /// A grant of this very call, with the lease that it asked for, or a longer one where a minimum hold asks for that.
    fn read_of_lease(reply: &mut Reply, lease_ms: u64, at_least_ms: Option<u64>) -> Result<Grant, CallError> {
        let grant = Grant::read(reply)?;
        let end = (lease_ms > 0).then(|| grant.now.saturating_add(lease_ms.max(at_least_ms.unwrap_or(0))));
        let fits = match (grant.expires_at, end) {
            // Whoever refreshes does not know of the minimum hold.
            (Some(told), Some(end)) if at_least_ms.is_none() => told >= end,
            (told, end) => told == end,
        };
        match fits {
            true => Ok(grant),
            false => Err(unexpected(&grant)),
        }
    }

    /// Nobody holds zero permits, or by a lease that has ended.
    fn checked(self) -> Result<Grant, CallError> {
        let lives = self.expires_at.is_none_or(|end| end > self.now);
        match self.permits > 0 && self.fence > 0 && lives {
            true => Ok(self),
            false => Err(unexpected(&self)),
        }
    }

    /// How long the lease ran at the server's `now`; `None`: for ever.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.expires_at.map(|end| between(self.now, end))
    }
}

/// How full a semaphore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
}

impl Usage {
    fn read(reply: &mut Reply) -> Result<Usage, CallError> {
        Ok(Usage { in_use: reply.number()?, limit: reply.number()? })
    }
}

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
    /// Joins the line only while fewer than these wait; 0: joins any. Who is in line stays in line.
    pub max_waiting: u32,
    /// Minimum hold, in ms, up to 100 years: what is released earlier is in use until so long after the grant; 0: none. The lease
    /// is not shorter.
    pub at_least_ms: u64,
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
            max_waiting: 0,
            at_least_ms: 0,
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
    /// Not granted and not in line: too little is free or others wait, and the caller does not wait, or the line is full.
    Denied {
        /// In how many ms the next lease expires unless it is renewed, where the line is full at the earliest; `None`: no lease that
        /// runs now ever expires.
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
            ask.max_waiting.into(),
            ask.at_least_ms.into(),
        ];
        // The last two may be left out, which they are most often.
        let unused = match (ask.max_waiting, ask.at_least_ms) {
            (0, 0) => 2,
            (_, 0) => 1,
            _ => 0,
        };
        let used = arguments.len() - unused;
        Packed::new(&ACQUIRE, &self.keys.packed, arguments.get(..used).unwrap_or(&arguments))
    }

    fn answer(&self, reply: Value) -> Result<Answer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => {
                let grant = Grant::read_of_lease(reply, self.ask.lease_ms, Some(self.ask.at_least_ms))?;
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
            "above_limit" => Ok(Answer::AboveLimit { limit: reply.number()?, now: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}

pub(crate) struct Refresh<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: &'a str,
    /// 0: permanent.
    pub(crate) lease_ms: u64,
    /// Only the permit with this fence.
    pub(crate) fence: Option<u64>,
}

impl Call for Refresh<'_> {
    /// `None`: the permit is lost.
    type Answer = Option<Grant>;

    fn pack(&self) -> Packed {
        let mut arguments = vec![self.id.into(), self.lease_ms.into()];
        arguments.extend(self.fence.map(Argument::Number));
        Packed::new(&REFRESH, &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<Option<Grant>, CallError> {
        read(reply, |reply| match reply.word()? {
            "refreshed" => Grant::read_of_lease(reply, self.lease_ms, None).map(Some),
            "lost" => reply.number::<ServerTime>().map(|_| None),
            other => Err(unexpected(&other)),
        })
    }
}

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
            "released" => Ok(ReleaseAnswer::Released { left: reply.number()?, usage: Usage::read(reply)? }),
            "cancelled" => Ok(ReleaseAnswer::Cancelled),
            "gone" => Ok(ReleaseAnswer::Gone),
            other => Err(unexpected(&other)),
        })
    }
}

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
            "queued" => {
                Ok(LookupAnswer::Queued { ticket: reply.number()?, position: reply.number()?, now: reply.number()? })
            }
            "gone" => Ok(LookupAnswer::Gone { now: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}
