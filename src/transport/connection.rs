//! One connection of a pool: sends packets, receives replies, and keeps count of late replies.

use super::NodeId;
use crate::clock::machine_now;
use crate::protocol::exchange::Reply;
use crate::protocol::releases::Ordered;
use redis::{Connection, RedisError};
use std::ops::DerefMut;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A connection of the gate, or one that the user's pool lent.
pub(super) type Inner = Box<dyn DerefMut<Target = Connection> + Send>;

pub(super) struct PooledConnection {
    con: Inner,
    /// The connection belongs to the user's pool and must return there.
    pub(super) is_lent: bool,
    read_timeout: Duration,
    /// The age of the connection, see [`Pool`](super::pool::Pool).
    pub(super) generation: u64,
    /// When it last received a reply, was made, or was found to be ready.
    pub(super) used: Instant,
    /// The number of late replies that no call waits for, except the one that `redis` skips itself.
    unread: usize,
}

/// The state of a connection after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// It works, but replies are still missing.
    Late,
    Broken,
}

impl PooledConnection {
    pub(super) fn new(con: Inner, is_lent: bool, read_timeout: Duration, generation: u64) -> PooledConnection {
        PooledConnection { con, is_lent, read_timeout, generation, used: machine_now(), unread: 0 }
    }

    /// Sends commands in one packet and reads their `count` replies until `latest`, on this machine's clock. A reply
    /// that does not arrive is an error. Late replies to earlier packets are skipped.
    pub(super) fn exchange(&mut self, packet: &[u8], count: usize, latest: Instant) -> (Vec<Reply>, State) {
        let mut replies = Vec::with_capacity(count);
        let late = self.unread;
        self.unread += count;
        let failed = match self.con.send_packed_command(packet) {
            Ok(()) => self.read(late, &mut replies, latest).err(),
            Err(error) => Some((error, State::Broken)),
        };
        self.used = machine_now();
        match failed {
            None => (replies, State::Ready),
            Some((error, state)) => {
                replies.resize_with(count, || Err(error.clone()));
                (replies, state)
            }
        }
    }

    fn read(&mut self, mut late: usize, replies: &mut Vec<Reply>, latest: Instant) -> Result<(), (RedisError, State)> {
        while self.unread > 0 {
            let left = latest.saturating_duration_since(machine_now());
            self.bound(left).map_err(|error| (error, State::Broken))?;
            let reply = self.con.recv_response();
            self.unread -= 1; // if this one is late, `redis` skips it later
            match reply {
                Ok(_) if late > 0 => late -= 1,
                Ok(reply) => replies.push(Ok(reply)),
                Err(error) if error.is_timeout() => return Err((error, State::Late)),
                Err(error) => return Err((error, State::Broken)),
            }
        }
        Ok(())
    }

    /// Limits the time for the next reply. A timeout slightly above `left` is not changed, since each change is a
    /// system call.
    fn bound(&mut self, left: Duration) -> Result<(), RedisError> {
        let left = left.max(Duration::from_millis(1)); // zero would mean no timeout
        let more = self.read_timeout.checked_sub(left);
        if more.is_none_or(|more| more > self.read_timeout / 64) {
            self.con.set_read_timeout(Some(left))?;
            self.read_timeout = left;
        }
        Ok(())
    }
}

/// Removes the gate's timeouts and the replies to its calls before a lent connection returns to its owner.
#[cfg(feature = "r2d2")]
impl Drop for PooledConnection {
    fn drop(&mut self) {
        if !self.is_lent {
            return;
        }
        while self.unread > 0 && redis::ConnectionLike::is_open(&**self.con) {
            let _ = self.bound(Duration::ZERO);
            let _ = self.con.recv_response(); // if it arrives later, `redis` skips it later
            self.unread -= 1;
        }
        let _ = self.con.set_read_timeout(None);
        let _ = self.con.set_write_timeout(None);
    }
}

/// A connection on which calls were not answered in time. A release on this connection reaches the server after these
/// calls. It has left its pool. All threads whose calls were in the packet share it.
#[derive(Clone)]
pub(crate) struct PendingConnection {
    pub(super) node: NodeId,
    /// `None` after it broke, or after it answered a later packet and so everything before.
    pub(super) connection: Arc<Mutex<Option<Counted>>>,
}

/// A pending connection, counted for as long as it exists.
pub(super) struct Counted {
    pub(super) connection: PooledConnection,
    pub(super) _count: Arc<()>,
}

impl PendingConnection {
    pub(super) fn new(node: NodeId, connection: PooledConnection, count: &Arc<()>) -> PendingConnection {
        PendingConnection {
            node,
            connection: Arc::new(Mutex::new(Some(Counted { connection, _count: count.clone() }))),
        }
    }

    /// The server of this connection.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }
}

impl Ordered for PendingConnection {
    /// A release is sent alone, as soon as no other thread uses the connection.
    fn is_shared_with(&self, _: &PendingConnection) -> bool {
        false
    }
}
