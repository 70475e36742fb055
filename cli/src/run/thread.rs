//! The threads of a process that waits for a permit or holds it.

use crate::ended::{Ended, UNREACHABLE};
use std::thread::{Builder, JoinHandle};

/// Starts a thread. The system may refuse it, as after `ulimit -u`.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Ended> {
    let refused = |error| Ended::new(UNREACHABLE, format!("the system permits no further thread: {error}"));
    Builder::new().spawn(work).map_err(refused)
}
