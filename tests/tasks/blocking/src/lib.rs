//! The names and functions of luagate's synchronous API, each of which calls the async API and blocks until its future
//! is ready. The tests of the synchronous API compile against this crate too, so one text tests both APIs.
//!
//! Three things differ from a plain translation:
//!
//! - Dropping a permit or a guard drops the one of the async API, which hands the release to the gate's task. Then it
//!   waits until the releases of the gate are confirmed, for at most 100 ms, as the synchronous API promises. With
//!   [`GateBuilder::drop_in_background`] it does not wait, like the async API.
//! - [`GateBuilder::connections`] and [`GateBuilder::write_timeout`] have no effect: an async gate has one connection for
//!   each server, and sending a call needs no thread.
//! - There is no `GateBuilder::pool`.

pub mod autocomplete;
pub mod errors;
mod gate;
mod latch;
mod locks;
pub mod memory;
mod permit;
mod runtime;
mod semaphore;
mod several;

pub use gate::{Gate, GateBuilder};
pub use latch::CountDownLatch;
pub use locks::{Mutex, MutexGuard, RwLock, RwLockGuard, RwLockReadGuard, RwLockWriteGuard};
pub use luagate::{
    Cancel, Counters, Error, Released, Resized, Revoked, RwLockUsage, Warning, inspection, name_from, redis, scripts,
};
pub use permit::Permit;
pub use semaphore::Semaphore;
pub use several::{Several, SeveralPermits};
