//! What one wait has heard, and has not acted on yet.

use super::lease::Moment;
use super::message::{Message, Received};
use std::collections::VecDeque;
use std::time::Instant;

/// The mailbox of one wait.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    /// What the messages to this wait are signed with; `None` for a latch, whose messages only say that it is worth asking.
    pub(crate) secret: Option<String>,
    /// Where messages go, by the last call that asked for them. What comes elsewhere does not count.
    channel: String,
    pub(crate) messages: VecDeque<(Message, Moment)>,
    pub(crate) called: bool,
    pub(crate) cancelled: bool,
    /// When it is cancelled without a call of `cancel`.
    cancelled_at: Option<Instant>,
}

/// What is in a mailbox.
pub(crate) enum Mail {
    Message {
        message: Message,
        received: Moment,
    },
    Called,
    Cancelled,
    /// Nothing, and the time is over.
    Timer,
}

impl Mailbox {
    pub(crate) fn new(secret: Option<String>) -> Mailbox {
        Mailbox {
            secret,
            channel: String::new(),
            messages: VecDeque::new(),
            called: false,
            cancelled: false,
            cancelled_at: None,
        }
    }

    /// The inbox as the scripts take it: the channel, and the secret with which they sign. From here on only what comes on this
    /// channel counts.
    pub(crate) fn inbox(&mut self, channel: &str) -> String {
        channel.clone_into(&mut self.channel);
        match &self.secret {
            Some(secret) if !channel.is_empty() => format!("{channel}#{secret}"),
            _ => channel.to_owned(),
        }
    }

    /// Whether messages on this channel count.
    pub(crate) fn is_on(&self, channel: &str) -> bool {
        self.channel == channel
    }

    /// Takes a message, if it is signed for this wait. One that somebody sends again is kept once at a time.
    pub(crate) fn put(&mut self, channel: &str, received: &Received, now: Moment) -> bool {
        let Some(secret) = &self.secret else {
            self.called = true;
            return false;
        };
        if !received.is_signed_with(secret) {
            return false;
        }
        if !self.is_on(channel) {
            // Of a server that had the semaphore before: it may not know yet that another one has it now.
            self.called = true;
        } else if !self.messages.iter().any(|(m, _)| *m == received.message) {
            self.messages.push_back((received.message.clone(), now));
        }
        true
    }

    pub(crate) fn call(&mut self) {
        self.called = true;
    }

    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    pub(crate) fn cancel_at(&mut self, at: Instant) {
        self.cancelled_at = Some(at);
    }

    pub(crate) fn is_cancelled(&self, now: Instant) -> bool {
        self.cancelled || self.cancelled_at.is_some_and(|at| at <= now)
    }

    /// What there is for a waiter that sleeps until `until`; or when to look again.
    pub(crate) fn take(&mut self, until: Instant, now: Instant) -> Result<Mail, Instant> {
        if let Some((message, received)) = self.messages.pop_front() {
            return Ok(Mail::Message { message, received });
        }
        if self.is_cancelled(now) {
            return Ok(Mail::Cancelled);
        }
        // Once the time is over the waiter asks, which is what a call wants.
        let called = std::mem::take(&mut self.called);
        if until <= now {
            return Ok(Mail::Timer);
        }
        if called {
            return Ok(Mail::Called);
        }
        Err(self.cancelled_at.map_or(until, |at| at.min(until)))
    }
}
