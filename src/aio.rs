//! The same API for async code: waiting does not block a thread. It needs no runtime, and works in every one.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), luagate::Error> {
//! let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
//! let market = gate.semaphore("market:account:17", 5); // at most 5 permits at a time, over all processes
//! let permit = market.acquire_timeout(Duration::from_secs(2)).await?; // waits in line: first come, first served
//! permit.release().await?; // dropping the permit releases it too
//! # Ok(())
//! # }
//! ```
//!
//! Names, settings, errors and guarantees are those of the [synchronous types](crate), and both share semaphores with
//! each other and with the clients in other languages. These are the differences:
//!
//! - **Executors.** All types work on tokio, smol, `futures::executor::block_on` and every other executor. The connections
//!   and threads of a gate do not belong to a runtime. So a gate that was opened in one runtime works in another one, also
//!   after the first has ended, or while nobody drives it. Leases are renewed meanwhile. All time limits are real time, also
//!   under `tokio::time::pause`.
//! - **Connections.** Any number of tasks share the connections of a gate: 10,000 tasks that wait in line need two sockets,
//!   and no thread for each.
//! - **Cancel safety.** Every future can be dropped at any time. A dropped wait leaves the line, and a grant that still
//!   arrives is released. So `tokio::time::timeout(time, semaphore.acquire())` is as good as `acquire_timeout(time)`.
//! - **Drop.** Dropping a permit or a guard never blocks and never panics. [`Permit::release`] waits for the result of the
//!   release, and [`Gate::close`] waits for all of them at the end of a program.
//! - **Unpolled futures.** If a future gets a grant and is not polled for one second, the grant is given back, so that it
//!   blocks no other caller. The future asks again when it is polled, with its place in line. This happens to futures in
//!   a `select` whose task works on another branch.
//! - **Loss.** [`Permit::lost`] waits for the loss of a permit, and [`Semaphore::run`] drops the work when its permit is
//!   lost.
//!
//! The [guide](crate::guide::async_programs) shows complete programs.

pub mod autocomplete;
mod builder;
mod gate;
mod latch;
mod mutex;
mod permit;
mod run;
mod rwlock;
mod semaphore;
mod several;

pub use builder::GateBuilder;
pub use gate::Gate;
pub use latch::CountDownLatch;
pub use mutex::{Mutex, MutexGuard};
pub use permit::Permit;
pub use rwlock::{RwLock, RwLockGuard, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use several::{Several, SeveralPermits};
