//! Provides a connection that is ready for a packet: an idle one that works, or a new one.

use super::Pool;
use super::slot::Slot;
use crate::clock::machine_now;
use crate::error::failure::Failure;
use crate::sync::lock;
use crate::transport::connection::{PooledConnection, State};
use std::time::{Duration, Instant};

/// A connection that was idle for this long is tested with `PING` before it is used for a call. This is longer than the
/// pauses of the waiters that ask most often.
const IDLE: Duration = Duration::from_millis(1_500);

impl Pool {
    /// A connection that answers, or a new one, by `latest` on this machine's clock.
    pub(super) fn ready(&self, mut slot: Slot, latest: Instant) -> Result<PooledConnection, Failure> {
        loop {
            let generation = match slot {
                Slot::Idle(mut connection) => {
                    let now = machine_now();
                    if now - connection.used < IDLE {
                        connection.used = now;
                        return Ok(connection);
                    }
                    if let Some(connection) = self.test(connection, latest)? {
                        return Ok(connection);
                    }
                    slot = lock(&self.connections).slot(self.moves());
                    continue;
                }
                Slot::New(generation) => generation,
            };
            let left = latest.saturating_duration_since(machine_now());
            let inner = self.connector.pooled(&self.options.timeouts, self.options.timeouts.connect.min(left));
            let mut connections = lock(&self.connections);
            return match inner {
                Ok((inner, is_lent)) => {
                    let is_successor = connections.unreplaced > 0;
                    connections.unreplaced -= usize::from(is_successor);
                    drop(connections);
                    if is_successor {
                        self.count_reconnect("a connection was replaced");
                    }
                    Ok(PooledConnection::new(inner, is_lent, self.options.timeouts.read, generation))
                }
                Err(failure) => {
                    connections.open -= 1;
                    Err(failure)
                }
            };
        }
    }

    /// Tests a connection that was idle for a while, since the server may have closed it. A call on a closed connection
    /// would be lost, and its outcome would be unknown. `None`: it was closed.
    fn test(&self, mut connection: PooledConnection, latest: Instant) -> Result<Option<PooledConnection>, Failure> {
        let ping = redis::cmd("PING").get_packed_command();
        let (replies, state) = connection.exchange(&ping, 1, latest);
        if state == State::Ready {
            return Ok(Some(connection)); // the call itself reports other refusals of the server
        }
        let mut connections = lock(&self.connections);
        connections.outdate(connection.generation);
        connections.lose();
        drop(connections);
        match (state, replies.into_iter().next()) {
            (State::Late, Some(Err(error))) => Err(error.into()),
            _ => Ok(None),
        }
    }
}
