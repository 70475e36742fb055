//! The subscriptions that receive the messages of waits: one for each server that has waiters.

use super::registry::Registry;
use super::subscription::{Listening, subscribe};
use crate::aio::transport::servers::Servers;
use crate::aio::transport::{Connection, Server};
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::id;
use crate::sync::lock;
use crate::transport::NodeId;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(in crate::aio) struct Inboxes {
    pub(in crate::aio) registry: Arc<Registry>,
    prefix: String,
    nodes: Mutex<BTreeMap<NodeId, Arc<Inbox>>>,
}

/// The inbox of a gate at one server.
struct Inbox {
    channel: String,
    state: Mutex<State>,
    /// Locked by the task that subscribes. The others use its result.
    subscribing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The last subscription, with its connection.
    current: Option<(Arc<Connection>, Listening)>,
    /// How many times a task has tried to subscribe.
    attempts: u64,
    /// The failure of the last attempt.
    failure: Option<Failure>,
    /// Since the subscription on this connection, all waits have asked again.
    called: Option<Arc<Connection>>,
}

impl Inbox {
    /// Whether messages arrive while calls use this connection. `None`: not known.
    fn works(&self, connection: &Arc<Connection>) -> Option<bool> {
        let state = lock(&self.state);
        let (of, listening) = state.current.as_ref()?;
        Arc::ptr_eq(of, connection).then_some(matches!(listening, Listening::Up { .. }))
    }
}

impl Inboxes {
    pub(in crate::aio) fn new(registry: Arc<Registry>, prefix: &str) -> Inboxes {
        Inboxes { registry, prefix: prefix.to_owned(), nodes: Mutex::default() }
    }

    /// Whether an earlier wait used this server. Then its subscription exists or is being made.
    pub(super) fn is_opened(&self, node: NodeId) -> bool {
        lock(&self.nodes).contains_key(&node)
    }

    /// The channel for the messages of this server. Subscribes if needed, until `until` at most. `None`: messages do not
    /// arrive, and the waiter asks without an inbox. If the user lacks a permission the result is a failure, since
    /// otherwise every wait would be slow without any report.
    pub(super) async fn channel(
        &self,
        server: &Arc<Server>,
        until: Option<Instant>,
    ) -> Result<Option<String>, Failure> {
        let new = || {
            let channel = id::new_inbox(&self.prefix);
            Arc::new(Inbox { channel, state: Mutex::default(), subscribing: tokio::sync::Mutex::default() })
        };
        let inbox = lock(&self.nodes).entry(server.node()).or_insert_with(new).clone();
        let connection = server.connection(until).await?;
        let works = match inbox.works(&connection) {
            Some(works) => works,
            None => self.subscribe(&inbox, server, &connection, until).boxed().await?,
        };
        Ok(works.then(|| inbox.channel.clone()))
    }

    async fn subscribe(
        &self,
        inbox: &Inbox,
        server: &Arc<Server>,
        connection: &Arc<Connection>,
        until: Option<Instant>,
    ) -> Result<bool, Failure> {
        let clock = &server.options.clock;
        let connect = server.options.timeouts.connect;
        let time = until.map_or(connect, |until| connect.min(until.saturating_duration_since(clock.now())));
        let attempts = lock(&inbox.state).attempts;
        let subscribing = async {
            let _subscribing = inbox.subscribing.lock().await;
            if let Some(works) = inbox.works(connection) {
                return Ok(works);
            }
            {
                let state = lock(&inbox.state);
                if let Some(failure) = &state.failure
                    && state.attempts > attempts
                {
                    return Err(failure.clone()); // of an attempt that ended after this call began
                }
            }
            let listening = subscribe(&self.registry, server, connection, &inbox.channel).await;
            let mut state = lock(&inbox.state);
            state.attempts += 1;
            state.failure = listening.as_ref().err().cloned();
            let listening = listening?;
            let works = matches!(listening, Listening::Up { .. });
            state.current = Some((connection.clone(), listening));
            Ok(works)
        };
        match tokio::time::timeout(time, subscribing).await {
            Ok(Err(failure)) if failure.kind() != FailureKind::Permission => Ok(false),
            Ok(works) => works,
            Err(_) => Ok(false),
        }
    }

    /// The loop of the gate's task: re-establishes subscriptions for those that wait.
    pub(in crate::aio) async fn work(&self, servers: &Servers) {
        let mut subscribing = FuturesUnordered::new();
        loop {
            let ended = {
                let next = || self.registry.next_ended().map_err(|()| None);
                let ended = pin!(self.registry.changed.until(next));
                match subscribing.is_empty() {
                    true => Some(ended.await),
                    false => match select(ended, subscribing.next()).await {
                        Either::Left((ended, _)) => Some(ended),
                        Either::Right(_) => None,
                    },
                }
            };
            match ended {
                Some(None) => return,
                Some(Some(node)) => {
                    if let Some(server) = servers.node(node) {
                        subscribing.push(self.subscribe_again(server));
                    }
                }
                None => {}
            }
        }
    }

    /// Subscribes again for the waits at a server, until it succeeds or no wait needs it. Then each wait asks again, since
    /// messages were missed.
    async fn subscribe_again(&self, server: Arc<Server>) {
        let Some(inbox) = lock(&self.nodes).get(&server.node()).cloned() else {
            return;
        };
        lock(&inbox.state).current.take_if(|(connection, _)| connection.is_outdated()); // closes it
        let mut pause = FIRST_PAUSE;
        while self.registry.has_waits() && !server.is_retired() {
            let subscribed = self.channel(&server, None).await;
            let connection = server.current();
            if connection.as_ref().and_then(|connection| inbox.works(connection)).is_some() {
                let called = std::mem::replace(&mut lock(&inbox.state).called, connection.clone());
                if called.map(|called| Arc::as_ptr(&called)) != connection.map(|connection| Arc::as_ptr(&connection)) {
                    self.registry.call_all();
                }
                return;
            }
            if subscribed.is_err_and(|failure| failure.kind() == FailureKind::Permission) {
                self.registry.call_all(); // each waiter asks and gets the error
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
