//! What a thread that may send gets.

use crate::transport::connection::PooledConnection;

/// A connection for one packet.
pub(super) enum Slot {
    Idle(PooledConnection),
    /// It makes a connection, of this generation.
    New(u64),
}
