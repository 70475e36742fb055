#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]
// Nothing that a user, a server or a network does makes this crate panic; its tests may.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod background;
mod cancel;
mod connections;
mod engine;
mod error;
mod failure;
mod gate;
mod holding;
mod inbox;
mod inspection;
mod lease;
mod mutex;
mod name;
mod permit;
mod renewal;
mod script;
pub mod scripts;
mod semaphore;
mod wait;

pub use cancel::Cancel;
pub use error::{
    AcquireError, AlreadyHeld, CallError, Cancelled, Denied, Error, Invalid, LimitMismatch, Lost,
    RefreshError, ReleaseError, TryAcquireError,
};
pub use failure::{Failure, FailureKind};
pub use gate::{Gate, GateBuilder};
pub use inspection::{Holder, Inspection, Waiter};
pub use mutex::{Mutex, MutexGuard, UnlockError};
pub use permit::{Permit, Released};
pub use semaphore::{Resized, Revoked, Semaphore};
