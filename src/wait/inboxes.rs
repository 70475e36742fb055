//! The inboxes of a gate: the channels on which its waits receive messages, one for each server.

use super::registry::Registry;
use crate::engine::connection::Connection;
use crate::engine::mode::Mode;
use crate::engine::server::Server;
use crate::engine::servers::Servers;
use crate::engine::subscription::Subscribed;
use crate::engine::worker::Worker;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::routing::NodeId;
use crate::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Inboxes {
    pub(super) registry: Arc<Registry>,
    servers: Arc<Servers>,
    worker: Worker,
    /// The servers to which the gate tries to subscribe again.
    retried: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Inboxes {
    pub(crate) fn new(registry: Arc<Registry>, servers: Arc<Servers>, worker: Worker) -> Inboxes {
        Inboxes { registry, servers, worker, retried: Arc::default() }
    }

    /// Whether an earlier wait used the server that has the key. Then its subscription exists or is being made.
    pub(super) fn is_opened(&self, key: &str) -> bool {
        self.servers.known(key.as_bytes()).is_some_and(|server| server.is_subscribed())
    }

    /// The connection for the messages of this server. Subscribes if needed, until `until` at most. `None`: messages do not
    /// arrive, and the waiter asks without an inbox. If the user lacks a permission the result is a failure, since
    /// otherwise every wait would be slow without any report.
    pub(super) async fn connection(
        &self,
        server: &Arc<Server>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        let latest = self.servers.latest(until, server.options.timeouts.connect);
        let subscribing = server.subscription(latest, mode);
        match self.servers.limited(until, mode, subscribing).await {
            Some(Ok(subscribed)) => Ok(subscribed.connection().cloned()),
            Some(Err(failure)) if failure.kind() == FailureKind::Permission => Err(failure),
            Some(Err(_)) | None => {
                self.retry(server);
                Ok(None)
            }
        }
    }

    /// Tries to subscribe again in the background. Then each wait asks again, since it has no inbox yet.
    fn retry(&self, server: &Arc<Server>) {
        let node = server.node();
        if !lock(&self.retried).insert(node) {
            return;
        }
        let (server, registry, retried) = (Arc::downgrade(server), self.registry.clone(), self.retried.clone());
        let worker = self.worker.handle();
        self.worker.spawn(async move {
            let mut pause = FIRST_PAUSE;
            while registry.has_waits()
                && let Some(server) = server.upgrade()
                && !server.is_retired()
            {
                let clock = &server.options.clock;
                worker.sleep(clock.now() + pause).await;
                let latest = crate::clock::machine_now() + server.options.timeouts.connect;
                match server.subscription(latest, Mode::Async).await {
                    Err(failure) if failure.kind() != FailureKind::Permission => {}
                    Ok(Subscribed::Useless) => break,
                    _ => {
                        registry.call_all(); // a waiter without the permission gets the error
                        break;
                    }
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            lock(&retried).remove(&node);
        });
    }
}
