//! A server in this process, for tests that need none. With the feature `memory`.

mod command;
mod interpreter;
mod list;
mod range;
mod server;
mod sorted_set;
mod store;

pub use server::Server;
pub use store::Store;
