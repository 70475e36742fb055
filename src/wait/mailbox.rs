//! The mailbox of one wait: what its thread sleeps at.

use crate::clock::{Bell, Clock};
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::{self, Mail};
use crate::protocol::message::Received;
use crate::sync::lock;
use std::sync::Mutex;
use std::time::Instant;

pub(crate) struct Mailbox {
    state: Mutex<mailbox::Mailbox>,
    bell: Bell,
    clock: Clock,
}

impl Mailbox {
    pub(super) fn new(clock: &Clock, secret: Option<String>) -> Mailbox {
        Mailbox {
            state: Mutex::new(mailbox::Mailbox::new(secret)),
            bell: Bell::awake(clock),
            clock: clock.clone(),
        }
    }

    /// The inbox as the scripts take it. From here on only what comes on this channel counts.
    pub(super) fn inbox(&self, channel: &str) -> String {
        lock(&self.state).inbox(channel)
    }

    /// Takes a message; whether it is signed for this wait.
    pub(super) fn put(&self, channel: &str, received: &Received, now: Moment) -> bool {
        let mut state = lock(&self.state);
        let is_mine = state.put(channel, received, now);
        self.bell.ring(state);
        is_mine
    }

    pub(super) fn call(&self) {
        let mut state = lock(&self.state);
        state.call();
        self.bell.ring(state);
    }

    pub(super) fn cancel(&self) {
        let mut state = lock(&self.state);
        state.cancel();
        self.bell.ring(state);
    }

    /// Cancels it at `at`, by its own clock. Called before it hears anything.
    pub(super) fn cancel_at(&self, at: Instant) {
        lock(&self.state).cancel_at(at);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled(self.clock.now())
    }

    /// The clock that it goes by.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What comes next, waited for until `until`.
    pub(super) fn take(&self, until: Instant) -> Mail {
        let mut state = lock(&self.state);
        loop {
            match state.take(until, self.clock.now()) {
                Ok(mail) => return mail,
                Err(wake) => state = self.bell.sleep(state, Some(wake)),
            }
        }
    }
}
