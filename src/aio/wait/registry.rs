//! The waits of a gate, for all servers, and the receiver of the servers' messages.

use super::mailbox::Mailbox;
use crate::aio::lease::releases::Releases;
use crate::aio::transport::Listener;
use crate::clock::{Alarm, Clock};
use crate::protocol::inbox::Inbox;
use crate::protocol::keys::Keys;
use crate::protocol::message::Received;
use crate::sync::lock;
use crate::transport::NodeId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// All waits of a gate.
pub(in crate::aio) struct Registry {
    clock: Clock,
    releases: Arc<Releases>,
    inbox: Mutex<Inbox<Mailbox>>,
    ended: Mutex<Ended>,
    /// Wakes the task that re-establishes subscriptions.
    pub(super) changed: Alarm,
}

/// The servers whose connection for messages has ended.
#[derive(Default)]
struct Ended {
    nodes: BTreeSet<NodeId>,
    closed: bool,
}

impl Registry {
    pub(in crate::aio) fn new(clock: &Clock, releases: &Arc<Releases>) -> Registry {
        Registry {
            clock: clock.clone(),
            releases: releases.clone(),
            inbox: Mutex::default(),
            ended: Mutex::default(),
            changed: Alarm::new(clock),
        }
    }

    /// Registers a wait in line for its messages. `None`: this id already waits for this semaphore.
    pub(super) fn register(self: &Arc<Registry>, keys: &Keys, id: &str) -> Option<Registered> {
        let make = |secret| Arc::new(Mailbox::new(&self.clock, Some(secret)));
        let mailbox = lock(&self.inbox).add(keys, id, Uuid::new_v4(), make)?;
        Some(Registered { registry: self.clone(), id: id.to_owned(), mailbox })
    }

    /// Registers a wait for the messages about `key`. Any number of tasks may wait for the same key.
    pub(super) fn register_shared(self: &Arc<Registry>, key: &str) -> Registered {
        let mailbox = Arc::new(Mailbox::new(&self.clock, None));
        lock(&self.inbox).add_shared(key, &mailbox);
        Registered { registry: self.clone(), id: key.to_owned(), mailbox }
    }

    /// A wait was given up and the server did not confirm it. A grant that still arrives for it is released.
    pub(super) fn give_up(&self, keys: &Keys, id: &str) {
        lock(&self.inbox).give_up(self.clock.now(), keys, id);
    }

    /// Hints to all waits to ask again.
    pub(super) fn call_all(&self) {
        for mailbox in lock(&self.inbox).all() {
            mailbox.call();
        }
    }

    /// A server whose connection for messages has ended. `Ok(None)`: the gate is dropped.
    pub(super) fn next_ended(&self) -> Result<Option<NodeId>, ()> {
        let mut ended = lock(&self.ended);
        match ended.closed {
            true => Ok(None),
            false => ended.nodes.pop_first().map(Some).ok_or(()),
        }
    }

    /// Whether a task waits for messages.
    pub(super) fn has_waits(&self) -> bool {
        lock(&self.inbox).all().next().is_some()
    }

    /// The gate is dropped.
    pub(in crate::aio) fn close(&self) {
        lock(&self.ended).closed = true;
        self.changed.wake();
    }
}

impl Listener for Registry {
    fn message(&self, channel: &str, payload: &[u8]) {
        let Some(received) = Received::read(payload) else {
            return;
        };
        let now = self.clock.moment();
        // The lock is released here: a wait that gets its message ends, and needs the lock for that.
        let waiting = lock(&self.inbox).of(&received.message.id);
        let mut is_taken = false;
        for mailbox in waiting {
            is_taken |= mailbox.put(channel, &received, now);
        }
        if !is_taken {
            let release = lock(&self.inbox).release_of(&received);
            self.releases.later(release);
        }
    }

    fn disconnected(&self, node: NodeId) {
        lock(&self.ended).nodes.insert(node);
        self.changed.wake();
    }
}

/// A registered wait. Dropping this ends the registration.
pub(super) struct Registered {
    registry: Arc<Registry>,
    id: String,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.registry.inbox).remove(&self.id, &self.mailbox);
    }
}
