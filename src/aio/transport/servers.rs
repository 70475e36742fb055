//! The servers of a gate: one, or the nodes of a cluster. Every call of a script passes through this module.

pub(in crate::aio) use super::route::{Answered, Outcome};

use super::Sending;
use super::connection::Connection;
use super::route::{Route, Unanswered};
use super::server::{Response, Server, ServerOptions};
use super::topology::Topology;
use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::call::{Call, Packed};
use crate::protocol::exchange::{Exchange, Reply, is_no_script};
use crate::protocol::lease::Moment;
use crate::protocol::replicas::MinReplicas;
use crate::protocol::reply::error_of;
use crate::sync::lock;
use crate::trace;
use crate::transport::address::Address;
use crate::transport::eviction::{self, REPORTED_WITHIN, Warning};
use crate::transport::{NodeId, probe};
use futures_util::FutureExt;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(in crate::aio) struct Servers {
    pub(in crate::aio) clock: Clock,
    pub(in crate::aio) counts: Arc<Counts>,
    pid: u32,
    topology: Topology,
    options: ServerOptions,
    warnings: Mutex<Vec<Warning>>,
}

/// Makes the call for the server that will receive it.
pub(in crate::aio) trait Make: Send {
    fn make(&mut self, server: &Arc<Server>) -> impl Future<Output = Result<Cow<'_, Packed>, Failure>> + Send;

    /// The call is about to be sent on this connection.
    fn sends_on(&mut self, connection: &Arc<Connection>) {
        let _ = connection;
    }
}

/// A call that is the same for each server.
struct Same<'a>(&'a Packed);

impl Make for Same<'_> {
    async fn make(&mut self, _: &Arc<Server>) -> Result<Cow<'_, Packed>, Failure> {
        Ok(Cow::Borrowed(self.0))
    }
}

impl Servers {
    /// The servers at this address. Does not connect yet.
    pub(in crate::aio) fn open(address: Address, options: ServerOptions) -> Result<Servers, CallError> {
        Ok(Servers {
            clock: options.clock.clone(),
            counts: options.counts.clone(),
            pid: std::process::id(),
            topology: Topology::new(address, options.clone())?,
            options,
            warnings: Mutex::default(),
        })
    }

    /// Whether this process opened the gate. `false` in a forked child.
    pub(in crate::aio) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Fails in a forked child, which must not use a gate of its parent.
    pub(in crate::aio) fn check_process(&self) -> Result<(), Failure> {
        match self.is_own_process() {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Forked, "the gate cannot be used in a forked process")),
        }
    }

    /// Connects once, so that a wrong address is reported immediately, and reads the server's settings.
    pub(in crate::aio) async fn check(&self) -> Result<(), CallError> {
        let Err(failure) = self.ping().await else {
            return Ok(());
        };
        let error = CallError::Failed(failure);
        if !probe::may_explain(&error) {
            return Err(error);
        }
        let time = probe::time(self.options.timeouts.connect);
        let mut addresses = Vec::new();
        for node in self.topology.nodes() {
            addresses.extend(node.addresses(time).await);
        }
        let cause = error.clone();
        let explained = tokio::task::spawn_blocking(move || probe::explain(&addresses, time, cause)).await;
        Err(explained.unwrap_or(error))
    }

    async fn ping(&self) -> Result<(), Failure> {
        match &self.topology {
            Topology::One(server) => {
                server.command(&redis::cmd("PING"), None).await??;
                self.look_at(server, None).await;
                Ok(())
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.ask_for_slots(None, None).await,
        }
    }

    /// Reads the settings of a server, unless that was done.
    async fn look_at(&self, server: &Server, until: Option<Instant>) {
        let latest = self.clock.now() + REPORTED_WITHIN;
        if until.is_some_and(|until| until < latest) || server.is_checked() {
            return;
        }
        self.ask_for_settings(server, latest).boxed().await;
    }

    async fn ask_for_settings(&self, server: &Server, latest: Instant) {
        if let Ok(Ok(reply)) = server.command(&eviction::command(), Some(latest)).await
            && let Some(warning) = eviction::warning(reply, server.address())
        {
            trace::warned(&warning);
            lock(&self.warnings).push(warning);
        }
    }

    /// The warnings about the servers' settings. Empty in a forked child.
    pub(in crate::aio) fn warnings(&self) -> Vec<Warning> {
        match self.is_own_process() {
            true => lock(&self.warnings).clone(),
            false => Vec::new(),
        }
    }

    /// The maximum time to wait for a reply.
    pub(in crate::aio) fn read_timeout(&self) -> Duration {
        self.options.timeouts.read
    }

    /// The number of open connections; 0 in a forked child.
    pub(in crate::aio) fn open_connections(&self) -> usize {
        match self.is_own_process() {
            true => self.topology.nodes().iter().map(|server| server.open()).sum(),
            false => 0,
        }
    }

    /// The server with this number.
    pub(in crate::aio) fn node(&self, node: NodeId) -> Option<Arc<Server>> {
        self.topology.node(node)
    }

    /// The server that has the key, as far as it is known without asking.
    pub(in crate::aio) fn node_of(&self, key: &str) -> NodeId {
        self.topology.node_of(key.as_bytes())
    }

    /// Sends a call to the server that has its key.
    pub(in crate::aio) async fn send(&self, call: &Packed, sending: Sending) -> Outcome {
        self.send_as(call.key(), sending, &mut Same(call)).await
    }

    /// As `send`, for a caller that has just checked the process: each check is a system call.
    pub(in crate::aio) async fn send_checked(&self, call: &Packed, sending: Sending) -> Outcome {
        self.send_checked_as(call.key(), sending, &mut Same(call)).await
    }

    /// Sends a call and reads its answer. Also returns when it was sent.
    pub(in crate::aio) async fn ask<C: Call>(
        &self,
        call: &C,
        sending: Sending,
    ) -> Result<(C::Answer, Moment), Unanswered> {
        let packed = call.pack();
        let answered = self.send(&packed, sending).await?;
        let sent = answered.sent;
        Ok((answered.read(|reply| call.answer(reply))?, sent))
    }

    /// Sends the call that `make` makes for the server that has the key, and repeats it until it has an outcome.
    pub(in crate::aio) async fn send_as<M: Make>(&self, key: &[u8], sending: Sending, make: &mut M) -> Outcome {
        self.check_process()?;
        self.send_checked_as(key, sending, make).await
    }

    /// As `send_as`, for a caller that has just checked the process.
    pub(in crate::aio) async fn send_checked_as<M: Make>(&self, key: &[u8], sending: Sending, make: &mut M) -> Outcome {
        self.follow(self.route(key, sending.until), sending, make).await
    }

    fn route<'a>(&'a self, key: &'a [u8], until: Option<Instant>) -> Route<'a> {
        Route::new(&self.topology, &self.clock, self.options.timeouts.read, key, until)
    }

    async fn follow<M: Make>(&self, mut route: Route<'_>, sending: Sending, make: &mut M) -> Outcome {
        loop {
            let server = route.server().await?;
            let connection = match sending.replicas {
                // The calls that replicas must confirm have their own connection, which `run` opens.
                Some(_) => Ok(None),
                None => server.connection(sending.until).await.map(Some),
            };
            if let Ok(Some(connection)) = &connection {
                make.sends_on(connection);
            }
            let made = match connection {
                Ok(connection) => make.make(&server).await.map(|call| (connection, call)),
                Err(failure) => Err(failure),
            };
            let outcome = match made {
                Ok((Some(connection), call)) if !route.is_asking() => {
                    run_one(&server, connection, &call, sending.until).await
                }
                Ok((connection, call)) => {
                    let calls = [&*call];
                    let exchange = Exchange::new(&calls).asking(route.is_asking());
                    only(run(&server, connection, exchange, sending).boxed().await)
                }
                Err(failure) => Err(failure.into()),
            };
            if let Some(outcome) = route.next(&server, outcome).await {
                if outcome.is_ok() {
                    self.look_at(&server, sending.until).await; // the answer shows that this server is a master
                }
                return outcome;
            }
        }
    }

    /// Sends calls. Those for the same server share a packet; the servers follow one after the other. Each call has its
    /// own outcome.
    pub(in crate::aio) async fn send_all(&self, calls: &[Packed], sending: Sending) -> Vec<Outcome> {
        if let Err(failure) = self.check_process() {
            return calls.iter().map(|_| Err(failure.clone().into())).collect();
        }
        match calls {
            [call] => vec![self.send(call, sending).await],
            calls => self.send_groups(calls, sending).boxed().await,
        }
    }

    async fn send_groups(&self, calls: &[Packed], sending: Sending) -> Vec<Outcome> {
        let mut groups: BTreeMap<NodeId, (Vec<usize>, Vec<&Packed>)> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            let (indexes, together) = groups.entry(self.topology.node_of(call.key())).or_default();
            indexes.push(index);
            together.push(call);
        }
        let mut outcomes: Vec<(usize, Outcome)> = Vec::with_capacity(calls.len());
        for (indexes, together) in groups.into_values() {
            outcomes.extend(indexes.into_iter().zip(self.send_together(&together, sending).await));
        }
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Sends calls in one packet that are probably for the same server. A call that must be repeated is sent
    /// separately.
    async fn send_together(&self, calls: &[&Packed], sending: Sending) -> Vec<Outcome> {
        let Some(first) = calls.first() else {
            return Vec::new();
        };
        let server = match self.route(first.key(), sending.until).server().await {
            Ok(server) => server,
            Err(Unanswered { error, .. }) => {
                return calls.iter().map(|_| Err(error.clone().into())).collect();
            }
        };
        let outcomes = run(&server, None, Exchange::new(calls), sending).await;
        let mut followed = Vec::with_capacity(outcomes.len());
        for (call, outcome) in calls.iter().zip(outcomes) {
            let mut route = self.route(call.key(), sending.until);
            followed.push(match route.next(&server, outcome).await {
                Some(outcome) => outcome,
                None => self.follow(route, sending, &mut Same(call)).await,
            });
        }
        followed
    }

    /// Sends calls on the connection of an unanswered call, so that they reach the server after that call. If the server
    /// does not answer these calls there either, the next attempt uses another connection: this one may be dead.
    pub(in crate::aio) async fn send_behind(
        &self,
        connection: &Arc<Connection>,
        calls: &[Packed],
        until: Option<Instant>,
    ) -> Vec<Outcome> {
        let sending = Sending { until, ..Sending::default() };
        match self.topology.node(connection.node()) {
            Some(server) => {
                let calls: Vec<&Packed> = calls.iter().collect();
                let mut outcomes = run(&server, Some(connection.clone()), Exchange::new(&calls), sending).await;
                if connection.is_outdated() {
                    outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().err()).for_each(|unanswered| {
                        unanswered.connection = None;
                    });
                }
                outcomes
            }
            None => self.send_all(calls, sending).await,
        }
    }
}

/// Sends one call by its SHA-1, and its script if the server does not know it.
async fn run_one(server: &Server, connection: Arc<Connection>, call: &Packed, until: Option<Instant>) -> Outcome {
    let (reply, sent, is_late) = server.send_one(&connection, call.by_sha1(), until).await;
    if reply.as_ref().is_err_and(is_no_script) {
        let (calls, sending) = ([call], Sending { until, ..Sending::default() });
        return only(run(server, Some(connection), Exchange::of_unknown(&calls), sending).boxed().await);
    }
    let reply = reply.map_err(|error| call.explain(error));
    outcome(reply, &(sent, connection, is_late), None)
}

/// The outcome of a single call.
fn only(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.pop().unwrap_or_else(|| Err(not_sent().into()))
}

/// Sends calls to one server in one packet, and again if the server does not know a script. Each has its own outcome.
/// `connection`: use this one.
async fn run(
    server: &Server,
    connection: Option<Arc<Connection>>,
    mut exchange: Exchange<'_>,
    sending: Sending,
) -> Vec<Outcome> {
    exchange.last = sending.replicas.as_ref().map(MinReplicas::command);
    let (mut first, mut unsent) = (None, None);
    while let Some(packet) = exchange.packet() {
        let response = match &connection {
            Some(connection) => Ok(server.send_behind(connection.clone(), &packet, sending.until).await),
            None => server.send(&packet, sending).await,
        };
        match response {
            Ok(Response { replies, sent, connection, is_late }) => {
                let (_, _, late) = first.get_or_insert((sent, connection, false));
                *late = is_late;
                exchange.receive(replies);
            }
            Err(failure) => {
                unsent = Some(failure);
                break;
            }
        }
    }
    let last = exchange.last_reply.take();
    let unconfirmed = sending.replicas.as_ref().and_then(|replicas| replicas.check(last).err());
    let outcomes = exchange.outcomes().into_iter().map(|reply| match (reply, &first) {
        (Some(reply), Some(first)) => outcome(reply, first, unconfirmed.clone()),
        _ => Err(unsent.clone().unwrap_or_else(not_sent).into()),
    });
    outcomes.collect()
}

fn not_sent() -> Failure {
    Failure::new(FailureKind::Other, "the call was not sent")
}

/// The outcome of a reply to a call that was sent at that moment, on that connection.
fn outcome(
    reply: Reply,
    (sent, connection, is_late): &(Moment, Arc<Connection>, bool),
    unconfirmed: Option<Failure>,
) -> Outcome {
    let error = match reply {
        Ok(reply) => {
            let connection = connection.clone();
            return Ok(Answered { reply, sent: *sent, repeated: false, unconfirmed, connection });
        }
        Err(error) => error_of(error),
    };
    let is_broken = match &error {
        CallError::Failed(failure) => failure.is_broken(),
        CallError::Unknown(_) => !is_late,
        CallError::Invalid(_) => false,
    };
    if is_broken {
        connection.outdate();
    }
    let late = matches!(&error, CallError::Unknown(_)) && *is_late;
    Err(Unanswered { error, connection: late.then(|| connection.clone()) })
}
