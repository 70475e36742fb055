//! Locks and counting semaphores on Redis and Valkey, for processes on any number of machines. Waiters are
//! served in order, each grant has a lease and a fencing token, and each operation is one Lua script that the
//! server runs atomically. Each blocking method has an async form, whose name ends in `_async`.
//!
//! ```no_run
//! # fn main() -> Result<(), luagate::Error> {
//! let gate = luagate::Gate::open("redis://127.0.0.1/")?;
//! let market = gate.semaphore("market:account:17", 5); // 5 permits, over all processes
//! let permit = market.acquire()?; // waits in line: first come, first served
//! permit.release()?; // dropping the permit releases it too
//! # Ok(())
//! # }
//! ```
//!
//! # The scripts
//!
//! With your own connection, pool or async client, use [`scripts`]. It has one function for each script on a
//! `redis::Connection`, and the command of each script as a `redis::Cmd` for every other client.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! use luagate::scripts::{Keys, semaphore};
//!
//! let keys = Keys::semaphore("luagate", "market:account:17")?;
//! let ask = semaphore::Ask { id: "worker-1", limit: 5, ..semaphore::Ask::default() };
//! let answer = semaphore::acquire(&mut con, &keys, &ask)?; // granted, or how full it is
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Gate`] runs the same scripts on its own connections. It also waits in line, renews leases, and repeats
//! a call whose reply was lost. The rest of this page is about the gate.
//!
//! # The guide
//!
//! **Read the [`guide`] next.** It explains every part with tested examples: failures, deployments,
//! operation, and async programs. It also maps the calls of other libraries and commands to this crate, such
//! as Redisson, redsync, `rslock` and `flock`.
//!
//! # Choosing a type
//!
//! A [`Gate`] is the client. All other types have a name and use a gate:
//!
//! | you need | type |
//! |---|---|
//! | at most `n` at the same time | [`Semaphore`] |
//! | at most `n` starts in a period | [`Semaphore::at_least`] |
//! | one at a time | [`Mutex`] |
//! | many readers, or one writer | [`RwLock`] |
//! | several limits at once, or locks of several things | [`Several`] |
//! | to wait until `n` others are done | [`CountDownLatch`] |
//! | to find stored names by their first letters | [`autocomplete`] |
//!
//! # How every lock behaves
//!
//! - **Three ways to acquire.** Without waiting: `try_acquire`, `try_lock`, `try_read`; they return
//!   [`Denied`](errors::Denied) if nothing is free. In line without a time limit: `acquire`, `lock`, `read`.
//!   In line with a time limit: `acquire_timeout`, `try_lock_for`, `try_read_for`. No caller overtakes the
//!   line, except by a [head start](Semaphore::head_start).
//! - **Calls block their thread**, for one round trip or until their wait ends. Their async form, such as
//!   `acquire_async`, blocks no thread. It needs no runtime and works on every executor.
//! - **Dropping a permit releases it**, and does not wait for the reply. Later calls of the gate for the same
//!   name run after the release. [`Permit::release`] returns its result, and [`Gate::flush`] waits for all
//!   releases.
//! - **Leases.** A permit of a crashed process becomes free when its lease ends. The default lease is 30 s,
//!   and the client renews it in the background until the permit is dropped. A permit can be lost: see
//!   [`Permit::is_lost`].
//! - **Fences.** Only a data store that compares [fences](Permit::fence) rejects the writes of a process that
//!   was paused for longer than its lease.
//! - **One server decides.** A failover may forget the last grants: see [`guide::faults`].
//! - **[Errors](errors)** are one small enum for each kind of operation. All of them convert into [`Error`].
//!
//! # Further pages
//!
//! - [`guide::getting_started`]: the guide, which reads from start to end.
//! - [`guide::async_programs`]: this crate in an async program, on any executor.
//! - [`guide::production`]: settings of the server, memory, manual failover, stuck holders, upgrades.
//! - [`guide::observability`]: the [counters](Counters) of a gate, and the feature `tracing`.
//! - [`memory`]: a server inside the process, for your unit tests. A test moves its clock. Needs the feature
//!   `memory`.
//! - [`admin`]: what tools need to operate the servers of a gate.
//! - [`GateBuilder::root_certificates`]: TLS, with the feature `tls`. Your program chooses the cryptography
//!   library.
//! - [`guide::internals`]: the code of this crate, for contributors.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]
// No input of a caller, a server or a network makes this crate panic. Its tests may panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod admin;
pub mod autocomplete;
mod clock;
mod engine;
mod error;
mod foreign;
mod gate;
pub mod guide;
mod latch;
mod lease;
mod lua;
#[cfg(feature = "memory")]
pub mod memory;
mod mutex;
mod permit;
mod rwlock;
pub mod scripts;
mod semaphore;
mod several;
mod shared;
mod sync;
mod trace;
mod wait;

/// Error types: one small enum for each kind of operation, and the types that their variants contain.
///
/// All of them convert into [`Error`], so `?` accepts every one.
pub mod errors {
    pub use crate::error::failure::Failure;
    pub use crate::error::{
        AboveLimit, AcquireError, AlreadyHeld, CallError, Cancelled, Denied, FailureKind, Invalid,
        LimitMismatch, Lost, PermitError, PlaceRevoked, RunError, StillClosed, TryAcquireError, WaitError,
    };
    pub use crate::permit::ReleaseError;
}

pub use engine::counters::Counters;
pub use engine::credentials::Credentials;
pub use error::{Error, Ticket};
pub use gate::{Gate, GateBuilder};
pub use latch::CountDownLatch;
pub use luagate_core::keys::name_from;
pub use mutex::Mutex;
pub use permit::{Permit, Released};
/// The crate `redis` that luagate uses. A program that takes it from here has the matching version.
pub use redis;
pub use rwlock::{RwLock, RwLockUsage};
pub use semaphore::settings::Lease;
pub use semaphore::{Resized, Revoked, Semaphore, inspection};
pub use several::{Several, SeveralPermits};
pub use wait::cancel::Cancel;

/// The README's programs are compiled with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
