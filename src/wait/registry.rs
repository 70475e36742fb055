//! The waits of a gate, for all servers. It receives their messages.

use super::mailbox::Mailbox;
use crate::clock::Clock;
use crate::engine::connection::Receiver;
use crate::lease::releases::Releases;
use crate::protocol::inbox::{Inbox, Received};
use crate::protocol::keys::Keys;
use crate::sync::lock;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use uuid::Uuid;

/// All waits of a gate.
pub(crate) struct Registry {
    clock: Clock,
    /// Set when the gate is opened.
    releases: OnceLock<Weak<Releases>>,
    inbox: Mutex<Inbox<Mailbox>>,
}

impl Registry {
    pub(crate) fn new(clock: &Clock) -> Registry {
        Registry { clock: clock.clone(), releases: OnceLock::new(), inbox: Mutex::default() }
    }

    /// From now on grants to waits that were given up are released.
    pub(crate) fn release_with(&self, releases: &Arc<Releases>) {
        let _ = self.releases.set(Arc::downgrade(releases));
    }

    /// Registers a wait in line for its messages. `None`: this id already waits for this semaphore.
    pub(super) fn register(&self, keys: &Keys, id: &str) -> Option<Registered<'_>> {
        let make = |secret| Arc::new(Mailbox::new(&self.clock, Some(secret)));
        let mailbox = lock(&self.inbox).add(keys, id, Uuid::new_v4(), make)?;
        Some(Registered { registry: self, id: id.to_owned(), mailbox })
    }

    /// Registers a wait for the messages about `key`. Any number of callers may wait for the same key.
    pub(super) fn register_shared(&self, key: &str) -> Registered<'_> {
        let mailbox = Arc::new(Mailbox::new(&self.clock, None));
        lock(&self.inbox).add_shared(key, &mailbox);
        Registered { registry: self, id: key.to_owned(), mailbox }
    }

    /// A wait was given up and the server did not confirm it. A grant that still arrives for it is released.
    pub(super) fn give_up(&self, keys: &Keys, id: &str) {
        lock(&self.inbox).give_up(self.clock.now(), keys, id);
    }

    /// Hints to all waits to ask again.
    pub(super) fn call_all(&self) {
        let all: Vec<Arc<Mailbox>> = lock(&self.inbox).all().cloned().collect();
        all.iter().for_each(|mailbox| mailbox.call());
    }

    /// Whether somebody waits.
    pub(super) fn has_waits(&self) -> bool {
        lock(&self.inbox).all().next().is_some()
    }
}

impl Receiver for Registry {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        let (Some(received), Ok(channel)) = (Received::read(payload), std::str::from_utf8(channel)) else {
            return;
        };
        let now = self.clock.moment();
        // The lock is released here: a wait that gets its message ends, and needs the lock for that.
        let waiting = lock(&self.inbox).of(&received.message.id);
        let mut is_taken = false;
        for mailbox in waiting {
            is_taken |= mailbox.put(channel, &received, now);
        }
        if !is_taken
            && let Some(release) = lock(&self.inbox).release_of(&received)
            && let Some(releases) = self.releases.get().and_then(Weak::upgrade)
        {
            releases.post(release);
        }
    }

    fn ended(&self) {
        self.call_all();
    }
}

/// A registered wait. Dropping this ends the registration.
pub(super) struct Registered<'a> {
    registry: &'a Registry,
    id: String,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.registry.inbox).remove(&self.id, &self.mailbox);
    }
}
