//! Calls, replies and messages on their way.

use super::moment::{NEVER, from};
use super::tickets::number;
use super::view::View;
use crate::call::{Call, Sent};
use crate::client::flights::Flight;
use crate::client::{Thread, micros};
use crate::protocol::inbox::{Message, Received};
use crate::scripts::words_of;

impl View<'_> {
    fn call(&mut self, sent: &Sent) {
        match sent.call() {
            Call::Acquire(ask) => {
                self.add([1]);
                self.add_id(&ask.id);
                self.add([
                    u64::from(ask.permits.unwrap_or(0)),
                    ask.lease_ms,
                    ask.wait_ms,
                    u64::from(!ask.inbox.is_empty()),
                    ask.max_waiting,
                    ask.at_least_ms,
                    ask.head_start_ms,
                ]);
                self.add_ticket(ask.ticket);
            }
            Call::Release { id, keep, fence } => {
                self.add([2, u64::from(keep)]);
                self.add_id(&id);
                self.add_own(fence);
            }
            Call::Refresh { id, lease_ms, .. } => {
                self.add([3, lease_ms]);
                self.add_id(&id);
            }
            _ => self.add([4]),
        }
    }

    pub(super) fn flight(&mut self, flight: &Flight) {
        self.add([
            match flight.thread {
                None => 0,
                Some(Thread::Caller(_)) => 1,
                Some(_) => 2,
            },
            flight.is_repeated.into(),
            flight.is_behind.into(),
        ]);
        self.add_connection(Some(flight.connection));
        if flight.thread.is_some() {
            self.add_past(Some(flight.sent.instant()));
            self.add_instant(flight.latest);
        }
        flight.calls.iter().for_each(|sent| self.call(sent));
        let replies = flight.replies.as_deref().unwrap_or_default();
        for words in replies.iter().map(words_of) {
            let words = words.unwrap_or_default();
            match words.first().map(String::as_str) {
                Some(word @ ("granted" | "held" | "refreshed")) => {
                    let word = ["granted", "held", "refreshed"].iter().position(|w| *w == word);
                    self.add([1, word.unwrap_or(0) as u64, number(&words, 1)]);
                    self.add_own(number(&words, 2));
                    let left = (number(&words, 3) - number(&words, 4)) * 1_000;
                    let end = micros(flight.sent.instant()) + left.saturating_sub(1_000);
                    self.add([from(self.moment.mono, end)]);
                }
                Some("queued") if words.len() == 4 => {
                    self.add([9]); // of a lookup
                    self.add_own(number(&words, 1));
                }
                Some("queued") => {
                    self.add([2, number(&words, 2), number(&words, 3)]);
                    let delay = self.delay(flight.sent.instant(), number(&words, 6));
                    self.add([delay]);
                    self.add_ticket(number(&words, 1));
                }
                Some("released") => self.add([3, number(&words, 1)]),
                Some("lost") => self.add([4]),
                Some("cancelled") => self.add([5]),
                Some("gone") => self.add([6]),
                Some(_) => self.add([7]), // denied, above the limit: the client is idle again
                None => self.add([8]),
            }
        }
    }

    pub(super) fn message(&mut self, message: &Message) {
        self.add_id(&message.id);
        self.add([u64::from(message.permits)]);
        self.add_own(message.fence);
        let left = message.at.map_or(NEVER, |at| at.saturating_sub(message.now));
        self.add([left]);
        self.add_ms(message.at.unwrap_or(NEVER));
        // Messages older than a reply are ignored.
        self.add([(self.moment.now - message.now).min(self.moment.most / 1_000)]);
    }

    pub(super) fn mail(&mut self) {
        let mail = &self.party.client.mail;
        self.add([mail.len() as u64]);
        for text in mail {
            if let Some(received) = Received::read(text.as_bytes()) {
                self.message(&received.message);
            }
        }
    }
}
