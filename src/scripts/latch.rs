//! The scripts of the latch. A latch opens after a number of ids have counted down, and stays open until it
//! is removed.
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
use luagate_core::keys::LatchKeys;
pub use luagate_core::latch::{
    Count, CountAnswer, CountDown, CountDownAnswer, Delete, DeleteAnswer, Wait, WaitAnswer,
};
use redis::ConnectionLike;

/// Counts `id` once. The last one of `count` opens the latch. Repeating the call with the same id does not
/// count again. The latch is kept for at least `life_ms` from now, 1 ms to 100 years.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses. Otherwise the reason why there was no
/// valid reply.
pub fn count_down(
    con: &mut dyn ConnectionLike,
    keys: &LatchKeys,
    id: &str,
    count: u32,
    life_ms: u64,
) -> Result<CountDownAnswer, CallError> {
    run(con, &CountDown { keys, id, count, life_ms })
}

/// Returns whether the latch is open, and does not wait. If it opens within `wait_ms` (up to a day), the
/// server sends a message to the channel `inbox`. With a `wait_ms` of 0 or an empty `inbox`, it sends none.
/// The latch is kept for at least `life_ms` from now, 1 ms to 100 years.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses. Otherwise the reason why there was no
/// valid reply.
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

/// Returns how many have not counted down yet. Changes nothing.
///
/// # Errors
/// The reason why there was no valid reply.
pub fn count(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<CountAnswer, CallError> {
    run(con, &Count { keys })
}

/// Deletes the latch with its count. Sends a message to at most 100 of the inboxes that wait for it. The next
/// call starts a new latch, with the count that its caller declares.
///
/// # Errors
/// The reason why there was no valid reply.
pub fn delete(con: &mut dyn ConnectionLike, keys: &LatchKeys) -> Result<DeleteAnswer, CallError> {
    run(con, &Delete { keys })
}
