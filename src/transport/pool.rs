//! The connections to one server, and the packets that are sent on them.
//!
//! A call that finds a free connection is sent at once. While enough connections are busy, further calls wait in a
//! queue. A thread that gets a connection adds calls from the queue to its packet, and hands their replies back.

mod connections;
mod queue;
mod ready;
mod slot;
#[cfg(all(test, feature = "cluster"))]
mod tests;

use super::connection::{PendingConnection, PooledConnection, State};
use super::connector::Connector;
use super::{NodeId, Timeouts};
use crate::clock::Clock;
use crate::clock::machine_now;
use crate::counters::Counts;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::exchange::{Packet, Reply, error_in, missing};
use crate::protocol::lease::Moment;
use crate::protocol::replicas::MinReplicas;
use crate::sync::lock;
use crate::trace;
use connections::Connections;
use queue::{Progress, Queued};
use redis::{Cmd, Connection, ConnectionAddr};
use slot::Slot;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server that answers within this time is near. If it is farther away, a call loses more time by waiting for a
/// shared packet than the packet saves.
const AT_ONCE: Duration = Duration::from_millis(2);

/// Options for sending a packet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sending {
    /// The deadline of the caller; `None`: the read timeout applies.
    pub(crate) until: Option<Instant>,
    /// Ahead of all other calls that wait for a connection.
    pub(crate) priority: bool,
    /// Not in one packet with the calls of other threads.
    pub(crate) alone: bool,
    /// Replicas that must confirm the calls. The connection is blocked while it waits for them, so these calls are sent
    /// alone.
    pub(crate) replicas: Option<MinReplicas>,
}

impl Sending {
    fn is_alone(&self) -> bool {
        self.alone || self.replicas.is_some()
    }
}

/// The replies to a packet.
pub(crate) struct Response {
    pub(crate) replies: Vec<Reply>,
    /// The moment before it was sent.
    pub(crate) sent: Moment,
    /// The age of the connection.
    pub(crate) generation: u64,
    /// The connection, if replies did not arrive in time.
    pub(crate) pending: Option<PendingConnection>,
}

/// The options that all pools of a gate share.
#[derive(Clone)]
pub(crate) struct PoolOptions {
    pub(crate) clock: Clock,
    pub(crate) counts: Arc<Counts>,
    pub(crate) timeouts: Timeouts,
    /// The maximum number of connections of one pool.
    pub(crate) most: usize,
}

/// The connections to one server.
pub(crate) struct Pool {
    pub(crate) options: PoolOptions,
    node: NodeId,
    connector: Connector,
    connections: Mutex<Connections>,
    /// Counts the pending connections.
    pending: Arc<()>,
    retired: AtomicBool,
    checked: AtomicBool,
}

impl Pool {
    /// A pool of connections to this server. Opens none yet.
    pub(crate) fn new(options: PoolOptions, node: NodeId, connector: Connector) -> Pool {
        Pool {
            options,
            node,
            connector,
            connections: Mutex::default(),
            pending: Arc::default(),
            retired: AtomicBool::new(false),
            checked: AtomicBool::new(false),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The server, without user and password.
    pub(crate) fn address(&self) -> String {
        self.connector.address()
    }

    /// Whether the server's settings were requested.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    /// `true` only for the first call.
    pub(crate) fn is_checked_first(&self) -> bool {
        !self.checked.swap(true, Ordering::Relaxed)
    }

    /// Whether this node of a cluster is not a master. Then it needs no connection.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn retire(&self, retired: bool) {
        if !self.retired.swap(retired, Ordering::Relaxed) && retired {
            let mut connections = lock(&self.connections);
            connections.open -= connections.idle.len();
            connections.idle.clear();
        }
    }

    /// Counts a connection or a subscription that was re-established.
    pub(crate) fn count_reconnect(&self, what: &str) {
        trace::reconnected(what, || self.address());
        self.options.counts.reconnects.add_one();
    }

    /// How many times another server replaced this one.
    pub(crate) fn moves(&self) -> u64 {
        self.connector.moves()
    }

    /// A connection outside the pool, for a subscription.
    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        self.connector.connect(&self.options.timeouts, self.options.timeouts.connect)
    }

    /// The addresses at which connecting may have failed; see [`Connector::addresses`].
    pub(crate) fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        self.connector.addresses(within)
    }

    /// How many connections are open now.
    pub(crate) fn open(&self) -> usize {
        lock(&self.connections).open
    }

    /// Stops the use of the idle connections of this age.
    pub(crate) fn outdate(&self, generation: u64) {
        lock(&self.connections).outdate(generation);
    }

    /// Sends one plain command alone. `Err`: it was not sent.
    pub(crate) fn command(&self, command: &Cmd, sending: Sending) -> Result<Reply, Failure> {
        let packet = Packet { bytes: command.get_packed_command().into(), replies: 1 };
        let alone = Sending { alone: true, ..sending };
        let reply = self.send(&packet, alone)?.replies.pop();
        Ok(error_in(reply.unwrap_or_else(missing)))
    }

    /// Sends a packet. If many calls are in progress, it shares a packet with those of other threads. `Err`: it was not
    /// sent.
    pub(crate) fn send(&self, packet: &Packet, sending: Sending) -> Result<Response, Failure> {
        let latest = machine_now() + self.time(sending.until);
        let mut connections = lock(&self.connections);
        let may_go = sending.priority || connections.queue.is_empty();
        if may_go && connections.busy < connections.enough(self.options.most, !sending.is_alone()) {
            connections.busy += 1;
            let slot = connections.slot(self.moves());
            drop(connections);
            return self.send_on(slot, packet, sending, latest);
        }
        let queued = Queued::new(packet, sending, latest);
        match sending.priority {
            true => connections.queue.push_front(queued.clone()),
            false => connections.queue.push_back(queued.clone()),
        }
        drop(connections);
        match self.wait_in_queue(&queued) {
            Progress::Sends(slot) => self.send_on(slot, packet, sending, latest),
            Progress::Answered(response) => Ok(*response),
            Progress::Waits => Err(queue::all_busy(self.options.most)),
        }
    }

    /// Sends a packet on this pending connection, so that it reaches the server after the earlier packets. With `until`
    /// it fails if another thread uses the connection. `None`: the connection is no longer usable.
    pub(crate) fn send_behind(
        &self,
        pending: &PendingConnection,
        packet: &Packet,
        until: Option<Instant>,
    ) -> Option<Result<Response, Failure>> {
        let slot = match until {
            None => Some(lock(&pending.connection)),
            Some(_) => pending.connection.try_lock().ok(),
        };
        let Some(mut slot) = slot else {
            let text = "the connection of the first attempt is busy";
            return Some(Err(Failure::new(FailureKind::TimedOut, text)));
        };
        let mut counted = slot.take()?;
        let latest = machine_now() + self.time(until);
        let sent = self.options.clock.moment();
        let connection = &mut counted.connection;
        let (replies, state) = connection.exchange(&packet.bytes, packet.replies, latest);
        let generation = connection.generation;
        match state {
            State::Ready => self.take_back(counted.connection),
            State::Late => *slot = Some(counted),
            State::Broken => self.outdate(generation),
        }
        Some(Ok(Response { replies, sent, generation, pending: None }))
    }

    /// A pending connection is ready again. It returns to the pool if there is room.
    fn take_back(&self, connection: PooledConnection) {
        let mut connections = lock(&self.connections);
        connections.unreplaced = connections.unreplaced.saturating_sub(1);
        if connections.open < self.options.most && self.keeps(&connection) {
            connections.open += 1;
            connections.idle.push(connection);
        }
    }

    /// Whether a ready connection stays in this pool for its next call.
    fn keeps(&self, connection: &PooledConnection) -> bool {
        !connection.is_lent && !self.is_retired()
    }

    /// The time limit of a call that is sent now.
    fn time(&self, until: Option<Instant>) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(self.options.clock.now());
        until.map_or(self.options.timeouts.read, |until| self.options.timeouts.read.min(left(until)))
    }

    /// Sends a packet on a connection, together with packets of other threads that wait at that time.
    fn send_on(&self, slot: Slot, packet: &Packet, sending: Sending, latest: Instant) -> Result<Response, Failure> {
        let mut connection = match self.ready(slot, latest) {
            Ok(connection) => connection,
            Err(failure) => {
                lock(&self.connections).step_down(self.options.most, self.moves());
                return Err(failure);
            }
        };
        let along = lock(&self.connections).take_along(packet, sending, latest);
        let begun = connection.used; // when it was found to be ready, just now
        let sent = self.options.clock.moment_at(begun);
        let (mut replies, state) = match along.is_empty() {
            true => connection.exchange(&packet.bytes, packet.replies, latest),
            false => {
                // All have the same time limit. Calls without a deadline count from now.
                let latest = match sending.until {
                    Some(_) => along.iter().map(|other| other.latest).fold(latest, Instant::max),
                    None => begun + self.options.timeouts.read,
                };
                let (bytes, count) = queue::combined(packet, &along);
                connection.exchange(&bytes, count, latest)
            }
        };
        let generation = connection.generation;
        let is_near = (!sending.is_alone()).then(|| connection.used - begun < AT_ONCE);
        let pending = self.give_back(connection, state, is_near, along.len());
        let response = |replies| Response { replies, sent, generation, pending: pending.clone() };
        if along.is_empty() {
            return Ok(response(replies));
        }
        let mut rest = replies.split_off(packet.replies.min(replies.len()));
        for other in along {
            let after = rest.split_off(other.packet.replies.min(rest.len()));
            other.set(Progress::Answered(Box::new(response(rest))));
            rest = after;
        }
        Ok(response(replies))
    }

    /// Takes a connection back from a thread. If replies are late, the connection is pending; but the number of pending
    /// connections is limited, in case a server stalls for long.
    fn give_back(
        &self,
        connection: PooledConnection,
        state: State,
        is_near: Option<bool>,
        along: usize,
    ) -> Option<PendingConnection> {
        let mut kept = None;
        let mut connections = lock(&self.connections);
        match state {
            State::Ready if !self.keeps(&connection) => {
                connections.open -= 1;
                kept = Some(connection); // closed, or returned to the user's pool, after the lock is released
            }
            State::Ready => connections.idle.push(connection),
            State::Late => {
                connections.lose();
                kept = Some(connection);
            }
            State::Broken => {
                connections.outdate(connection.generation);
                connections.lose();
            }
        }
        connections.along -= along;
        connections.is_near = is_near.unwrap_or(connections.is_near);
        connections.step_down(self.options.most, self.moves());
        drop(connections);
        let is_late = state == State::Late && Arc::strong_count(&self.pending) <= self.options.most + 1;
        let late = kept.filter(|_| is_late)?;
        Some(PendingConnection::new(self.node, late, &self.pending))
    }
}
