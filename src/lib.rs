//! Locks and counting semaphores on Redis and Valkey, for processes on any number of machines.
//!
//! ```no_run
//! # fn main() -> Result<(), luagate::Error> {
//! let gate = luagate::Gate::open("redis://127.0.0.1/")?;
//! let market = gate.semaphore("market:account:17", 5); // at most five inside, of all processes
//! let permit = market.acquire()?; // in line: first come, first served
//! permit.release()?; // dropping it releases too
//! # Ok(())
//! # }
//! ```
//!
//! A [`Gate`] gives everything by name:
//!
//! | what may happen | take |
//! |---|---|
//! | so many at once | [`Semaphore`] |
//! | one at a time | [`Mutex`] |
//! | many read, or one writes | [`RwLock`] |
//! | several limits at once, or work on several things | [`Several`] |
//! | only when so many others are done | [`CountDownLatch`] |
//! | find names by how they begin | [`autocomplete`] |
//!
//! - **Three ways to ask**: at once, or [`Denied`](errors::Denied) (`try_acquire`, `try_lock`, `try_read`); in line for as long
//!   as it takes (`acquire`, `lock`, `read`); in line with an end (`acquire_timeout`, `try_lock_for`, `try_read_until`).
//!   Nobody overtakes the line.
//! - **Leases**: what a crashed process held comes back when its lease ends: 30 s, renewed while the guard lives, unless you
//!   choose. A permit can be lost, see [`Permit::is_lost`]; its [`fence`](Permit::fence) keeps out who has not noticed.
//! - **[Errors](errors)** are one small enum for each kind of operation; all turn into [`Error`].
//! - **Every operation is one Lua script**, which runs atomically on the server: [`scripts`] has them one to one.
//!
//! Your own unit tests need no server: the feature `memory` has one in the process, with a clock that a test moves. The feature
//! `tls` is for addresses that begin with `rediss`; your program chooses the cryptography by depending on `rustls`, as
//! [`GateBuilder::root_certificates`] says.
//!
//! A gate [counts](Counters) what it does; the feature `tracing` tells each operation: [`guide::observability`].
//! Settings of the server, memory, failovers by hand, stuck holders and upgrades: [`guide::production`].
//!
//! Do you know *Redis in Action*, `java.util.concurrent` or Redisson? The [`guide`] says what is called how here.
//! Do you want to read or change the code? Start with [`guide::internals`].
//!
//! One server decides; a failover may forget the last grants; a lease is no guarantee against a paused process, the fence is.

#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]
// Nothing that a user, a server or a network does makes this crate panic; its tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod autocomplete;
mod clock;
mod counters;
mod error;
mod gate;
mod guard;
pub mod guide;
pub mod inspection;
mod latch;
mod lease;
#[cfg(feature = "memory")]
pub mod memory;
mod mutex;
mod permit;
mod protocol;
mod rwlock;
pub mod scripts;
mod semaphore;
mod several;
mod shared;
mod sync;
mod trace;
mod transport;
mod wait;

/// What can go wrong: one small enum for each kind of operation, and what their variants hold.
///
/// All turn into [`Error`], so `?` takes any of them.
pub mod errors {
    pub use crate::error::failure::{Failure, FailureKind};
    pub use crate::error::{
        AboveLimit, AcquireError, AcquireSeveralError, AlreadyHeld, Blocked, CallError, Cancelled, Denied, Invalid,
        LimitMismatch, LineFull, Lost, NamedUsage, PlaceRevoked, RefreshError, StillClosed, TimedOut, TryAcquireError,
        TryAcquireSeveralError, WaitError,
    };
    pub use crate::guard::UnlockError;
    pub use crate::permit::ReleaseError;
    pub use crate::rwlock::DowngradeError;
}

pub use counters::Counters;
pub use error::Error;
pub use gate::{Gate, GateBuilder};
pub use latch::CountDownLatch;
pub use mutex::{Mutex, MutexGuard};
pub use permit::{Permit, Released};
pub use protocol::name_from::name_from;
pub use rwlock::{RwLock, RwLockGuard, RwLockReadGuard, RwLockUsage, RwLockWriteGuard};
pub use semaphore::{Resized, Revoked, Semaphore};
pub use several::{Several, SeveralPermits};
pub use transport::eviction::Warning;
pub use wait::cancel::Cancel;

/// The README's program is compiled with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
