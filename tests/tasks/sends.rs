//! Promise: all types and all futures can move to another thread, so that `tokio::spawn` takes them.

use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{ReleaseError, RunError};
use luagate::*;
use std::time::Duration;

fn moves<T: Send>(_: &T) {}

fn is_shared<T: Send + Sync + 'static>() {}

/// Compiles only if the promise holds.
#[allow(dead_code)]
fn futures(
    gate: Gate,
    semaphore: &Semaphore,
    mutex: &Mutex,
    lock: &RwLock,
    several: &Several,
    latch: &CountDownLatch,
) {
    let time = Duration::from_secs(1);
    moves(&Gate::open(""));
    moves(&Gate::builder("").open());
    moves(&semaphore.try_acquire_async());
    moves(&semaphore.acquire_many_timeout_async(2, time));
    moves(&semaphore.adopt_async("id"));
    moves(&semaphore.inspect_async());
    moves(&semaphore.resize_async(3));
    moves(&semaphore.run_async(time, async |permit| permit.lost_async().await));
    moves(&mutex.try_lock_for_async(time));
    moves(&lock.try_write_for_async(time));
    moves(&several.try_acquire_async());
    moves(&several.acquire_async());
    moves(&several.acquire_timeout_async(time));
    moves(&latch.wait_timeout(time));
    moves(&Recent::new(&gate, "ann").matching_async("a", 1));
    moves(&Prefix::new(&gate, "group").add(["a"]));
    moves(&gate.flush());
}

/// Compiles only if the promise holds.
#[allow(dead_code)]
fn permits(mut permit: Permit, held: SeveralPermits) {
    moves(&permit.lost_async());
    moves(&permit.refresh_async());
    moves(&permit.release_some_async(1));
    moves(&permit.downgrade_async());
    moves(&Permit::refresh_each_async([&permit]));
    moves(&Permit::release_each_async([permit]));
    moves(&held.lost_async());
    moves(&held.release_async());
}

#[test]
fn all_types_can_be_shared_by_threads() {
    is_shared::<(Gate, GateBuilder, Semaphore, Permit, Mutex, RwLock)>();
    is_shared::<(Several, SeveralPermits, CountDownLatch, Recent, Prefix)>();
    is_shared::<(ReleaseError, ReleaseError<SeveralPermits>, RunError)>();
}
