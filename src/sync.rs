//! Locking and waiting for this crate's own locks. No code of the program runs while one of them is locked.
//! Therefore the data behind a poisoned lock is still consistent.

mod process;

/// A point at which the model check plants a fault. `false` everywhere else.
macro_rules! fault {
    ($name:literal) => {
        false
    };
}

pub(crate) use fault;

pub(crate) use process::Process;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None`: it is locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits until it is notified, for at most `left`. May also return without a reason.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    left: Option<Duration>,
) -> MutexGuard<'a, T> {
    let Some(left) = left else {
        return condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    };
    match condvar.wait_timeout(guard, left) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

/// Starts a thread. Returns whether it was started.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).is_ok()
}

/// Runs code that may not be of this crate. If it panics, the thread goes on. Returns whether it has
/// panicked.
pub(crate) fn contained(work: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else {
        return false;
    };
    // The value of the panic is of the program too: its drop may panic.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    true
}
