//! The same API for tokio: waiting does not block a thread. Needs the feature `tokio`.
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
//! - **Connections.** A gate has one connection for each server. Any number of tasks share it: 10,000 tasks that wait in
//!   line need one socket and no thread. Messages arrive on the same connection, or on a second one if the server or a
//!   proxy does not know RESP3. If this connection breaks, the gate's waiters have no subscription until the gate has
//!   connected again. If their turn comes meanwhile, they are skipped, and may be overtaken.
//! - **Cancel safety.** Every future can be dropped at any time. A dropped wait leaves the line, and a grant that still
//!   arrives is released. So `tokio::time::timeout(time, semaphore.acquire())` is as good as `acquire_timeout(time)`.
//! - **Drop.** Dropping a permit or a guard never blocks and never panics. The gate's task sends the release.
//!   [`Permit::release`] waits for its result, and [`Gate::close`] waits for all of them at the end of a program.
//! - **Unpolled futures.** If a future gets a grant and is not polled for one second, the grant is given back, so that it
//!   blocks no other caller. The future asks again when it is polled, with its place in line. This happens to futures in
//!   a `select` whose task works on another branch.
//! - **Loss.** [`Permit::lost`] waits for the loss of a permit, and [`Semaphore::run`] drops the work when its permit is
//!   lost.
//!
//! All types need a tokio runtime with time and I/O, as from `#[tokio::main]`, except for dropping them. The task of a
//! gate runs on the runtime in which the gate was opened. If that runtime has ended, the next call in another runtime
//! starts a new one.
//!
//! For TLS enable the feature `tokio-tls`. The [guide](crate::guide::async_programs) shows complete programs.

pub mod autocomplete;
mod builder;
mod gate;
mod latch;
mod lease;
mod mutex;
mod permit;
mod run;
mod rwlock;
mod semaphore;
mod several;
mod shared;
mod transport;
mod wait;

pub use builder::GateBuilder;
pub use gate::Gate;
pub use latch::CountDownLatch;
pub use mutex::{Mutex, MutexGuard};
pub use permit::Permit;
pub use rwlock::{RwLock, RwLockGuard, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use several::{Several, SeveralPermits};
