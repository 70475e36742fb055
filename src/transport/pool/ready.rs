//! A connection that is ready for a packet: an idle one that works, or a new one.

use super::Pool;
use super::slot::Slot;
use crate::clock::machine_now;
use crate::error::failure::Failure;
use crate::sync::lock;
use crate::transport::connection::{PooledConnection, State};
use std::time::{Duration, Instant};

/// A connection that was idle for so long is tested with `PING` before it carries a call. Longer than the pauses of the waiters
/// that ask most often.
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

    /// The connection, if it answers; nothing where it was closed. It was idle for a while, so the server may have gone since. A
    /// call on it would be sent and lost, and then nobody could tell whether it was run.
    fn test(&self, mut connection: PooledConnection, latest: Instant) -> Result<Option<PooledConnection>, Failure> {
        let ping = redis::cmd("PING").get_packed_command();
        let (replies, state) = connection.exchange(&ping, 1, latest);
        if state == State::Ready {
            return Ok(Some(connection)); // what else the server refuses is for the call to report
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
