//! The inbox: who waits, and the subscriptions on which they hear of their grants, one a server that has waiters.
//!
//! A message is a hint that happens to carry the grant. It may be lost, come late, or twice; every waiter also asks
//! again by itself. It may also be forged, since whoever knows the channel may publish there. So every wait in line has a
//! secret, which only this client and the semaphore's keys know, and what is not signed with it does not count.

use crate::error::failure::Failure;
use crate::lease::cleanup::{Cleanup, PendingRelease, Target};
use crate::protocol::message::Received;
use crate::protocol::name::{self, Keys};
use crate::sync::lock;
use crate::transport::connections::Connections;
use crate::transport::servers::Servers;
use crate::wait::subscriber::Subscriber;
use crate::wait::waits::{Wait, Waits};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(crate) struct Inbox {
    servers: Arc<Servers>,
    hearing: Arc<Hearing>,
    prefix: String,
    subscribers: Mutex<BTreeMap<usize, Arc<Subscriber>>>,
}

/// All who wait, whichever server tells them.
pub(crate) struct Hearing {
    servers: Arc<Servers>,
    cleanup: Arc<Cleanup>,
    waits: Mutex<Waits>,
}

impl Inbox {
    pub(crate) fn new(servers: Arc<Servers>, cleanup: Arc<Cleanup>, prefix: &str) -> Inbox {
        Inbox {
            servers: servers.clone(),
            hearing: Arc::new(Hearing {
                servers,
                cleanup,
                waits: Mutex::default(),
            }),
            prefix: prefix.to_owned(),
            subscribers: Mutex::default(),
        }
    }

    /// Whether somebody has waited before at the server that has the key, so that there is a subscription or will be.
    pub(crate) fn is_opened(&self, key: &str) -> bool {
        lock(&self.subscribers).contains_key(&self.servers.lane(key))
    }

    /// The channel on which this server tells, once the subscription stands; opens it if need be. `None` where there is none:
    /// then a waiter asks without an inbox. A failure where the user lacks a permission, which would make every wait slow
    /// without a word.
    pub(crate) fn channel(
        &self,
        server: &Arc<Connections>,
        until: Option<Instant>,
    ) -> Result<Option<String>, Failure> {
        let mut subscribers = lock(&self.subscribers);
        let known = subscribers.get(&server.node());
        let subscriber = match known.filter(|subscriber| !subscriber.is_over()) {
            Some(subscriber) => subscriber.clone(),
            None => {
                let channel = name::new_inbox(&self.prefix);
                let Some(subscriber) = Subscriber::start(server, &self.hearing, channel) else {
                    return Ok(None);
                };
                subscribers.insert(server.node(), subscriber.clone());
                subscriber
            }
        };
        drop(subscribers);
        subscriber.channel(until)
    }

    /// Lets a wait hear its messages. `None` when this very id waits for this semaphore already.
    pub(crate) fn register(&self, keys: &Keys, id: &str) -> Option<Arc<Wait>> {
        lock(&self.hearing.waits).add(&self.servers.clock, keys, id)
    }

    /// Lets a wait hear the messages for `key`; any number of threads may wait for the same.
    pub(crate) fn register_shared(&self, key: &str) -> Arc<Wait> {
        lock(&self.hearing.waits).add_shared(&self.servers.clock, key)
    }

    /// Ends a wait.
    pub(crate) fn unregister(&self, wait: &Arc<Wait>) {
        lock(&self.hearing.waits).remove(wait);
    }

    /// A wait was given up and the server did not confirm it: a grant that still comes for it is released.
    pub(crate) fn give_up(&self, keys: &Keys, id: &str) {
        lock(&self.hearing.waits).give_up(self.servers.clock.now(), keys, id);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.servers.is_own_process() {
            for subscriber in lock(&self.subscribers).values() {
                subscriber.close();
            }
        }
    }
}

impl Hearing {
    /// Hands on what came on a channel.
    pub(crate) fn deliver(&self, channel: &str, heard: &Received) {
        let received = self.servers.clock.moment();
        let mut told = false;
        // Whoever is told ends its wait, and needs the lock for that.
        let waiting = lock(&self.waits).of(&heard.message.id);
        for wait in waiting {
            told |= wait.tell(channel, heard, received);
        }
        if told {
            return;
        }
        if let Some(wait) = lock(&self.waits).take_given_up(heard) {
            self.cleanup.release_later([PendingRelease {
                keys: wait.keys,
                id: heard.message.id.clone(),
                target: Target::Fence(heard.message.fence),
                connection: None,
                until: Some(wait.until),
            }]);
        }
    }

    /// Whoever waits has reason to ask.
    pub(crate) fn call_all(&self) {
        for wait in lock(&self.waits).all() {
            wait.call();
        }
    }
}
