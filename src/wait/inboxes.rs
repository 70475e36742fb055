//! The waits of a gate, and the subscriptions that receive their messages: one for each server that has waiters.

use super::registry::Registry;
use super::subscriber::Subscriber;
use crate::error::failure::Failure;
use crate::lease::releases::Releases;
use crate::protocol::id;
use crate::sync::lock;
use crate::transport::NodeId;
use crate::transport::pool::Pool;
use crate::transport::servers::Servers;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(crate) struct Inboxes {
    pub(super) registry: Arc<Registry>,
    prefix: String,
    subscribers: Mutex<BTreeMap<NodeId, Arc<Subscriber>>>,
}

impl Inboxes {
    pub(crate) fn new(servers: Arc<Servers>, releases: Arc<Releases>, prefix: &str) -> Inboxes {
        Inboxes {
            registry: Arc::new(Registry::new(servers, releases)),
            prefix: prefix.to_owned(),
            subscribers: Mutex::default(),
        }
    }

    /// Whether an earlier wait used the server that has the key. Then its subscription exists or is being made.
    pub(super) fn is_opened(&self, key: &str) -> bool {
        lock(&self.subscribers).contains_key(&self.registry.servers.node_of(key))
    }

    /// The subscriber of this server. Creates it if needed, and blocks until it is known whether the subscription
    /// works. `None`: it does not work, and the waiter asks without an inbox. If the user lacks a permission the result
    /// is a failure, since otherwise every wait would be slow without any report.
    pub(super) fn subscriber(
        &self,
        server: &Arc<Pool>,
        until: Option<Instant>,
    ) -> Result<Option<Arc<Subscriber>>, Failure> {
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
        let works = subscriber.works(until)?;
        Ok(works.then_some(subscriber))
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
