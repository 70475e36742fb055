//! The mailbox of one wait: what its thread sleeps at.

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
    /// Its thread may read the subscription while it waits: nobody has to wake it for another reason.
    may_read: bool,
}

struct State {
    mail: mailbox::Mailbox,
    /// Its thread sleeps, and would read the subscription if nobody else did.
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

    /// The inbox as the scripts take it. From here on only what comes on this channel counts.
    pub(super) fn inbox(&self, channel: &str) -> String {
        lock(&self.state).mail.inbox(channel)
    }

    /// Takes a message; whether it is signed for this wait.
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

    pub(super) fn cancel(&self) {
        let mut state = lock(&self.state);
        state.mail.cancel();
        self.notify.wake(state);
    }

    /// Cancels it at `at`, by its own clock. Called before it hears anything.
    pub(super) fn cancel_at(&self, at: Instant) {
        lock(&self.state).mail.cancel_at(at);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).mail.is_cancelled(self.clock.now())
    }

    /// The clock that it goes by.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Wakes its thread to read the subscription to this channel. Returns whether the thread sleeps and reads that one.
    pub(super) fn wake_to_read(&self, channel: &str) -> bool {
        let state = lock(&self.state);
        let wakes = state.sleeps_to_read && state.mail.is_on(channel);
        if wakes {
            self.notify.wake(state);
        }
        wakes
    }

    /// What comes next, waited for until `until`.
    pub(super) fn take(&self, until: Instant) -> Mail {
        loop {
            if let Look::Mail(mail) = self.look(until, None) {
                return mail;
            }
        }
    }

    /// What is here. Otherwise this thread gets the subscription to read it, if nobody else does; or sleeps.
    ///
    /// While the subscription is taken nothing is delivered here. So its reader finds everything that comes from then on.
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

/// What came of a look at a mailbox.
pub(super) enum Look {
    Mail(Mail),
    /// Its thread reads until then.
    Reads(Taken, Instant),
    Slept,
}
