//! Ends a wait from another thread, or at a certain time.

use crate::clock::{Clock, machine_now};
use crate::engine::slot::Slot;
use crate::sync::{Process, lock};
use luagate_core::inbox::Mailbox;
use once_cell::sync::OnceCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A handle that ends waits in line, from another thread or at a certain time.
///
/// Pass it to a semaphore or latch with `cancelled_by`, and to a lock with `mutex.with(|settings|
/// settings.cancelled_by(&cancel))`. [`cancel`](Cancel::cancel) then ends every wait in progress there, and
/// every later one at once. Clones are the same handle.
///
/// A handle stays cancelled: a later wait under it ends at once with [`Cancelled`](crate::errors::Cancelled).
/// Therefore use a new handle for each request or job. `semaphore.clone().cancelled_by(&cancel)` is cheap.
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
/// A request that has several waits can have one deadline for all of them:
///
/// ```no_run
/// # fn main() -> Result<(), luagate::Error> {
/// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
/// let request = luagate::Cancel::after(std::time::Duration::from_secs(5));
/// let account = gate.mutex("account:17").with(|mutex| mutex.cancelled_by(&request)).lock()?;
/// let licence = gate.semaphore("licences", 3).cancelled_by(&request).acquire()?; // what is left of the 5 s
/// # Ok(())
/// # }
/// ```
///
/// A forked child must make new handles. A handle of its parent ends waits in the child only at its deadline.
#[derive(Clone)]
pub struct Cancel {
    shared: Arc<CancelState>,
}

struct CancelState {
    process: Process,
    cancelled: AtomicBool,
    /// The time at which it is cancelled without a call of `cancel`, on this machine's clock.
    deadline: Option<Instant>,
    /// The same time on the clock of the first gate that used the handle. The two differ only if a test moves
    /// that clock.
    end: OnceCell<End>,
    waits: Mutex<Vec<Weak<Slot<Mailbox>>>>,
}

struct End {
    clock: Clock,
    /// `None`: later than the clock's range.
    at: Option<Instant>,
}

impl Default for Cancel {
    fn default() -> Cancel {
        Cancel::ending(None)
    }
}

impl Cancel {
    /// A handle that is cancelled only by [`cancel`](Cancel::cancel).
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// A handle that is cancelled after `time`, or earlier by [`cancel`](Cancel::cancel). Zero: it is
    /// cancelled at once. Starts no thread; each wait checks the time. For a gate in memory the time counts
    /// on the gate's own clock, from the call of `cancelled_by`.
    pub fn after(time: Duration) -> Cancel {
        Cancel::ending(machine_now().checked_add(time)) // beyond the clock's range: never
    }

    /// A handle that is cancelled at `deadline`, or earlier by [`cancel`](Cancel::cancel). An instant in the
    /// past: it is cancelled at once. Starts no thread; each wait checks the time.
    pub fn at(deadline: Instant) -> Cancel {
        Cancel::ending(Some(deadline))
    }

    fn ending(deadline: Option<Instant>) -> Cancel {
        let (process, cancelled) = (Process::this(), AtomicBool::new(false));
        let shared =
            CancelState { process, cancelled, deadline, end: OnceCell::new(), waits: Mutex::default() };
        Cancel { shared: Arc::new(shared) }
    }

    /// Ends all waits that have this handle, current and future ones. Does not block. If a call of a wait is
    /// in progress, the wait ends when the call is answered, or after the read timeout. The same applies at
    /// the deadline of a handle.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        if self.is_own_process() {
            let waits = std::mem::take(&mut *lock(&self.shared.waits));
            let waits = waits.iter().filter_map(Weak::upgrade);
            waits.for_each(|mailbox| mailbox.change(|mail| mail.cancelled = true));
        }
    }

    /// Whether [`cancel`](Cancel::cancel) was called, or the deadline has passed. Once true it stays true.
    /// Does not block.
    pub fn is_cancelled(&self) -> bool {
        let shared = &self.shared;
        let is_past = || match shared.end.get() {
            Some(End { clock, at }) => at.is_some_and(|at| at <= clock.now()),
            None => shared.deadline.is_some_and(|at| at <= machine_now()),
        };
        shared.cancelled.load(Ordering::SeqCst) || is_past()
    }

    fn is_own_process(&self) -> bool {
        self.shared.process.is_this()
    }

    /// Uses this clock from now on, unless another gate has used the handle before.
    pub(crate) fn go_by(&self, clock: &Clock) {
        if let Some(deadline) = self.shared.deadline {
            self.shared.end.get_or_init(|| End { clock: clock.clone(), at: clock.at_machine_time(deadline) });
        }
    }

    /// Registers a wait by its mailbox, so that this handle can cancel it. Called before any message can
    /// arrive.
    pub(super) fn watch(&self, mailbox: &Arc<Slot<Mailbox>>, clock: &Clock) {
        self.go_by(clock);
        if let Some(at) = self.shared.end.get().and_then(|end| end.at) {
            mailbox.look(|mail| mail.cancelled_at = Some(at));
        }
        if self.is_own_process() {
            let mut waits = lock(&self.shared.waits);
            if waits.len() == waits.capacity() {
                waits.retain(|w| w.strong_count() > 0); // those that have ended, before the list grows
                let count = waits.len();
                waits.reserve(count); // so that it is not looked through again before as many are added
            }
            waits.push(Arc::downgrade(mailbox));
        }
        // After the wait is in the list: `cancel` sets the flag first and then reads the list.
        if self.is_cancelled() {
            mailbox.change(|mail| mail.cancelled = true);
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish()
    }
}
