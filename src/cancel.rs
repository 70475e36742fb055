//! Ending a wait from another thread.

use crate::sync::lock;
use crate::waits::Wait;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

/// A handle that ends waits in line from another thread.
///
/// Give it to a semaphore or mutex with `cancelled_by`; [`cancel`](Cancel::cancel) then ends every wait under way
/// there, and every later one at once. Clones are the same handle.
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let stop = luagate::Cancel::new();
/// let jobs = gate.semaphore("jobs", 2).cancelled_by(&stop);
/// let worker = std::thread::spawn(move || jobs.acquire().map(drop));
/// stop.cancel();
/// assert!(matches!(worker.join(), Ok(Err(luagate::errors::AcquireError::Cancelled(_))) | Ok(Ok(()))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Cancel {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    waits: Vec<Weak<Wait>>,
}

impl Cancel {
    /// A handle that has not been used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends all waits that have this handle, now and from now on. Does not block. A wait that has a call on its way ends
    /// when that is answered, or after the read timeout.
    pub fn cancel(&self) {
        let waits = {
            let mut state = lock(&self.state);
            state.cancelled = true;
            std::mem::take(&mut state.waits)
        };
        for wait in waits.iter().filter_map(Weak::upgrade) {
            wait.cancel();
        }
    }

    /// Whether [`cancel`](Cancel::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    /// Lets a wait be cancelled by this handle.
    pub(crate) fn watch(&self, wait: &Arc<Wait>) {
        let mut state = lock(&self.state);
        if state.cancelled {
            wait.cancel();
            return;
        }
        if state.waits.len() == state.waits.capacity() {
            state.waits.retain(|w| w.strong_count() > 0); // those that are over, before the list grows
        }
        state.waits.push(Arc::downgrade(wait));
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}
