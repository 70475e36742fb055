//! Who waits, and the subscriptions on which messages come, one a server that has waiters.

use super::mailbox::Mailbox;
use super::subscriber::Subscriber;
use crate::error::failure::Failure;
use crate::lease::releases::Releases;
use crate::protocol::id;
use crate::protocol::inbox::Inbox;
use crate::protocol::keys::Keys;
use crate::protocol::message::Received;
use crate::sync::lock;
use crate::transport::NodeId;
use crate::transport::pool::Pool;
use crate::transport::servers::Servers;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(crate) struct Inboxes {
    registry: Arc<Registry>,
    prefix: String,
    subscribers: Mutex<BTreeMap<NodeId, Arc<Subscriber>>>,
}

/// All who wait, whichever server sends their messages.
pub(super) struct Registry {
    servers: Arc<Servers>,
    releases: Arc<Releases>,
    inbox: Mutex<Inbox<Mailbox>>,
}

impl Inboxes {
    pub(crate) fn new(servers: Arc<Servers>, releases: Arc<Releases>, prefix: &str) -> Inboxes {
        Inboxes {
            registry: Arc::new(Registry {
                servers,
                releases,
                inbox: Mutex::default(),
            }),
            prefix: prefix.to_owned(),
            subscribers: Mutex::default(),
        }
    }

    /// Whether somebody has waited before at the server that has the key, so that there is a subscription or will be.
    pub(super) fn is_opened(&self, key: &str) -> bool {
        lock(&self.subscribers).contains_key(&self.registry.servers.node_of(key))
    }

    /// The channel on which this server sends messages, once the subscription works; opens it if need be. `None` where there is
    /// none: then a waiter asks without an inbox. A failure where the user lacks a permission, which would make every wait slow
    /// without a word.
    pub(super) fn channel(
        &self,
        server: &Arc<Pool>,
        until: Option<Instant>,
    ) -> Result<Option<String>, Failure> {
        let mut subscribers = lock(&self.subscribers);
        let known = subscribers.get(&server.node());
        let subscriber = match known.filter(|subscriber| !subscriber.is_over()) {
            Some(subscriber) => subscriber.clone(),
            None => {
                let channel = id::new_inbox(&self.prefix);
                let Some(subscriber) = Subscriber::start(server, &self.registry, channel) else {
                    return Ok(None);
                };
                subscribers.insert(server.node(), subscriber.clone());
                subscriber
            }
        };
        drop(subscribers);
        subscriber.channel(until)
    }

    /// Lets a wait in line get its messages. `None` when this very id waits for this semaphore already.
    pub(super) fn register(&self, keys: &Keys, id: &str) -> Option<Registered<'_>> {
        let clock = &self.registry.servers.clock;
        let make = |secret| Arc::new(Mailbox::new(clock, Some(secret)));
        let mailbox = lock(&self.registry.inbox).add(keys, id, make)?;
        Some(self.registered(id, mailbox))
    }

    /// Lets a wait get the messages for `key`; any number of threads may wait for the same.
    pub(super) fn register_shared(&self, key: &str) -> Registered<'_> {
        let mailbox = Arc::new(Mailbox::new(&self.registry.servers.clock, None));
        lock(&self.registry.inbox).add_shared(key, &mailbox);
        self.registered(key, mailbox)
    }

    fn registered(&self, id: &str, mailbox: Arc<Mailbox>) -> Registered<'_> {
        Registered {
            registry: &self.registry,
            id: id.to_owned(),
            mailbox,
        }
    }

    /// A wait was given up and the server did not confirm it: a grant that still comes for it is released.
    pub(super) fn give_up(&self, keys: &Keys, id: &str) {
        let now = self.registry.servers.clock.now();
        lock(&self.registry.inbox).give_up(now, keys, id);
    }
}

impl Drop for Inboxes {
    fn drop(&mut self) {
        if self.registry.servers.is_own_process() {
            for subscriber in lock(&self.subscribers).values() {
                subscriber.close();
            }
        }
    }
}

/// A wait that gets its messages for as long as this lives.
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

impl Registry {
    /// Hands on what came on a channel.
    pub(super) fn deliver(&self, channel: &str, received: &Received) {
        let now = self.servers.clock.moment();
        // A wait that gets its message ends, and needs the lock for that.
        let waiting = lock(&self.inbox).of(&received.message.id);
        let mut is_taken = false;
        for mailbox in waiting {
            is_taken |= mailbox.put(channel, received, now);
        }
        if !is_taken && let Some(release) = lock(&self.inbox).release_of(received) {
            self.releases.later([release]);
        }
    }

    /// Everybody who waits has reason to ask.
    pub(super) fn call_all(&self) {
        for mailbox in lock(&self.inbox).all() {
            mailbox.call();
        }
    }
}
