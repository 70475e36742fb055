//! Locks and counting semaphores on Redis and Valkey, for processes on any number of machines.
//!
//! Open a [`Gate`]; it gives a [`Semaphore`] of so many permits, or a [`Mutex`], by name. What they grant is a guard, a
//! [`Permit`] or a [`MutexGuard`], which is released when it is dropped.
//!
//! ```no_run
//! # fn main() -> Result<(), luagate::Error> {
//! let gate = luagate::Gate::open("redis://127.0.0.1/")?;
//! let market = gate.semaphore("market:account:17", 5);
//! let permit = market.acquire()?; // in line, first come, first served, across processes
//! println!("one of five inside, with fence {}", permit.fence());
//! permit.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`CountDownLatch`] lets processes wait until so many others are done.
//!
//! - **At once or in line**: `try_acquire` is refused with [`Denied`]; `acquire` and `acquire_timeout` wait in a queue that
//!   nobody overtakes.
//! - **Leases**: a permit whose holder crashed comes back when its lease ends. With nothing chosen that is after 30 s,
//!   renewed while the permit lives. A permit may be lost, see [`Permit::is_lost`] and [`Permit::fence`].
//! - **Errors** are one small enum for each kind of operation; all turn into [`Error`].
//! - **Every operation is one Lua script**, which runs atomically on the server: [`scripts`] has them one to one.
//!
//! One server decides; a failover may forget the last grants; a lease is no guarantee against a paused process, the fence is.

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
mod latch;
mod lease;
mod mutex;
mod name;
mod permit;
mod renewal;
mod request;
mod script;
pub mod scripts;
mod semaphore;
mod sync;
mod wait;

pub use cancel::Cancel;
pub use error::{
    AcquireError, AlreadyHeld, CallError, Cancelled, Denied, Error, Invalid, LimitMismatch, Lost,
    RefreshError, StillClosed, TryAcquireError, WaitError,
};
pub use failure::{Failure, FailureKind};
pub use gate::{Gate, GateBuilder};
pub use inspection::{Holder, Inspection, Waiter};
pub use latch::CountDownLatch;
pub use mutex::{Mutex, MutexGuard, UnlockError};
pub use permit::{Permit, ReleaseError, Released};
pub use semaphore::{Resized, Revoked, Semaphore};

/// The README's program is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
