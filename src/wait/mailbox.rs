//! The mailbox of one wait, on which its thread sleeps.

use super::cancel::Wait;
use super::reading::{Reading, Taken};
use crate::clock::{Clock, Notify};
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::{self, Mail};
use crate::protocol::message::Received;
use crate::sync::lock;
use std::sync::Mutex;
use std::time::Instant;

pub(crate) struct Mailbox {
    state: Mutex<State>,
    notify: Notify,
    clock: Clock,
    /// Its thread may read the subscription while it waits, since nothing else needs to wake it.
    may_read: bool,
}

struct State {
    mail: mailbox::Mailbox,
    /// Its thread sleeps, and can read the subscription if no other thread does.
    sleeps_to_read: bool,
}

impl Mailbox {
    pub(super) fn new(clock: &Clock, secret: Option<String>, may_be_cancelled: bool) -> Mailbox {
        Mailbox {
            state: Mutex::new(State { mail: mailbox::Mailbox::new(secret), sleeps_to_read: false }),
            notify: Notify::awake(clock),
            clock: clock.clone(),
            may_read: !may_be_cancelled && !clock.is_moved(),
        }
    }

    pub(super) fn may_read(&self) -> bool {
        self.may_read
    }

    /// The inbox as an argument for the scripts. From now on only messages on this channel are handled.
    pub(super) fn inbox(&self, channel: &str) -> String {
        lock(&self.state).mail.inbox(channel)
    }

    /// Takes a message. Returns whether it is signed for this wait.
    pub(super) fn put(&self, channel: &str, received: &Received, now: Moment) -> bool {
        let mut state = lock(&self.state);
        let is_mine = state.mail.put(channel, received, now);
        self.notify.wake(state);
        is_mine
    }

    pub(super) fn call(&self) {
        let mut state = lock(&self.state);
        state.mail.call();
        self.notify.wake(state);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).mail.is_cancelled(self.clock.now())
    }

    /// Wakes its thread to read the subscription of this channel. Returns whether the thread slept and uses that
    /// channel.
    pub(super) fn wake_to_read(&self, channel: &str) -> bool {
        let state = lock(&self.state);
        let wakes = state.sleeps_to_read && state.mail.is_on(channel);
        if wakes {
            self.notify.wake(state);
        }
        wakes
    }

    /// The next event. Blocks until `until` at most.
    pub(super) fn take(&self, until: Instant) -> Mail {
        loop {
            if let Look::Mail(mail) = self.look(until, None) {
                return mail;
            }
        }
    }

    /// Returns an event that is present. Otherwise this thread takes the subscription to read it, if no other thread
    /// does, or sleeps.
    ///
    /// No message is delivered here while the subscription is taken. So its reader receives every later message.
    pub(super) fn look(&self, until: Instant, reading: Option<&Reading>) -> Look {
        let mut state = lock(&self.state);
        let wake = match state.mail.take(until, self.clock.now()) {
            Ok(mail) => return Look::Mail(mail),
            Err(wake) => wake,
        };
        if let Some(taken) = reading.and_then(Reading::take) {
            return Look::Reads(taken, wake);
        }
        state.sleeps_to_read = reading.is_some();
        state = self.notify.sleep(state, Some(wake));
        state.sleeps_to_read = false;
        Look::Slept
    }
}

impl Wait for Mailbox {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn cancel(&self) {
        let mut state = lock(&self.state);
        state.mail.cancel();
        self.notify.wake(state);
    }

    fn cancel_at(&self, at: Instant) {
        lock(&self.state).mail.cancel_at(at);
    }
}

/// The result of checking a mailbox.
pub(super) enum Look {
    Mail(Mail),
    /// Its thread must read until this time.
    Reads(Taken, Instant),
    Slept,
}
