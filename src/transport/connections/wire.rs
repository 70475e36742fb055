//! A connection that carries calls, and one that is kept because a reply is still to come.

use crate::error::failure::Failure;
use crate::transport::line::Line;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A connection of the pool, out on a call.
pub(super) struct Wire {
    pub(super) con: Line,
    /// The number of its pool.
    pub(super) node: usize,
    pub(super) read_timeout: Duration,
    pub(super) generation: u64,
    /// When it carried something last, or was connected.
    pub(super) used: Instant,
    /// Set while it is out of the pool for what must follow a call that was not answered.
    pub(super) parked: Option<Arc<()>>,
}

impl Wire {
    /// Bounds how long the next replies may take.
    pub(super) fn bound(&mut self, read: Duration) -> Result<(), Failure> {
        let read = read.max(Duration::from_millis(1)); // zero would mean no bound at all
        if read != self.read_timeout {
            self.con.set_read_timeout(Some(read))?;
            self.read_timeout = read;
        }
        Ok(())
    }
}

/// A connection on which calls were not answered in time, out of the pool: what follows on it reaches the server after them.
/// It is shared by those whose calls these are.
#[derive(Clone)]
pub(crate) struct Parked {
    /// The number of its pool.
    pub(super) node: usize,
    /// Nothing once it has answered what followed, and with it all that was before; or when it broke.
    pub(super) wire: Arc<Mutex<Option<Wire>>>,
}

impl Parked {
    pub(super) fn of(wire: Wire) -> Parked {
        Parked {
            node: wire.node,
            wire: Arc::new(Mutex::new(Some(wire))),
        }
    }

    pub(crate) fn node(&self) -> usize {
        self.node
    }
}
