//! An in-memory Redis server for tests. It implements the commands that the Lua scripts of luagate use, and a few others.

#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod command;
mod interpreter;
mod keyspace;
mod list;
mod listener;
mod packing;
mod range;
mod server;
mod sorted_set;
mod store;

pub use listener::Listener;
pub use server::Server;
pub use store::Store;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
