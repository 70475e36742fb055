//! The events that one wait has received but not handled yet.

use super::lease::Moment;
use super::message::{Message, Received};
use std::collections::VecDeque;
use std::time::Instant;

/// The mailbox of one wait.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The secret that signs the messages to this wait. `None`: for a latch, whose messages are only hints to ask
    /// again.
    pub secret: Option<String>,
    /// The channel named in the last call that asked for messages. Messages on other channels are not handled.
    channel: String,
    pub messages: VecDeque<(Message, Moment)>,
    pub called: bool,
    pub cancelled: bool,
    /// When the wait is cancelled without a call of `cancel`.
    cancelled_at: Option<Instant>,
}

/// An event in a mailbox.
pub enum Mail {
    Message {
        message: Message,
        received: Moment,
    },
    Called,
    Cancelled,
    /// No event arrived in time.
    Timer,
}

impl Mailbox {
    pub fn new(secret: Option<String>) -> Mailbox {
        Mailbox {
            secret,
            channel: String::new(),
            messages: VecDeque::new(),
            called: false,
            cancelled: false,
            cancelled_at: None,
        }
    }

    /// The inbox as an argument for the scripts: the channel, and the secret that signs the messages. From now on only
    /// messages on this channel are handled.
    pub fn inbox(&mut self, channel: &str) -> String {
        channel.clone_into(&mut self.channel);
        match &self.secret {
            Some(secret) if !channel.is_empty() => format!("{channel}#{secret}"),
            _ => channel.to_owned(),
        }
    }

    /// Whether messages on this channel are handled.
    pub fn is_on(&self, channel: &str) -> bool {
        self.channel == channel
    }

    /// Takes a message if it is signed for this wait. Returns whether it is. Copies of a message that is already in the
    /// mailbox are dropped.
    pub fn put(&mut self, channel: &str, received: &Received, now: Moment) -> bool {
        let Some(secret) = &self.secret else {
            self.called = true;
            return false;
        };
        if !received.is_signed_with(secret) {
            return false;
        }
        if !self.is_on(channel) {
            // From a server that had the semaphore before. It may not know yet that another server has it now.
            self.called = true;
        } else if !self.messages.iter().any(|(m, _)| *m == received.message) {
            self.messages.push_back((received.message.clone(), now));
        }
        true
    }

    pub fn call(&mut self) {
        self.called = true;
    }

    pub fn cancel(&mut self) {
        self.cancelled = true;
    }

    pub fn cancel_at(&mut self, at: Instant) {
        self.cancelled_at = Some(at);
    }

    pub fn is_cancelled(&self, now: Instant) -> bool {
        self.cancelled || self.cancelled_at.is_some_and(|at| at <= now)
    }

    /// Removes the grants and returns their fences, because they are given back. The waiter asks again.
    pub fn take_grants(&mut self) -> Vec<u64> {
        let (grants, others): (VecDeque<_>, VecDeque<_>) =
            self.messages.drain(..).partition(|(message, _)| message.fence > 0);
        self.messages = others;
        self.called |= !grants.is_empty();
        grants.into_iter().map(|(message, _)| message.fence).collect()
    }

    /// The next event for a waiter that sleeps until `until`. An error is the time at which to check again.
    pub fn take(&mut self, until: Instant, now: Instant) -> Result<Mail, Instant> {
        if let Some((message, received)) = self.messages.pop_front() {
            return Ok(Mail::Message { message, received });
        }
        if self.is_cancelled(now) {
            return Ok(Mail::Cancelled);
        }
        // When the time is over the waiter asks anyway. Therefore the hint needs no event.
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
