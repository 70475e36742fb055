//! Ending a wait from another thread, or at a time.

use crate::clock::Clock;
use crate::sync::lock;
use crate::waits::Wait;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A handle that ends waits in line, from another thread or at a time.
///
/// Give it to a semaphore, lock or latch with `cancelled_by`; [`cancel`](Cancel::cancel) then ends every wait under way
/// there, and every later one at once. Clones are the same handle.
///
/// A handle stays cancelled, so use a new one for each request or job: whatever waits under a cancelled one later ends at once
/// with [`Cancelled`](crate::errors::Cancelled). `semaphore.clone().cancelled_by(&cancel)` is cheap.
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
///
/// A request that has several waits has one deadline for all of them:
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let request = luagate::Cancel::after(std::time::Duration::from_secs(5));
/// let account = gate.mutex("account:17").cancelled_by(&request).lock()?;
/// let licence = gate.semaphore("licences", 3).cancelled_by(&request).acquire()?; // what is left of the 5 s
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
    end: Option<End>,
    waits: Vec<Weak<Wait>>,
}

/// When a handle is cancelled without a call of `cancel`.
struct End {
    at: Instant,
    /// The clock of the gate that met the handle first; `None`: none has, and `at` is a time of the machine's clock. They differ
    /// only where a test moves the clock of a gate in memory.
    clock: Option<Clock>,
}

impl End {
    fn is_past(&self) -> bool {
        let now = self.clock.as_ref().map_or_else(Instant::now, Clock::now);
        self.at <= now
    }
}

impl State {
    fn is_cancelled(&self) -> bool {
        self.cancelled || self.end.as_ref().is_some_and(End::is_past)
    }
}

impl Cancel {
    /// A handle that is not cancelled before somebody calls [`cancel`](Cancel::cancel).
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// A handle that is cancelled after `time`, which a gate in memory counts by its own clock from `cancelled_by` on, or before that by [`cancel`](Cancel::cancel). Zero: it is cancelled at once. Takes
    /// no thread; the waits look at the time.
    pub fn after(time: Duration) -> Cancel {
        Cancel::ending(Instant::now().checked_add(time)) // past what the clock can hold is never
    }

    /// A handle that is cancelled at `deadline`, or before that by [`cancel`](Cancel::cancel). An instant that has passed: it is
    /// cancelled at once. Takes no thread; the waits look at the time.
    pub fn at(deadline: Instant) -> Cancel {
        Cancel::ending(Some(deadline))
    }

    fn ending(at: Option<Instant>) -> Cancel {
        let cancel = Cancel::new();
        lock(&cancel.state).end = at.map(|at| End { at, clock: None });
        cancel
    }

    /// Ends all waits that have this handle, now and from now on. Does not block. A wait that has a call on its way ends
    /// when that is answered, or after the read timeout; so it does at the deadline of a handle.
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

    /// Whether [`cancel`](Cancel::cancel) was called, or the deadline has passed. Once true it stays true. Does not block.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled()
    }

    /// Goes by this clock from now on, if it is the first that it meets.
    pub(crate) fn go_by(&self, clock: &Clock) {
        let end = &mut lock(&self.state).end;
        if let Some(End { at, clock: None }) = end {
            *end = clock.at_machine_time(*at).map(|at| End {
                at,
                clock: Some(clock.clone()),
            });
        }
    }

    /// Lets a wait be cancelled by this handle.
    pub(crate) fn watch(&self, wait: &Arc<Wait>) {
        self.go_by(wait.clock());
        let mut state = lock(&self.state);
        if state.is_cancelled() {
            wait.cancel();
            return;
        }
        if let Some(end) = &state.end {
            wait.cancel_at(end.at);
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
