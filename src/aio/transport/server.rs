//! One server and its connections: one for calls and messages, and one for calls that replicas must confirm, which wait
//! there for the replicas.

use super::Sending;
use super::connection::Connection;
use super::connector::{Connector, Push};
use super::queue::TOGETHER;
use crate::clock::{Clock, machine_now};
use crate::counters::Counts;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::exchange::{Packet, Reply, error_in, missing};
use crate::protocol::lease::Moment;
use crate::sync::lock;
use crate::trace;
use crate::transport::{NodeId, Timeouts};
use futures_util::FutureExt;
use redis::{Client, Cmd, ConnectionAddr, PushInfo, PushKind, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Receives messages. Does not block.
pub(in crate::aio) trait Listener: Send + Sync {
    /// A message on this channel.
    fn message(&self, channel: &str, payload: &[u8]);

    /// The connection of this server for messages has ended.
    fn disconnected(&self, node: NodeId);
}

/// The settings that all servers of a gate share.
#[derive(Clone)]
pub(in crate::aio) struct ServerOptions {
    pub(in crate::aio) clock: Clock,
    pub(in crate::aio) counts: Arc<Counts>,
    pub(in crate::aio) timeouts: Timeouts,
    pub(in crate::aio) listener: Arc<dyn Listener>,
}

pub(in crate::aio) struct Server {
    pub(in crate::aio) options: ServerOptions,
    node: NodeId,
    connector: Connector,
    calls: Slot,
    confirmations: Slot,
    /// The server, or a proxy ahead of it, does not know RESP3.
    is_old: AtomicBool,
    is_retired: AtomicBool,
    is_checked: AtomicBool,
}

/// One connection, which is made again when needed.
struct Slot {
    /// How many packets of different callers may be sent together on it.
    together: usize,
    state: Mutex<State>,
    /// Locked by the task that connects. The others use its result.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    /// How many times a task has tried to connect.
    attempts: u64,
    /// The failure of the last attempt.
    failure: Option<Failure>,
}

impl Slot {
    fn new(together: usize) -> Slot {
        Slot { together, state: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }
}

impl State {
    fn usable(&self, moves: u64) -> Option<Arc<Connection>> {
        let current = self.current.as_ref()?;
        (!current.is_outdated() && current.moves == moves).then(|| current.clone())
    }
}

/// The replies to a packet.
pub(super) struct Response {
    pub(super) replies: Vec<Reply>,
    /// The moment before it was sent.
    pub(super) sent: Moment,
    pub(super) connection: Arc<Connection>,
    /// The connection works, but the replies are missing.
    pub(super) is_late: bool,
}

impl Server {
    pub(super) fn new(options: ServerOptions, node: NodeId, connector: Connector) -> Server {
        Server {
            options,
            node,
            connector,
            calls: Slot::new(TOGETHER),
            confirmations: Slot::new(1), // no caller waits for the replicas of another
            is_old: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
        }
    }

    pub(in crate::aio) fn node(&self) -> NodeId {
        self.node
    }

    /// See [`Connector::address`].
    pub(super) fn address(&self) -> String {
        self.connector.address()
    }

    /// Whether this node of a cluster is not a master. Then it needs no connection.
    pub(in crate::aio) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    #[cfg(feature = "cluster")]
    pub(super) fn retire(&self, retired: bool) {
        if !self.is_retired.swap(retired, Ordering::Relaxed) && retired {
            for slot in [&self.calls, &self.confirmations] {
                if let Some(connection) = lock(&slot.state).current.take() {
                    connection.outdate();
                }
            }
            self.options.listener.disconnected(self.node); // waits keep the connection until they know
        }
    }

    /// Whether its settings were read before. Only the first caller gets `false`.
    pub(super) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed) || self.is_checked.swap(true, Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub(super) fn open(&self) -> usize {
        let slots = [&self.calls, &self.confirmations];
        slots.iter().filter(|slot| lock(&slot.state).usable(self.connector.moves()).is_some()).count()
    }

    /// See [`Connector::addresses`].
    pub(super) async fn addresses(&self, within: Duration) -> Vec<ConnectionAddr> {
        self.connector.addresses(within).await
    }

    /// A client for a second connection that only receives messages.
    pub(in crate::aio) async fn client(&self) -> Result<Client, Failure> {
        self.connector.client(self.options.timeouts.connect).await
    }

    /// The connection for calls and messages if it is open now.
    pub(in crate::aio) fn current(&self) -> Option<Arc<Connection>> {
        lock(&self.calls.state).usable(self.connector.moves())
    }

    /// The connection for calls and messages. Connects if needed, until `until` at most.
    pub(in crate::aio) async fn connection(&self, until: Option<Instant>) -> Result<Arc<Connection>, Failure> {
        self.connection_of(&self.calls, until).await
    }

    /// Sends one plain command. `Err`: it was not sent.
    pub(in crate::aio) async fn command(&self, command: &Cmd, until: Option<Instant>) -> Result<Reply, Failure> {
        let packet = Packet { bytes: command.get_packed_command().into(), replies: 1 };
        let sending = Sending { until, ..Sending::default() };
        let mut response = self.send(&packet, sending).await?;
        Ok(error_in(response.replies.pop().unwrap_or_else(missing)))
    }

    /// Sends a packet. `Err`: it was not sent.
    pub(super) async fn send(&self, packet: &Packet<'_>, sending: Sending) -> Result<Response, Failure> {
        let slot = match sending.replicas {
            Some(_) => &self.confirmations,
            None => &self.calls,
        };
        let latest = machine_now() + self.time(sending.until);
        let connection = self.connection_of(slot, sending.until).await?;
        Ok(self.send_on(connection, packet, latest, false).await)
    }

    /// Sends a packet on this connection, so that it reaches the server after the earlier packets.
    pub(super) async fn send_behind(
        &self,
        connection: Arc<Connection>,
        packet: &Packet<'_>,
        until: Option<Instant>,
    ) -> Response {
        let latest = machine_now() + self.time(until);
        self.send_on(connection, packet, latest, true).await
    }

    /// Sends one command on this connection, as almost every call is sent. Also returns the moment before it was sent,
    /// and whether the connection works although the reply is missing.
    pub(super) async fn send_one(
        &self,
        connection: &Connection,
        command: &[u8],
        until: Option<Instant>,
    ) -> (Reply, Moment, bool) {
        let begun = machine_now();
        let (sent, time) = (self.options.clock.moment_at(begun), self.time(until));
        let (reply, is_late) = match connection.exchange(command, time, self.options.timeouts.read, false).await {
            Ok(mut replies) => (replies.pop().map_or_else(missing, Ok), false),
            Err((error, is_late)) => (Err(error), is_late),
        };
        if connection.is_outdated() {
            self.options.listener.disconnected(self.node);
        }
        (error_in(reply), sent, is_late)
    }

    async fn send_on(
        &self,
        connection: Arc<Connection>,
        packet: &Packet<'_>,
        latest: Instant,
        is_behind: bool,
    ) -> Response {
        let begun = machine_now();
        let sent = self.options.clock.moment_at(begun);
        let time = latest.saturating_duration_since(begun);
        let exchanged = connection.exchange(&packet.bytes, time, self.options.timeouts.read, is_behind).await;
        let (replies, is_late) = match exchanged {
            Ok(replies) => (replies.into_iter().map(Ok).collect(), false),
            Err((error, is_late)) => ((0..packet.replies).map(|_| Err(error.clone())).collect(), is_late),
        };
        if connection.is_outdated() {
            self.options.listener.disconnected(self.node);
        }
        Response { replies, sent, connection, is_late }
    }

    /// The time limit of a call that is sent now.
    fn time(&self, until: Option<Instant>) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(self.options.clock.now());
        until.map_or(self.options.timeouts.read, |until| self.options.timeouts.read.min(left(until)))
    }

    async fn connection_of(&self, slot: &Slot, until: Option<Instant>) -> Result<Arc<Connection>, Failure> {
        let attempts = {
            let state = lock(&slot.state);
            if let Some(connection) = state.usable(self.connector.moves()) {
                return Ok(connection);
            }
            state.attempts
        };
        self.connect_or_wait(slot, attempts, until).boxed().await
    }

    /// Connects, or waits while another task does.
    async fn connect_or_wait(
        &self,
        slot: &Slot,
        attempts: u64,
        until: Option<Instant>,
    ) -> Result<Arc<Connection>, Failure> {
        let connect = self.options.timeouts.connect;
        let left = |until: Instant| until.saturating_duration_since(self.options.clock.now());
        let latest = machine_now() + until.map_or(connect, |until| connect.min(left(until)));
        let time = || latest.saturating_duration_since(machine_now());
        let Ok(_connecting) = tokio::time::timeout(time(), slot.connecting.lock()).await else {
            return Err(Failure::new(FailureKind::Unreachable, "no connection in time"));
        };
        {
            let state = lock(&slot.state);
            if let Some(connection) = state.usable(self.connector.moves()) {
                return Ok(connection);
            }
            if let Some(failure) = &state.failure
                && state.attempts > attempts
            {
                return Err(failure.clone()); // of an attempt that ended after this call began
            }
        }
        let made = self.connect(slot.together, time()).await.map(Arc::new);
        let mut state = lock(&slot.state);
        state.attempts += 1;
        state.failure = made.as_ref().err().cloned();
        let is_successor = made.is_ok() && state.current.is_some();
        if let Ok(made) = &made {
            state.current = Some(made.clone());
        }
        drop(state);
        if is_successor {
            self.count_reconnect("a connection was replaced");
        }
        made
    }

    /// Counts a connection that was made again.
    fn count_reconnect(&self, what: &str) {
        trace::reconnected(what, || self.address());
        self.options.counts.reconnects.add_one();
    }

    /// Connects within `within`, with RESP3 if the server knows it.
    async fn connect(&self, together: usize, within: Duration) -> Result<Connection, Failure> {
        let begun = machine_now();
        let moves = self.connector.moves();
        let outdated = Arc::new(AtomicBool::new(false));
        let connection = |con, is_resp3| Connection::new(con, self.node, moves, is_resp3, outdated.clone(), together);
        if !self.is_old.load(Ordering::Relaxed) {
            let push = self.push(outdated.clone());
            let failure = match self.connector.connect(Some(push), within).await {
                Ok(con) => return Ok(connection(con, true)),
                Err(failure) => failure,
            };
            use FailureKind::{Authentication, NotReady, NotRedis, Tls, Unreachable};
            if matches!(failure.kind(), Authentication | NotReady | NotRedis | Tls | Unreachable) {
                return Err(failure);
            }
        }
        let left = within.saturating_sub(machine_now().saturating_duration_since(begun));
        let con = self.connector.connect(None, left).await?;
        self.is_old.store(true, Ordering::Relaxed);
        Ok(connection(con, false))
    }

    /// The receiver of messages on a new connection.
    fn push(&self, outdated: Arc<AtomicBool>) -> Push {
        let (listener, node) = (self.options.listener.clone(), self.node);
        Arc::new(move |push: PushInfo| {
            match (push.kind, push.data.as_slice()) {
                (PushKind::Message, [Value::BulkString(channel), Value::BulkString(payload)]) => {
                    if let Ok(channel) = std::str::from_utf8(channel) {
                        listener.message(channel, payload);
                    }
                }
                (PushKind::Disconnection, _) => {
                    outdated.store(true, Ordering::Release);
                    listener.disconnected(node);
                }
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        })
    }
}
