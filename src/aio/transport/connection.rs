//! One multiplexed connection: any number of tasks send calls on it, and the server runs them in the order in which they
//! were sent. If the future of a call is dropped, the call was sent before each later one with `is_behind`, or it is never
//! sent.

use super::queue::Queue;
use crate::clock::machine_now;
use crate::sync::lock;
use crate::transport::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::error::Elapsed;

pub(in crate::aio) struct Connection {
    queue: Queue,
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
        together: usize,
    ) -> Connection {
        let queue = Queue::new(con, together);
        Connection { queue, node, moves, is_resp3, outdated, silent_since: Mutex::default() }
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
        self.queue.con.clone().subscribe(channel).await
    }

    /// Sends commands in one packet. Returns a reply for each, or an error if they do not arrive within `time`. `true`: the
    /// connection still works, and the replies are late. If a call ends without a reply and the server has not answered
    /// any call for `read_timeout`, the server may be gone: then later calls use another connection.
    ///
    /// `is_behind`: it must not overtake an earlier call whose future was dropped.
    pub(super) async fn exchange(
        &self,
        packet: &[u8],
        time: Duration,
        read_timeout: Duration,
        is_behind: bool,
    ) -> Result<Vec<Value>, (RedisError, bool)> {
        self.begin();
        let sending = pin!(self.queue.send(packet, is_behind));
        let answered = tokio::time::timeout(time, sending).await;
        self.end(answered, read_timeout)
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
