//! Shared by the tests: servers, processes that use them, and the recording and checking of their calls.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of this")]

pub mod circles;
pub mod clock;
pub mod cluster;
pub mod counts;
pub mod group;
pub mod history;
pub mod includes;
pub mod load;
pub mod planted;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod refusing;
pub mod resolver;
pub mod sentinel;
mod server;
pub mod service;
pub mod stop;
pub mod stub_sentinel;
pub mod thin;
pub mod usage;
pub mod workers;

pub use counts::{calls_in_scripts, command_counts, reset_counts};
pub use server::*;

/// The folder of the library.
pub fn root() -> &'static std::path::Path {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|folder| folder.join("lua/manifest.json").is_file());
    root.expect("a folder with the scripts")
}
