//! The mailbox of one wait: what its thread sleeps at.

use crate::clock::{Bell, Clock};
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::{self, Mail};
use crate::protocol::message::Received;
use crate::sync::lock;
use std::sync::Mutex;
use std::time::Instant;

pub(crate) struct Mailbox {
    state: Mutex<State>,
    bell: Bell,
    clock: Clock,
    /// Its thread may read the subscription while it waits: nobody has to wake it for another reason.
    may_read: bool,
}

struct State {
    mail: mailbox::Mailbox,
    is_asleep: bool,
}

impl Mailbox {
    pub(super) fn new(clock: &Clock, secret: Option<String>, may_be_cancelled: bool) -> Mailbox {
        Mailbox {
            state: Mutex::new(State {
                mail: mailbox::Mailbox::new(secret),
                is_asleep: false,
            }),
            bell: Bell::awake(clock),
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
        self.bell.ring(state);
        is_mine
    }

    pub(super) fn call(&self) {
        let mut state = lock(&self.state);
        state.mail.call();
        self.bell.ring(state);
    }

    pub(super) fn cancel(&self) {
        let mut state = lock(&self.state);
        state.mail.cancel();
        self.bell.ring(state);
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

    /// Wakes its thread, if that may read and sleeps.
    pub(super) fn wake_to_read(&self) -> bool {
        let state = lock(&self.state);
        let wakes = self.may_read && state.is_asleep;
        if wakes {
            self.bell.ring(state);
        }
        wakes
    }

    /// What comes next, waited for until `until`.
    pub(super) fn take(&self, until: Instant) -> Mail {
        loop {
            if let Look::Mail(mail) = self.look(until, || None::<()>) {
                return mail;
            }
        }
    }

    /// What is here. Otherwise this thread does something `else_`, until the time that is told; or sleeps.
    ///
    /// While `else_` is asked nothing is delivered here. So what it returns finds everything that comes from then on.
    pub(super) fn look<T>(&self, until: Instant, else_: impl FnOnce() -> Option<T>) -> Look<T> {
        let mut state = lock(&self.state);
        let wake = match state.mail.take(until, self.clock.now()) {
            Ok(mail) => return Look::Mail(mail),
            Err(wake) => wake,
        };
        if let Some(other) = else_() {
            return Look::Else(other, wake);
        }
        state.is_asleep = true;
        state = self.bell.sleep(state, Some(wake));
        state.is_asleep = false;
        Look::Slept
    }
}

/// What came of a look at a mailbox.
pub(super) enum Look<T> {
    Mail(Mail),
    Else(T, Instant),
    Slept,
}
