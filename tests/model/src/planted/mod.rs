//! Faults of the engine that the model must find.

mod faults;

pub use faults::{FAULTS, Fault};

use std::cell::Cell;

thread_local!(static ACTIVE: Cell<Option<usize>> = const { Cell::new(None) });

/// Makes this fault active in the current thread.
pub(crate) fn activate(fault: Option<usize>) {
    ACTIVE.set(fault);
}

/// Whether the fault with this number is active.
pub(crate) fn is_active(fault: usize) -> bool {
    ACTIVE.get() == Some(fault)
}
