//! Model checking of `src/engine`: of the connection with its writer, its reader and its own thread; of the
//! gate's own thread with its jobs, its work and its timers; and of values for whose change threads and tasks
//! wait. Also of `src/wait/polled.rs`, which gives back the grants of futures that are not polled.
//!
//! The files of the library are compiled as they are, with the `cfg` `luagate_model`, which only makes some
//! buffers and times smaller (`engine.rs`, `wait.rs`). In place of the library's locks, threads and clock,
//! they use those of this crate (`sync.rs`, `clock.rs`). So the model decides the order in which threads run,
//! and when time passes: see `world.rs`. The server is a thread of the model (`wire.rs`), and so are the
//! callers (`case.rs`, `tasks.rs`, `mailboxes.rs`). The gate's own thread works for a gate of the model
//! (`gate.rs`, `timed_job.rs`, `timer.rs`). `changes.rs` has a value for whose change callers wait. The
//! futures belong to a client (`client.rs`, `releases.rs`) that uses the library's protocol. Their server has
//! one permit (`remote.rs`, `semaphore.rs`), which another client wants too. The folder `scenarios` lists the
//! work of the callers.
//!
//! A point `fault!` in the library is a planted fault: `planted.rs` lists them, each with the scenario that
//! finds it.
//!
//! # What is checked of the connection
//! - Each call gets its own replies, or an error that the events of the scenario explain. A call that failed
//!   as not sent was not sent.
//! - Each posted packet gets its replies or an error, once.
//! - Nobody waits for ever. Nobody is woken late: only because time passes.
//! - Packets of a caller reach the server in their order, and once.
//! - Two threads never write at the same time, and two never read.
//! - No lock is held while a task is woken, or while its waker is copied or dropped.
//! - The wait of a task ends in time, also if the server is silent.
//! - When nobody needs the connection, no thread reads. When it is closed, its own thread ends.
//!
//! # What is checked of the gate's own thread
//! - After each call, each job works. Each job works at the latest at the time for which it was called, or
//!   for which it asked.
//! - No job is dropped while it has work left, also if the gate is dropped. Afterwards all jobs are dropped.
//! - Work that was spawned is polled whenever it is woken, until its end, and is dropped then.
//! - A task that sleeps is woken at its time, by its present waker. A timer that was dropped wakes nobody.
//! - When nothing is left, the thread ends. It is started again when it is needed, also after the system
//!   could not start a thread.
//! - No lock is held while a job works, while work is polled or dropped, or while a waker is used or dropped.
//!
//! # What is checked of a value
//! - A change wakes all threads and tasks that wait, also a task that has another waker now.
//! - A thread with a deadline returns at the deadline, and not before.
//! - Work that blocks returns its result to its caller, or no thread could be started.
//! - No lock is held while a task is woken.
//!
//! # What is checked of a future that waits for a permit
//! - A future that is not polled keeps no permit: another client gets it soon.
//! - A permit that a future returns was not given back, and is not while it is used.
//! - A future that is polled again gets the permit. One that is dropped leaves nothing on the server.
//! - No lock is held while its task is woken.
//!
//! Nobody is late: when no thread can run, time passes only up to the next moment at which somebody must be
//! woken.
//!
//! # The bound
//! In the default execution, a thread runs until it blocks. Then the next one in order runs. Time passes, or
//! an event happens, only if no thread can run. [`explore`] runs every execution that deviates from this at
//! no more than a given number of points: another thread runs, an event happens, time passes, or a read
//! returns only a part. Most scenarios have two threads and a task, some have a third thread or a second
//! task. The bound is two deviations for the connection and for futures, and three for the rest. [`sample`]
//! runs random executions, without a bound, of three threads and two tasks that do anything, and of a future
//! that is polled in any way.
//!
//! # What is not checked
//! - Locks and atomics behave as if all threads ran on one processor. The connection has atomics only for
//!   flags.
//! - A condition variable wakes nobody without a reason.
//! - Code of the program that panics or blocks.
//! - The jobs of the library: the jobs of the model are called as these are. A thread that cannot be started
//!   for the last call. A fork.
//! - A write does not block.
//! - The stream itself, and a clock that a test moves.
//! - Several permits in one future, and more than one future. Calls of a future that fail.

mod case;
mod changes;
mod client;
mod clock;
#[allow(dead_code, reason = "the library uses the rest")]
mod engine;
#[allow(dead_code, reason = "the library uses the rest")]
mod foreign;
mod gate;
mod mailboxes;
mod plan;
pub mod planted;
mod releases;
mod remote;
mod run;
mod scenarios;
mod semaphore;
mod sync;
mod tasks;
mod timed_job;
mod timer;
#[allow(dead_code, reason = "the library uses the rest")]
mod wait;
mod waker;
mod wire;
mod world;

pub use run::{Failure, Report, explore, sample, story};
pub use scenarios::{
    ANYTHING, ANYTHING_WITH_FUTURE, ANYTHING_WITH_GATE, CALLS, FUTURES, IDLE, JOBS, MESSAGES, POSTS,
    Scenario, VALUES, WORK,
};

/// What `wait` uses of the library.
mod lease {
    pub(crate) use crate::releases;
}
