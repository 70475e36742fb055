//! The servers of a gate: one, or the nodes of a cluster. Every call of a script passes through this module.

use super::address::Address;
use super::cluster::Cluster;
use super::connection::{Connection, Receiver};
use super::connector::Connector;
use super::counters::Counts;
use super::ending::{late, no_thread};
use super::failovers;
use super::mode::{MayBlock, Mode};
use super::sentinels::Sentinels;
use super::server::{Purpose, Server, ServerOptions, Timeouts};
use super::worker::Worker;
use crate::clock::{Clock, machine_now};
use crate::foreign::Foreign;
use luagate_core::call::Packed;
use luagate_core::exchange::{Exchange, MinReplicas, Packet, error_in, is_no_script, missing};
use luagate_core::failure::{CallError, Failure};
use luagate_core::kind::FailureKind;
use luagate_core::lease::{Moment, Sent};
use luagate_core::reply::error_of;
use luagate_core::resp;
use luagate_core::routing::route::{Route, RouteStep};
use luagate_core::routing::slots::{self, Learning, LearningStep};
use luagate_core::routing::{NodeId, by_node, in_order};
use luagate_core::value::Value;
use redis::ConnectionAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Servers {
    pub(crate) clock: Clock,
    pub(crate) counts: Arc<Counts>,
    pub(crate) foreign: Foreign,
    topology: Topology,
    pub(crate) timeouts: Timeouts,
    /// The gate's own thread.
    pub(crate) worker: Worker,
}

enum Topology {
    One(Arc<Server>),
    Cluster(Box<Cluster>),
}

/// How a call is sent.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    /// The deadline of the caller; `None`: the read timeout applies.
    pub(crate) until: Option<Instant>,
    /// Replicas that must confirm the calls.
    pub(crate) replicas: Option<MinReplicas>,
    /// Until this time, a call that the server refuses only for now is sent again. `None`: its caller does
    /// that.
    pub(crate) repeats_until: Option<Instant>,
    pub(crate) mode: Mode,
}

impl Sending {
    pub(crate) fn of(mode: Mode) -> Sending {
        Sending { until: None, replicas: None, repeats_until: None, mode }
    }
}

/// The outcome of a call.
pub(crate) type CallOutcome = Result<Answered, Unanswered>;

/// A call that was answered.
pub(crate) struct Answered {
    reply: Value,
    /// The moment before the answered call was sent, and whether an earlier attempt was not answered.
    pub(crate) sent: Sent,
    /// The reason why the call does not count yet: too few replicas confirmed it.
    pub(crate) unconfirmed: Option<Failure>,
    connection: Arc<Connection>,
}

impl Answered {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Reads the answer. If the reply breaks the contract, its connection is not used any more.
    pub(crate) fn read<T>(self, read: impl FnOnce(Value) -> Result<T, CallError>) -> Result<T, Unanswered> {
        read(self.reply).map_err(|error| {
            self.connection.close();
            error.into()
        })
    }

    /// As `read`. Also returns when the answered call was sent.
    pub(crate) fn read_at<T>(
        self,
        read: impl FnOnce(Value) -> Result<T, CallError>,
    ) -> Result<(T, Sent), Unanswered> {
        let sent = self.sent;
        Ok((self.read(read)?, sent))
    }
}

/// A call without a valid answer.
#[must_use = "a call that may have run has to be undone"]
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// The connection on which the call was sent, if the server may still run it. Later calls there run after
    /// it.
    pub(crate) connection: Option<Arc<Connection>>,
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Unanswered {
        Unanswered { error, connection: None }
    }
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Unanswered {
        CallError::Failed(failure).into()
    }
}

/// A call that depends on the server and the connection on which it is sent.
pub(crate) trait Make: Send {
    /// Prepares the call for the server that will receive it.
    fn prepare(
        &mut self,
        server: &Arc<Server>,
        mode: Mode,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = (server, mode);
        async { Ok(()) }
    }

    /// The call is about to be sent on this connection.
    fn sends_on(&mut self, connection: &Arc<Connection>) {
        let _ = connection;
    }

    fn call(&self) -> &Packed;
}

/// A call that is the same for each server.
impl Make for &Packed {
    fn call(&self) -> &Packed {
        self
    }
}

impl Servers {
    /// The servers at this address. Does not connect yet.
    pub(crate) fn new(
        address: Address,
        worker: &Worker,
        timeouts: Timeouts,
        prefix: &str,
        receiver: Arc<dyn Receiver>,
    ) -> Servers {
        let counts = Arc::new(Counts::default());
        let (clock, foreign, worker) = (worker.clock().clone(), worker.foreign().clone(), worker.clone());
        let options = ServerOptions {
            foreign: foreign.clone(),
            clock: clock.clone(),
            worker: worker.clone(),
            counts: counts.clone(),
            timeouts,
            receiver,
            prefix: prefix.into(),
        };
        let topology = match address {
            Address::One(endpoint) => {
                Topology::One(Server::new(options, 0, Connector::Address(Box::new(endpoint))))
            }
            Address::Sentinel { sentinels, ask, master, like } => {
                let sentinels = sentinels.into_iter().map(|(host, port)| ask.moved_to(host, port)).collect();
                let sentinels = Arc::new(Sentinels::new(sentinels, master, like, &foreign));
                let server = Server::new(options, 0, Connector::Sentinels(sentinels.clone()));
                failovers::follow(sentinels, &server);
                Topology::One(server)
            }
            Address::Cluster { nodes, like } => {
                Topology::Cluster(Box::new(Cluster::new(options, nodes, like)))
            }
        };
        Servers { clock, counts, foreign, topology, timeouts, worker }
    }

    /// Whether this process opened the gate. `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.foreign.is_own_process()
    }

    /// Fails in a forked child, which must not use a gate of its parent. A lock in it may be held by a thread
    /// that does not exist in the child.
    pub(crate) fn check_process(&self) -> Result<(), CallError> {
        if self.is_own_process() {
            Ok(())
        } else {
            let failure = Failure::new(FailureKind::Forked, "the gate cannot be used in a forked process");
            Err(CallError::Failed(failure))
        }
    }

    /// Fails if the gate's own thread cannot be started. Without it a lease is not renewed.
    pub(crate) fn check_worker(&self) -> Result<(), CallError> {
        if self.worker.can_run() { Ok(()) } else { Err(CallError::Failed(no_thread())) }
    }

    /// Connects once, so that a wrong address is reported immediately.
    pub(crate) async fn check(&self, mode: Mode) -> Result<(), CallError> {
        match &self.topology {
            Topology::One(server) => {
                server.open(mode).await.map_err(CallError::Failed)?;
                let latest = self.latest(None, self.timeouts.read);
                let reply = server.command(resp::command(&[b"PING"]), latest, mode).await?;
                error_in(Ok(reply)).map_err(error_of)?;
                Ok(())
            }
            Topology::Cluster(cluster) => {
                let learnt = self.learn_slots(cluster, mode).await;
                if learnt.is_err() && reaches_one(cluster.nodes(), mode).await {
                    return self.learn_slots(cluster, mode).await;
                }
                learnt
            }
        }
    }

    /// The servers that store keys.
    pub(crate) async fn masters(&self, mode: Mode) -> Result<Vec<Arc<Server>>, CallError> {
        self.check_process()?;
        if let Topology::Cluster(cluster) = &self.topology {
            self.learn_slots(cluster, mode).await?;
        }
        Ok(self.nodes().into_iter().filter(|server| !server.is_retired()).collect())
    }

    /// The addresses at which connecting may have failed. Takes `within` at most if it must ask for them.
    pub(crate) fn addresses(&self, within: Duration, may: MayBlock) -> Vec<ConnectionAddr> {
        self.nodes().iter().flat_map(|node| node.connector.addresses(within, may)).collect()
    }

    fn nodes(&self) -> Vec<Arc<Server>> {
        match &self.topology {
            Topology::One(server) => vec![server.clone()],
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The server that has the key, as far as it is known without asking. Used to keep the work for each
    /// server separate, so that a slow server does not delay calls to others.
    pub(crate) fn node_of(&self, key: &[u8]) -> NodeId {
        match &self.topology {
            Topology::One(_) => 0,
            Topology::Cluster(cluster) => cluster.look(|slots| slots.node_of(key)),
        }
    }

    /// The server that has the key, as far as it is known without asking.
    pub(crate) fn known(&self, key: &[u8]) -> Option<Arc<Server>> {
        self.server(self.node_of(key)).ok()
    }

    /// The number of the connection to this server for calls like these, if it works: each new one has
    /// another. Sends nothing.
    pub(crate) fn look(&self, node: NodeId, replicas: Option<MinReplicas>) -> Option<u64> {
        self.server(node).ok()?.look(purpose_of(replicas))
    }

    /// The connection for calls to that server, if it works.
    pub(crate) fn connected(&self, key: &[u8]) -> Option<Arc<Connection>> {
        self.known(key)?.current(Purpose::Calls).map(|(connection, _)| connection)
    }

    /// The time on this machine's clock until which a caller waits, and at most for this long.
    pub(crate) fn latest(&self, until: Option<Instant>, most: Duration) -> Instant {
        let left = until.map(|until| until.saturating_duration_since(self.clock.now()));
        machine_now() + left.map_or(most, |left| left.min(most))
    }

    /// Sends a call to the server that has its key.
    pub(crate) async fn send(&self, call: &Packed, sending: Sending) -> CallOutcome {
        self.send_as(call.key(), sending, &mut { call }).await
    }

    /// Sends the call that `make` returns for the server that has the key. The caller has checked the
    /// process.
    pub(crate) async fn send_as<M: Make>(&self, key: &[u8], sending: Sending, make: &mut M) -> CallOutcome {
        self.follow(self.route(key, sending), sending, make).await
    }

    /// How a call is sent for which no other part of the gate repeats it: it is sent again for the read
    /// timeout, if the server refuses it only for now.
    pub(crate) fn patiently(&self, mode: Mode) -> Sending {
        Sending { repeats_until: Some(self.clock.now() + self.timeouts.read), ..Sending::of(mode) }
    }

    fn route(&self, key: &[u8], sending: Sending) -> Route {
        let route = match self.topology {
            Topology::One(_) => Route::of_one(),
            Topology::Cluster(_) => {
                Route::of_cluster(key, sending.until, self.clock.now() + self.timeouts.read)
            }
        };
        route.begun(self.clock.moment()).repeated_until(sending.repeats_until)
    }

    fn next_step(&self, route: &mut Route) -> RouteStep {
        let now = self.clock.now();
        match &self.topology {
            Topology::One(_) => route.next(None, now),
            Topology::Cluster(cluster) => cluster.look(|slots| route.next(Some(slots), now)),
        }
    }

    fn take_unanswered(&self, route: &mut Route, error: CallError) {
        let now = self.clock.now();
        match &self.topology {
            Topology::One(_) => route.unanswered(None, error, now),
            Topology::Cluster(cluster) => cluster.change(|slots| route.unanswered(Some(slots), error, now)),
        }
    }

    fn server(&self, node: NodeId) -> Result<Arc<Server>, Failure> {
        let server = match &self.topology {
            Topology::One(server) => Some(server.clone()),
            Topology::Cluster(cluster) => cluster.server(node),
        };
        server.ok_or_else(|| Failure::new(FailureKind::Other, "the node of a redirect is unknown"))
    }

    /// Sends a call, and again until it has an outcome: on another connection, or to another node.
    async fn follow<M: Make>(&self, mut route: Route, sending: Sending, make: &mut M) -> CallOutcome {
        let mut connection = None;
        loop {
            match self.next_step(&mut route) {
                RouteStep::Failed(error) => return Err(Unanswered { connection, ..error.into() }),
                RouteStep::Pause(pause) => self.pause(pause, sending.mode).await,
                RouteStep::Learn { learning, waits } => {
                    route.learned(self.learn(learning, waits, sending).await)
                }
                RouteStep::Send { node, asking } => {
                    let server = self.server(node).map_err(|failure| route.failed(failure))?;
                    match self.attempt(&server, asking, sending, make).await {
                        Ok(mut answered) => {
                            answered.sent.repeated = route.repeated(|| self.clock.moment());
                            return Ok(answered);
                        }
                        Err(unanswered) => {
                            connection = unanswered.connection;
                            self.take_unanswered(&mut route, unanswered.error);
                        }
                    }
                }
            }
        }
    }

    async fn pause(&self, pause: Duration, mode: Mode) {
        match mode {
            Mode::Blocking(_) => std::thread::sleep(pause),
            Mode::Async | Mode::Worker => self.worker.sleep(self.clock.now() + pause, mode).await,
        }
    }

    /// Asks for the slots of the cluster. This detects a wrong address.
    async fn learn_slots(&self, cluster: &Cluster, mode: Mode) -> Result<(), CallError> {
        let learning = cluster.look(|slots| slots.learning(None, None));
        self.learn(learning, true, Sending::of(mode)).await.map_err(CallError::Failed)
    }

    /// Asks for the slots. If another caller asks already: waits for it first, or does nothing.
    async fn learn(&self, mut learning: Learning, waits: bool, sending: Sending) -> Result<(), Failure> {
        let Topology::Cluster(cluster) = &self.topology else {
            return Ok(());
        };
        let Sending { until, mode, .. } = sending;
        let latest = self.latest(until, self.timeouts.read);
        let turn = self.worker.limited(until, mode, cluster.take_turn(waits, latest, mode)).await.flatten();
        let Some(_turn) = turn else {
            return if waits {
                Err(Failure::new(FailureKind::TimedOut, "another call still asks for the slots"))
            } else {
                Ok(())
            };
        };
        loop {
            let (node, until) = match cluster.look(|slots| learning.next(slots, self.clock.now())) {
                LearningStep::Over(result) => return result,
                LearningStep::Ask { node, until } => (node, until),
            };
            let reply = self.ask_for_slots(node, until, mode).await;
            cluster.change(|slots| learning.answered(slots, node, reply, self.clock.now()));
        }
    }

    async fn ask_for_slots(&self, node: NodeId, until: Instant, mode: Mode) -> Result<Value, Failure> {
        let server = self.server(node)?;
        let (command, latest) =
            (resp::command(&slots::COMMAND), self.latest(Some(until), self.timeouts.read));
        let asking = server.command(command, latest, mode);
        let reply = self.worker.limited(Some(until), mode, asking).await.ok_or_else(late)?;
        error_in(Ok(reply.map_err(CallError::into_failure)?))
    }

    /// Sends a call to a server once, and again if the server does not know the script. Usually this takes
    /// one packet.
    async fn attempt<M: Make>(
        &self,
        server: &Arc<Server>,
        asking: bool,
        sending: Sending,
        make: &mut M,
    ) -> CallOutcome {
        make.prepare(server, sending.mode).await?;
        let mut is_first = true;
        loop {
            let connection = self.connection(server, sending).await?;
            make.sends_on(&connection);
            let attempt = self.attempt_on(&connection, make.call(), asking, sending).await;
            // If the connection ended before the call was sent, it is sent on another one.
            match attempt {
                Err(Unanswered { error: CallError::Failed(failure), .. })
                    if failure.kind() == FailureKind::Disconnected && std::mem::take(&mut is_first) => {}
                attempt => return attempt,
            }
        }
    }

    async fn attempt_on(
        &self,
        connection: &Arc<Connection>,
        call: &Packed,
        asking: bool,
        sending: Sending,
    ) -> CallOutcome {
        let calls = [call];
        let exchange = if asking || sending.replicas.is_some() {
            Exchange::new(&calls).asking(asking)
        } else {
            let sent = self.clock.moment();
            let replies = self.exchange(connection, &Packet::of(call), sending).await;
            let unanswered = |error| Unanswered { error, connection: Some(connection.clone()) };
            let mut replies = replies.map_err(unanswered)?;
            match error_in(replies.pop().map_or_else(missing, Ok)) {
                Err(error) if is_no_script(&error) => Exchange::with_text(&calls),
                reply => {
                    let reply = reply.map_err(error_of);
                    return answered(reply, None, sent, connection);
                }
            }
        };
        let outcomes = self.run(connection, exchange, sending).await;
        outcomes.into_iter().next_back().unwrap_or_else(|| Err(not_sent().into()))
    }

    /// Sends calls in one packet, and again if the server does not know a script. Each has its own outcome.
    async fn run(
        &self,
        connection: &Arc<Connection>,
        mut exchange: Exchange<'_>,
        sending: Sending,
    ) -> Vec<CallOutcome> {
        exchange.last = sending.replicas.as_ref().map(MinReplicas::command);
        let sent = self.clock.moment();
        let mut ended = None;
        while let Some(packet) = exchange.packet()
            && ended.is_none()
        {
            match self.exchange(connection, &packet, sending).await {
                Ok(replies) => exchange.receive(replies.into_iter().map(Ok)),
                Err(error) => ended = Some(error),
            }
        }
        let (outcomes, unconfirmed) = exchange.results(sending.replicas.as_ref(), ended);
        let outcomes =
            outcomes.into_iter().map(|outcome| answered(outcome, unconfirmed.clone(), sent, connection));
        outcomes.collect()
    }

    /// A connection of a server for these calls.
    async fn connection(&self, server: &Arc<Server>, sending: Sending) -> Result<Arc<Connection>, Failure> {
        let Sending { until, replicas, mode, .. } = sending;
        // Without them a task would wait for ever.
        if matches!(mode, Mode::Async) && !(self.foreign.can_wake() && self.worker.can_run()) {
            return Err(no_thread());
        }
        let latest = self.latest(until, self.timeouts.to_connect());
        let connecting = server.connection(purpose_of(replicas), latest, mode);
        let connected = self.worker.limited(until, mode, connecting).await;
        connected.unwrap_or_else(|| Err(Failure::new(FailureKind::Unreachable, "no connection in time")))
    }

    /// Sends a packet, and waits for its replies.
    async fn exchange(
        &self,
        connection: &Arc<Connection>,
        packet: &Packet<'_>,
        sending: Sending,
    ) -> Result<Vec<Value>, CallError> {
        let Sending { until, mode, .. } = sending;
        let latest = self.latest(until, self.timeouts.read);
        let exchange = connection.exchange(&packet.bytes, packet.replies, latest, mode);
        self.worker.limited(until, mode, exchange).await.unwrap_or_else(|| Err(CallError::Unknown(late())))
    }

    /// Sends calls. Those for the same server share a packet; the servers follow one after the other. Each
    /// call has its own outcome.
    pub(crate) async fn send_all(&self, calls: &[Packed], sending: Sending) -> Vec<CallOutcome> {
        if let [call] = calls {
            return vec![self.send(call, sending).await];
        }
        let groups = by_node(calls.iter().map(|call| self.node_of(call.key())));
        let mut outcomes = Vec::with_capacity(calls.len());
        for (node, indexes) in groups {
            let together: Vec<&Packed> = indexes.iter().filter_map(|index| calls.get(*index)).collect();
            let sent = self.send_together(node, &together, sending).await;
            outcomes.extend(indexes.into_iter().zip(sent));
        }
        in_order(outcomes)
    }

    /// Sends calls in one packet that are probably for the same server. A call that must be repeated is sent
    /// separately.
    async fn send_together(&self, node: NodeId, calls: &[&Packed], sending: Sending) -> Vec<CallOutcome> {
        let begun = self.clock.moment();
        let connecting = async { self.connection(&self.server(node)?, sending).await };
        let outcomes = match connecting.await {
            Ok(connection) => self.run(&connection, Exchange::new(calls), sending).await,
            Err(failure) => calls.iter().map(|_| Err(failure.clone().into())).collect(),
        };
        let mut all = Vec::with_capacity(calls.len());
        for (call, outcome) in calls.iter().zip(outcomes) {
            all.push(match outcome {
                Ok(answered) => Ok(answered),
                Err(unanswered) => {
                    let mut route = self.route(call.key(), sending).begun(begun).sent_to(node);
                    self.take_unanswered(&mut route, unanswered.error);
                    self.follow(route, sending, &mut { *call }).await
                }
            });
        }
        all
    }
}

/// Waits for the attempts to connect that are still under way, until one succeeds. Names may be looked up
/// slowly.
async fn reaches_one(nodes: Vec<Arc<Server>>, mode: Mode) -> bool {
    for node in nodes {
        if node.is_connecting() && node.open(mode).await.is_ok() {
            return true;
        }
    }
    false
}

fn purpose_of(replicas: Option<MinReplicas>) -> Purpose {
    if replicas.is_some() { Purpose::Confirmations } else { Purpose::Calls }
}

fn not_sent() -> Failure {
    Failure::new(FailureKind::Other, "the call was not sent")
}

/// A reply of this connection, or none. If the reply breaks the contract, the connection is not used any
/// more.
fn answered(
    reply: Result<Value, CallError>,
    unconfirmed: Option<Failure>,
    sent: Moment,
    connection: &Arc<Connection>,
) -> CallOutcome {
    let connection = connection.clone();
    match reply {
        Ok(reply) => Ok(Answered { reply, sent: Sent { at: sent, repeated: None }, unconfirmed, connection }),
        Err(error) => {
            if error.ends_connection() {
                connection.close();
            }
            Err(Unanswered { error, connection: Some(connection) })
        }
    }
}
