//! The permission for a thread to send a packet.

use crate::transport::connection::PooledConnection;

/// A connection for one packet.
pub(super) enum Slot {
    Idle(PooledConnection),
    /// No connection: the thread must make one, of this generation.
    New(u64),
}
