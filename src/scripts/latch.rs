//! The scripts of the latch: it opens once so many ids have counted down, and stays open until it is forgotten.
//!
//! ```no_run
//! use luagate::scripts::{LatchKeys, latch};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let keys = LatchKeys::new("luagate", "import:2026-07-01")?;
//! latch::count_down(&mut con, &keys, "part-1", 3, 86_400_000)?;
//! if let latch::CountAnswer::Closed { left, .. } = latch::count(&mut con, &keys)? {
//!     println!("{left} parts are left");
//! }
//! # Ok(())
//! # }
//! ```

use super::run;
use crate::error::CallError;
use crate::protocol::keys::LatchKeys;
use crate::protocol::latch::{Count, CountDown, Delete, Wait};
pub use crate::protocol::latch::{CountAnswer, CountDownAnswer, DeleteAnswer, WaitAnswer};
use redis::ConnectionLike;

/// Counts `id`, once; the last of `count` opens the latch. Again with the same id, it counts nothing twice. The latch is kept
/// for `life_ms` (1 to 100 years) from now at least.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn count_down(
    con: &mut dyn ConnectionLike,
    keys: &LatchKeys,
    id: &str,
    count: u32,
    life_ms: u64,
) -> Result<CountDownAnswer, CallError> {
    run(con, &CountDown { keys, id, count, life_ms })
}

/// Asks whether the latch is open, and to be told on the channel `inbox` if it opens within `wait_ms` (up to a day; 0, or an
/// empty inbox: is not told). The latch is kept for `life_ms` (1 to 100 years) from now at least. Blocks for the call only.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn wait(
    con: &mut dyn ConnectionLike,
    keys: &LatchKeys,
    count: u32,
    life_ms: u64,
    wait_ms: u64,
    inbox: &str,
) -> Result<WaitAnswer, CallError> {
    run(con, &Wait { keys, count, life_ms, wait_ms, inbox })
}

/// How many have still to count down. Changes nothing.
///
/// # Errors
/// What kept the server from answering.
pub fn count(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<CountAnswer, CallError> {
    run(con, &Count { keys })
}

/// Deletes the latch and what was counted. Sends a message to at most 100 of the inboxes that wait for it. Who asks after that
/// starts it afresh, with the count that this caller declares.
///
/// # Errors
/// What kept the server from answering.
pub fn delete(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<DeleteAnswer, CallError> {
    run(con, &Delete { keys })
}
