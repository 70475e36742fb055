//! Ending a wait from another thread, or at a time.

use super::mailbox::Mailbox;
use crate::clock::Clock;
use crate::clock::machine_now;
use crate::sync::lock;
use once_cell::sync::OnceCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
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
///
/// A forked child makes handles of its own: one of its parent does not end waits in the child before its deadline.
#[derive(Clone)]
pub struct Cancel {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process that made the handle. In a fork of it the lock may be held by a thread that does not exist there.
    pid: u32,
    cancelled: AtomicBool,
    /// When it is cancelled without a call of `cancel`, by this machine's clock.
    deadline: Option<Instant>,
    /// The same by the clock of the gate that met the handle first. They differ only where a test moves that clock.
    end: OnceCell<End>,
    waits: Mutex<Vec<Weak<Mailbox>>>,
}

struct End {
    clock: Clock,
    /// `None`: later than the clock can hold.
    at: Option<Instant>,
}

impl Default for Cancel {
    fn default() -> Cancel {
        Cancel::ending(None)
    }
}

impl Cancel {
    /// A handle that is not cancelled before somebody calls [`cancel`](Cancel::cancel).
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// A handle that is cancelled after `time`, or before that by [`cancel`](Cancel::cancel). Zero: it is cancelled at once.
    /// Takes no thread; the waits look at the time. A gate in memory counts by its own clock, from `cancelled_by` on.
    pub fn after(time: Duration) -> Cancel {
        Cancel::ending(machine_now().checked_add(time)) // past what the clock can hold is never
    }

    /// A handle that is cancelled at `deadline`, or before that by [`cancel`](Cancel::cancel). An instant that has passed: it is
    /// cancelled at once. Takes no thread; the waits look at the time.
    pub fn at(deadline: Instant) -> Cancel {
        Cancel::ending(Some(deadline))
    }

    fn ending(deadline: Option<Instant>) -> Cancel {
        Cancel {
            shared: Arc::new(Shared {
                pid: std::process::id(),
                cancelled: AtomicBool::new(false),
                deadline,
                end: OnceCell::new(),
                waits: Mutex::default(),
            }),
        }
    }

    /// Ends all waits that have this handle, now and from now on. Does not block. A wait that has a call on its way ends
    /// when that is answered, or after the read timeout; so it does at the deadline of a handle.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        if self.is_own_process() {
            let waits = std::mem::take(&mut *lock(&self.shared.waits));
            waits.iter().filter_map(Weak::upgrade).for_each(|w| w.cancel());
        }
    }

    /// Whether [`cancel`](Cancel::cancel) was called, or the deadline has passed. Once true it stays true. Does not block.
    pub fn is_cancelled(&self) -> bool {
        let shared = &self.shared;
        let is_past = || match shared.end.get() {
            Some(End { clock, at }) => at.is_some_and(|at| at <= clock.now()),
            None => shared.deadline.is_some_and(|at| at <= machine_now()),
        };
        shared.cancelled.load(Ordering::SeqCst) || is_past()
    }

    fn is_own_process(&self) -> bool {
        self.shared.pid == std::process::id()
    }

    /// Goes by this clock from now on, if it is the first that it meets.
    pub(crate) fn go_by(&self, clock: &Clock) {
        if let Some(deadline) = self.shared.deadline {
            self.shared.end.get_or_init(|| End { clock: clock.clone(), at: clock.at_machine_time(deadline) });
        }
    }

    /// Lets a wait be cancelled by this handle.
    pub(super) fn watch(&self, wait: &Arc<Mailbox>) {
        self.go_by(wait.clock());
        if let Some(at) = self.shared.end.get().and_then(|end| end.at) {
            wait.cancel_at(at);
        }
        if self.is_own_process() {
            let mut waits = lock(&self.shared.waits);
            if waits.len() == waits.capacity() {
                waits.retain(|w| w.strong_count() > 0); // those that are over, before the list grows
            }
            waits.push(Arc::downgrade(wait));
        }
        // Behind the list: whoever cancels sets this first, and then looks there.
        if self.is_cancelled() {
            wait.cancel();
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish()
    }
}
