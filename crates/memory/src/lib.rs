//! An in-memory Redis server for tests. It has the commands that the Lua scripts of luagate call, and a few
//! others.
//!
//! ```
//! let mut server = luagate_memory::Server::new()?;
//! let text = "return redis.call('SET', KEYS[1], ARGV[1])";
//! redis::cmd("EVAL").arg(text).arg(1).arg("key").arg("value").exec(&mut server)?;
//! let value: String = redis::cmd("GET").arg("key").query(&mut server)?;
//! assert_eq!(value, "value");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
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
