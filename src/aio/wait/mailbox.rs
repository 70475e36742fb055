//! The mailbox of one wait, on which its task sleeps.

use crate::clock::{Alarm, Clock};
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::{self, Mail};
use crate::protocol::message::Received;
use crate::sync::lock;
use crate::wait::cancel::Wait;
use std::sync::Mutex;
use std::time::Instant;

pub(in crate::aio) struct Mailbox {
    mail: Mutex<mailbox::Mailbox>,
    alarm: Alarm,
    clock: Clock,
}

impl Mailbox {
    pub(super) fn new(clock: &Clock, secret: Option<String>) -> Mailbox {
        Mailbox { mail: Mutex::new(mailbox::Mailbox::new(secret)), alarm: Alarm::awake(clock), clock: clock.clone() }
    }

    /// The inbox as an argument for the scripts. From now on only messages on this channel are handled.
    pub(super) fn inbox(&self, channel: &str) -> String {
        lock(&self.mail).inbox(channel)
    }

    /// Takes a message. Returns whether it is signed for this wait.
    pub(super) fn put(&self, channel: &str, received: &Received, now: Moment) -> bool {
        let is_mine = lock(&self.mail).put(channel, received, now);
        self.alarm.wake();
        is_mine
    }

    pub(super) fn call(&self) {
        lock(&self.mail).call();
        self.alarm.wake();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.mail).is_cancelled(self.clock.now())
    }

    /// The next event. Waits until `until` at most.
    pub(super) async fn take(&self, until: Instant) -> Mail {
        self.alarm.until(|| lock(&self.mail).take(until, self.clock.now()).map_err(Some)).await
    }

    /// Removes the grants that the task has not taken. Returns their fences. The task asks again when it is polled.
    pub(super) fn take_grants(&self) -> Vec<u64> {
        lock(&self.mail).take_grants()
    }
}

impl Wait for Mailbox {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn cancel(&self) {
        lock(&self.mail).cancel();
        self.alarm.wake();
    }

    fn cancel_at(&self, at: Instant) {
        lock(&self.mail).cancel_at(at);
    }
}
