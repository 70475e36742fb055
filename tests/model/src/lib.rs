//! Model checking of the connection in `src/engine`: its writer, its reader, its places, and its own thread.
//!
//! `build.rs` copies the files of the library. In place of the library's locks, threads and clock, the copy uses those of
//! this crate. So the model decides the order in which threads run, and when time passes: see `world.rs`. The server is a
//! thread of the model (`wire.rs`), and so are the callers (`case.rs`, `tasks.rs`, `mailboxes.rs`). The folder `scenarios`
//! lists what they do.
//!
//! # What is checked
//! - Each call gets its own replies, or an error that the events of the scenario explain. A call that failed as not sent
//!   was not sent.
//! - Each posted packet gets its replies or an error, once.
//! - Nobody waits for ever. Nobody is woken late: only because time passes.
//! - Packets of a caller reach the server in their order, and once.
//! - Two threads never write at the same time, and two never read.
//! - When nobody needs the connection, no thread reads. When it is closed, its own thread ends.
//!
//! # The bound
//! In the default execution, a thread runs until it blocks. Then the next one in order runs. Time passes, or an event
//! happens, only if no thread can run. [`explore`] runs every execution that deviates from this at no more than a given
//! number of points: another thread runs, an event happens, time passes, or a read returns only a part. Most scenarios
//! have two threads and a task, some have a third thread or a second task. [`sample`] runs random executions, without a
//! bound, of three threads and two tasks that do anything.
//!
//! # What is not checked
//! - Locks and atomics behave as if all threads ran on one processor. The connection has atomics only for flags.
//! - A condition variable wakes nobody without a reason.
//! - A write does not block.
//! - The stream itself, and a clock that a test moves.

mod case;
mod clock;
mod error;
mod mailboxes;
mod plan;
pub mod planted;
mod run;
mod scenarios;
mod sync;
mod tasks;
mod wire;
mod world;

pub use run::{Failure, Report, explore, sample, story};
pub use scenarios::{ANYTHING, CALLS, IDLE, MESSAGES, POSTS, Scenario};

/// The files of `src/engine`, as `build.rs` has copied them.
#[allow(warnings, clippy::all)]
mod engine {
    include!(concat!(env!("OUT_DIR"), "/engine/mod.rs"));
}
