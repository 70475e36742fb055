//! Ends the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// The threads of a test end when it is set. Without [`Stop::at_end`], `thread::scope` would wait for ever
/// after a failure.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Sets it when the guard is dropped, also by a panic.
    pub fn at_end(&self) -> AtEnd<'_> {
        AtEnd(self)
    }
}

pub struct AtEnd<'a>(&'a Stop);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}
