//! A waker that fails the execution if it is copied or dropped while a lock is held: an executor may run any
//! code then.
#![allow(unsafe_code, reason = "the standard library has no safe waker that knows when it is copied")]

use crate::world::foreign_at_once;
use std::task::{RawWaker, RawWakerVTable, Waker};

static FUNCTIONS: RawWakerVTable = RawWakerVTable::new(copy, wake, wake_by_ref, forget);

/// A waker that wakes `waker`.
pub(crate) fn watched(waker: Waker) -> Waker {
    // SAFETY: the functions use the data as what `raw` has made it from, and keep the contract of
    // `RawWakerVTable`.
    unsafe { Waker::from_raw(raw(waker)) }
}

fn raw(waker: Waker) -> RawWaker {
    RawWaker::new(Box::into_raw(Box::new(waker)).cast(), &FUNCTIONS)
}

unsafe fn copy(data: *const ()) -> RawWaker {
    foreign_at_once("copies a waker");
    // SAFETY: `data` is from `raw`, and lives until `wake` or `forget`.
    raw(unsafe { &*data.cast::<Waker>() }.clone())
}

unsafe fn wake(data: *const ()) {
    // SAFETY: `data` is from `raw`, and is not used again.
    unsafe { Box::from_raw(data.cast::<Waker>().cast_mut()) }.wake();
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: as in `copy`.
    unsafe { &*data.cast::<Waker>() }.wake_by_ref();
}

unsafe fn forget(data: *const ()) {
    foreign_at_once("drops a waker");
    // SAFETY: as in `wake`.
    drop(unsafe { Box::from_raw(data.cast::<Waker>().cast_mut()) });
}
