//! In place of the library's `sync`: locks and threads whose order the model decides.

#[path = "../../../src/sync/process.rs"]
mod process;

/// A planted fault: whether it is active.
macro_rules! fault {
    ($name:literal) => {
        crate::planted::is_active($name)
    };
}

pub(crate) use fault;

pub(crate) use process::Process;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;

use crate::world::{self, Id, Limit, new_id, point, wait_on, wake, wake_one};
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub(crate) struct Mutex<T> {
    id: Id,
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex { id: new_id(), inner: std::sync::Mutex::new(value) }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

pub(crate) struct MutexGuard<'a, T> {
    /// `None`: it is being dropped.
    inner: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().unwrap()
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        world::unlocks();
        wake(self.mutex.id);
    }
}

#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    point("locks");
    lock_at_once(mutex)
}

/// Locks it when it is free.
#[track_caller]
fn lock_at_once<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        let inner = match mutex.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => {
                wait_on(mutex.id, None);
                continue;
            }
        };
        world::locks();
        return MutexGuard { inner: Some(inner), mutex };
    }
}

pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    point("tries to lock");
    let inner = match mutex.inner.try_lock() {
        Ok(inner) => inner,
        Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
        Err(TryLockError::WouldBlock) => return None,
    };
    world::locks();
    Some(MutexGuard { inner: Some(inner), mutex })
}

pub(crate) struct Condvar(Id);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(new_id())
    }

    /// At most one thread waits on a condition variable that is notified in this way.
    #[track_caller]
    pub(crate) fn notify_one(&self) {
        // Until the thread is woken, nothing can depend on it, unless its time ends.
        if world::has_steps() {
            point("notifies");
        }
        wake_one(self.0);
    }

    #[track_caller]
    pub(crate) fn notify_all(&self) {
        point("notifies");
        wake(self.0);
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

/// With a limit: the connection's own thread looks whether it must read, or a caller has a deadline.
#[track_caller]
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    left: Option<Duration>,
) -> MutexGuard<'a, T> {
    let left = left.filter(|_| world::looks());
    wait_until(condvar, guard, left.map(|left| Limit::Tick(world::now() + left)))
}

#[track_caller]
pub(crate) fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Limit>,
) -> MutexGuard<'a, T> {
    let mutex = guard.mutex;
    drop(guard);
    wait_on(condvar.0, limit); // no point is between this and the unlock
    lock_at_once(mutex)
}

pub(crate) struct AtomicBool(std::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(value.into())
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> bool {
        point("loads");
        self.0.load(order)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        point("stores");
        self.0.store(value, order);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        point("swaps");
        self.0.swap(value, order)
    }
}

/// Starts a thread of the engine.
pub(crate) fn spawn(_: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let has_thread = world::has_thread();
    if has_thread {
        world::spawn("own", false, work);
    }
    has_thread
}

/// Code that is not of the library. It does not panic here.
pub(crate) fn contained(work: impl FnOnce()) -> bool {
    work();
    false
}
