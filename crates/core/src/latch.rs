//! The calls of the latch scripts, and their answers.

use super::call::{Call, Packed};
use super::keys::LatchKeys;
use super::lease::ServerTime;
use super::reply::{read, unexpected};
use super::script::{ScriptName, Scripts};
use crate::failure::CallError;
use crate::value::Value;

/// The answer of `count_down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountDownAnswer {
    /// This call counted the id.
    Counted {
        /// How many ids have not counted down yet; 0: the latch is open.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The id had counted before, or the latch was open. Nothing was counted.
    Already {
        /// How many ids have not counted down yet; 0: the latch is open.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `count_down`.
#[derive(Clone, Copy, Debug)]
pub struct CountDown<'a> {
    /// The keys of the latch.
    pub keys: &'a LatchKeys,
    /// The id that is counted, once.
    pub id: &'a str,
    /// How many ids open the latch.
    pub count: u32,
    /// How long the latch is kept at least, in ms: 1 ms to 100 years from now.
    pub life_ms: u64,
}

impl Call for CountDown<'_> {
    type Answer = CountDownAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let arguments = [self.id.into(), self.count.into(), self.life_ms.into()];
        Packed::new(&scripts[ScriptName::CountDown], &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<CountDownAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
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
        })
    }
}

/// The answer of `wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitAnswer {
    /// The latch is open: the count is complete.
    Open {
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The latch is not open yet.
    Closed {
        /// How many ids have not counted down yet.
        left: u32,
        /// The count in force.
        count: u32,
        /// The time in ms after which the caller should ask again if no message arrives.
        retry_after: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `wait`.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The keys of the latch.
    pub keys: &'a LatchKeys,
    /// How many ids open the latch.
    pub count: u32,
    /// How long the latch is kept at least, in ms: 1 ms to 100 years from now.
    pub life_ms: u64,
    /// How long the server may send a message, in ms, up to a day; 0: no message.
    pub wait_ms: u64,
    /// The channel of the message; empty: no message.
    pub inbox: &'a str,
}

impl Call for Wait<'_> {
    type Answer = WaitAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let arguments = [self.count.into(), self.life_ms.into(), self.wait_ms.into(), self.inbox.into()];
        Packed::new(&scripts[ScriptName::Wait], &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<WaitAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "open" => Ok(WaitAnswer::Open { count: reply.number()?, now: reply.number()? }),
            "closed" => Ok(WaitAnswer::Closed {
                left: reply.number()?,
                count: reply.number()?,
                retry_after: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

/// The answer of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAnswer {
    /// No caller has counted down or waited, so no count is stored.
    None {
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The latch is open: the count is complete.
    Open {
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The latch is not open yet.
    Closed {
        /// How many ids have not counted down yet.
        left: u32,
        /// The count in force.
        count: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `count`.
#[derive(Clone, Copy, Debug)]
pub struct Count<'a> {
    /// The keys of the latch.
    pub keys: &'a LatchKeys,
}

impl Call for Count<'_> {
    type Answer = CountAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        Packed::new(&scripts[ScriptName::Count], &self.keys.packed, &[])
    }

    fn answer(&self, reply: Value) -> Result<CountAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "none" => Ok(CountAnswer::None { now: reply.number()? }),
            "open" => Ok(CountAnswer::Open { count: reply.number()?, now: reply.number()? }),
            "closed" => Ok(CountAnswer::Closed {
                left: reply.number()?,
                count: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

/// The answer of `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The latch existed, open or closed, and is deleted.
    Deleted {
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// No latch existed.
    None {
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `delete`.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// The keys of the latch.
    pub keys: &'a LatchKeys,
}

impl Call for Delete<'_> {
    type Answer = DeleteAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        Packed::new(&scripts[ScriptName::Delete], &self.keys.packed, &[])
    }

    fn answer(&self, reply: Value) -> Result<DeleteAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "deleted" => Ok(DeleteAnswer::Deleted { now: reply.number()? }),
            "none" => Ok(DeleteAnswer::None { now: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}
