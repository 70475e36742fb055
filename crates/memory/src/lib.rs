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

mod commands;
mod interpreter;
mod listener;
mod reply;
mod resp;
mod server;
mod sorted_set;
mod state;
mod store;
mod sync;

pub use listener::Listener;
pub use server::Server;
pub use store::Store;
