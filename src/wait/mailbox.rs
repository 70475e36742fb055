//! The mailbox of one wait, at which its thread or task waits.

use super::cancel::Wait;
use crate::clock::Clock;
use crate::engine::connection::Connection;
use crate::engine::mode::Mode;
use crate::engine::place::Place;
use crate::engine::worker::Worker;
use crate::protocol::inbox::{self, Mail, Received};
use crate::protocol::lease::Moment;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Mailbox {
    place: Arc<Place<inbox::Mailbox>>,
    clock: Clock,
}

impl Mailbox {
    pub(super) fn new(clock: &Clock, secret: Option<String>) -> Mailbox {
        let place = Place::of_nobody(clock, inbox::Mailbox::new(secret));
        Mailbox { place: Arc::new(place), clock: clock.clone() }
    }

    /// The inbox as an argument for the scripts. From now on only messages on this channel are handled.
    pub(super) fn inbox(&self, channel: &str) -> String {
        self.place.look(|mail| mail.inbox(channel))
    }

    /// Takes a message. Returns whether it is signed for this wait.
    pub(super) fn put(&self, channel: &str, received: &Received, now: Moment) -> bool {
        self.place.update(|mail| mail.put(channel, received, now))
    }

    pub(super) fn call(&self) {
        self.place.update(inbox::Mailbox::call);
    }

    /// Removes the grants that its caller has not taken. Returns their fences.
    pub(super) fn take_grants(&self) -> Vec<u64> {
        self.place.look(inbox::Mailbox::take_grants)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        let now = self.clock.now();
        self.place.look(|mail| mail.is_cancelled(now))
    }

    /// The next event. Waits until `until` at most. `reads`: a thread reads this connection for messages, if no other thread
    /// does.
    pub(super) async fn take(
        &self,
        until: Instant,
        reads: Option<&Arc<Connection>>,
        worker: &Worker,
        mode: Mode,
    ) -> Mail {
        let take = |mail: &mut inbox::Mailbox| mail.take(until, self.clock.now());
        loop {
            let at = match self.place.look(take) {
                Ok(mail) => return mail,
                Err(at) => at,
            };
            let taken = |mail: &mut inbox::Mailbox| take(mail).ok();
            let mail = match (mode, reads) {
                (Mode::Blocking(may), Some(connection)) if !connection.has_ended() => {
                    connection.wait_for_message(&self.place, at, taken, may)
                }
                (Mode::Blocking(may), _) => self.place.wait(at, taken, may),
                (Mode::Async, _) => self.place.wait_in_task(at, taken, worker.sleep(at)).await,
            };
            if let Some(mail) = mail {
                return mail;
            }
        }
    }
}

impl Wait for Mailbox {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn cancel(&self) {
        self.place.update(inbox::Mailbox::cancel);
    }

    fn cancel_at(&self, at: Instant) {
        self.place.look(|mail| mail.cancel_at(at));
    }
}
