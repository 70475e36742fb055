//! Messages, and the threads and tasks that wait for them.

use crate::case::{Common, LONG};
use crate::engine::connection::{Connection, Receiver};
use crate::engine::mode::{MayBlock, Mode, block};
use crate::engine::slot::Slot;
use crate::foreign::Foreign;
use crate::world::{fail, now};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What a waiter can find.
#[derive(Default)]
pub(crate) struct Mailbox {
    payloads: VecDeque<u8>,
    has_hint: bool,
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Message(u8),
    Hint,
    Ended,
}

fn take(mailbox: &mut Mailbox) -> Option<Found> {
    if let Some(payload) = mailbox.payloads.pop_front() {
        return Some(Found::Message(payload));
    }
    if std::mem::take(&mut mailbox.has_hint) {
        return Some(Found::Hint);
    }
    mailbox.has_ended.then_some(Found::Ended)
}

/// The receiver: it has a slot for each channel.
pub(crate) struct Mailboxes(Vec<Arc<Slot<Mailbox>>>);

impl Mailboxes {
    pub(crate) fn new(foreign: &Foreign, channels: u8) -> Arc<Mailboxes> {
        let slot = |_| Arc::new(Slot::of_machine(foreign, Mailbox::default()));
        Arc::new(Mailboxes((0..channels).map(slot).collect()))
    }

    fn slot(&self, channel: u8) -> &Arc<Slot<Mailbox>> {
        &self.0[usize::from(channel)]
    }

    fn change(&self, channel: u8, change: impl FnOnce(&mut Mailbox)) {
        self.slot(channel).change(change);
    }

    /// Another thread has something for the waiter, for example a cancellation.
    pub(crate) fn hint(&self, channel: u8) {
        self.change(channel, |mailbox| mailbox.has_hint = true);
    }

    /// For a task that waits for a message.
    pub(crate) async fn found(&self, channel: u8) -> Found {
        let found = self.slot(channel).until(None, Mode::Async, take);
        found.await.expect("a message or the end")
    }
}

impl Receiver for Mailboxes {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        self.change(channel[0] - b'0', |mailbox| mailbox.payloads.push_back(payload[0] - b'0'));
    }

    fn ended(&self) {
        (0..self.0.len()).for_each(|channel| self.change(channel as u8, |mailbox| mailbox.has_ended = true));
    }
}

/// How a thread waits for a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It reads if nobody else does.
    Reads,
    /// The connection's own thread reads while it waits.
    Listens,
    /// The connection's own thread reads for some time.
    ListensFor(Duration),
}

impl Common {
    /// Waits for a message on this channel, until the time is over. Returns `None` then.
    pub(crate) fn wait(&self, channel: u8, how: How, limit: Duration) -> Option<Found> {
        let until = now() + limit;
        let slot = self.mailboxes.as_ref().unwrap().slot(channel);
        let connection = &self.connection;
        let wait = |may: MayBlock| match how {
            How::Reads => connection.wait_for_message(slot, until, take, may),
            How::Listens => {
                let _listening = Connection::listen(connection);
                slot.block(Some(until), take, may)
            }
            How::ListensFor(time) => {
                connection.listen_for(time);
                slot.block(Some(until), take, may)
            }
        };
        let found = block(|mode| async move {
            match mode {
                Mode::Blocking(may) => wait(may),
                Mode::Async | Mode::Worker => None,
            }
        });
        if now() >= until && limit == LONG {
            fail("a waiter is not told that nothing arrives".into());
        }
        self.judge_wait(found, now() >= until);
        found
    }

    /// Fails unless the events explain what a waiter has found.
    pub(crate) fn judge_wait(&self, found: Option<Found>, is_over: bool) {
        let is_explained = match found {
            Some(Found::Message(_) | Found::Hint) => {
                self.check_time();
                true
            }
            Some(Found::Ended) => self.has_died(),
            None => is_over || self.has_died(),
        };
        if !is_explained {
            fail(format!("a waiter found {found:?}"));
        }
    }
}
