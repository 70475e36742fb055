//! One multiplexed connection: any number of tasks send calls on it, and the server runs them in the order in which they
//! were sent. A call whose future was dropped was either sent before every later call, or is never sent.

use crate::clock::machine_now;
use crate::protocol::exchange::{Packet, Reply};
use crate::protocol::resp;
use crate::sync::lock;
use crate::transport::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::error::Elapsed;

pub(in crate::aio) struct Connection {
    con: MultiplexedConnection,
    node: NodeId,
    /// How many times another server had replaced this one when the connection was made.
    pub(super) moves: u64,
    /// Whether the server sends messages on this connection.
    pub(in crate::aio) is_resp3: bool,
    pub(super) outdated: Arc<AtomicBool>,
    /// Since when the server has not answered: the first call after its last reply. Calls that no longer wait count too:
    /// otherwise short calls would use a dead connection forever.
    silent_since: Mutex<Option<Instant>>,
}

/// The time that a call needs before it waits for its reply. It also waits for less than the read timeout by this.
const BEFORE: Duration = Duration::from_millis(10);

impl Connection {
    pub(super) fn new(
        con: MultiplexedConnection,
        node: NodeId,
        moves: u64,
        is_resp3: bool,
        outdated: Arc<AtomicBool>,
    ) -> Connection {
        Connection { con, node, moves, is_resp3, outdated, silent_since: Mutex::default() }
    }

    /// The server of this connection.
    pub(in crate::aio) fn node(&self) -> NodeId {
        self.node
    }

    /// Whether later calls use another connection.
    pub(in crate::aio) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    pub(in crate::aio) fn outdate(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    /// Subscribes to this channel. Its messages go to the listener of the server.
    pub(in crate::aio) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        self.con.clone().subscribe(channel).await
    }

    /// Sends commands in one packet. Returns a reply for each; a reply that does not arrive within `time` is an error.
    /// `true`: the connection still works, and the replies are late. If a call ends without a reply and the server has
    /// not answered any call for `read_timeout`, the server may be gone: then later calls use another connection.
    pub(super) async fn exchange(
        &self,
        packet: &Packet<'_>,
        time: Duration,
        read_timeout: Duration,
    ) -> (Vec<Reply>, bool) {
        let mut pipeline = Pipeline::with_capacity(packet.replies);
        let mut count = 0;
        for command in resp::commands(&packet.bytes) {
            pipeline.add_command(command);
            count += 1;
        }
        self.begin();
        let mut con = self.con.clone();
        let answered = tokio::time::timeout(time, con.send_packed_commands(&pipeline, 0, count)).await;
        match self.end(answered, read_timeout) {
            Ok(replies) => (replies.into_iter().map(Ok).collect(), false),
            Err((error, is_late)) => ((0..packet.replies).map(|_| Err(error.clone())).collect(), is_late),
        }
    }

    /// As `exchange`, for one command.
    pub(super) async fn exchange_one(&self, command: &[u8], time: Duration, read_timeout: Duration) -> (Reply, bool) {
        let command = resp::commands(command).next().unwrap_or_default();
        self.begin();
        let mut con = self.con.clone();
        let answered = tokio::time::timeout(time, con.send_packed_command(&command)).await;
        match self.end(answered, read_timeout) {
            Ok(reply) => (Ok(reply), false),
            Err((error, is_late)) => (Err(error), is_late),
        }
    }

    /// A call is about to be sent.
    fn begin(&self) {
        lock(&self.silent_since).get_or_insert_with(machine_now);
    }

    /// The outcome of a call. `true`: the connection still works, and the replies are late.
    fn end<T>(
        &self,
        answered: Result<RedisResult<T>, Elapsed>,
        read_timeout: Duration,
    ) -> Result<T, (RedisError, bool)> {
        match answered {
            Ok(Ok(replies)) => {
                *lock(&self.silent_since) = None;
                Ok(replies)
            }
            Ok(Err(error)) => {
                self.outdate();
                Err((error, false))
            }
            Err(_) => {
                let since = *lock(&self.silent_since).get_or_insert_with(machine_now);
                if machine_now().saturating_duration_since(since) + BEFORE >= read_timeout {
                    self.outdate();
                }
                Err((std::io::Error::from(ErrorKind::TimedOut).into(), true))
            }
        }
    }
}
