//! One multiplexed connection: any number of tasks send calls on it, and the server runs them in the order in which they
//! were sent. A call whose future was dropped was either sent before every later call, or is never sent.

use crate::clock::machine_now;
use crate::protocol::exchange::{Packet, Reply};
use crate::protocol::resp;
use crate::sync::lock;
use crate::transport::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(in crate::aio) struct Connection {
    con: MultiplexedConnection,
    node: NodeId,
    /// How many times another server had replaced this one when the connection was made.
    pub(super) moves: u64,
    /// Whether the server sends messages on this connection.
    pub(in crate::aio) is_resp3: bool,
    pub(super) outdated: Arc<AtomicBool>,
    calls: Mutex<Calls>,
}

/// The calls in progress.
#[derive(Default)]
struct Calls {
    count: usize,
    /// Since when the server has not answered: the first call after its last reply. Calls that no longer wait count too:
    /// otherwise short calls would use a dead connection forever.
    silent_since: Option<Instant>,
}

/// The time that a call needs before it waits for its reply. It also waits for less than the read timeout by this.
const BEFORE: Duration = Duration::from_millis(10);

/// A call in progress, until this is dropped.
struct Call<'a>(&'a Connection);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        lock(&self.0.calls).count -= 1;
    }
}

impl Connection {
    pub(super) fn new(
        con: MultiplexedConnection,
        node: NodeId,
        moves: u64,
        is_resp3: bool,
        outdated: Arc<AtomicBool>,
    ) -> Connection {
        Connection { con, node, moves, is_resp3, outdated, calls: Mutex::default() }
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
        let commands = resp::commands(&packet.bytes);
        let call = self.begin();
        let answered = tokio::time::timeout(time, self.send(commands)).await;
        let error = match answered {
            Ok(Ok(replies)) => {
                self.answered();
                return (replies.into_iter().map(Ok).collect(), false);
            }
            Ok(Err(error)) => {
                self.outdate();
                (error, false)
            }
            Err(_) => {
                let silent_since = lock(&self.calls).silent_since;
                let silence = silent_since.map(|since| machine_now().saturating_duration_since(since));
                if silence.is_some_and(|silence| silence + BEFORE >= read_timeout) {
                    self.outdate();
                }
                (std::io::Error::from(ErrorKind::TimedOut).into(), true)
            }
        };
        drop(call);
        let (error, is_late) = error;
        ((0..packet.replies).map(|_| Err(error.clone())).collect(), is_late)
    }

    async fn send(&self, mut commands: Vec<Cmd>) -> RedisResult<Vec<Value>> {
        let mut con = self.con.clone();
        if let [command] = commands.as_slice() {
            return Ok(vec![con.send_packed_command(command).await?]);
        }
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands.drain(..) {
            pipeline.add_command(command);
        }
        con.send_packed_commands(&pipeline, 0, count).await
    }

    fn begin(&self) -> Call<'_> {
        let mut calls = lock(&self.calls);
        calls.count += 1;
        calls.silent_since.get_or_insert_with(machine_now);
        Call(self)
    }

    fn answered(&self) {
        let mut calls = lock(&self.calls);
        calls.silent_since = (calls.count > 1).then(machine_now);
    }
}
