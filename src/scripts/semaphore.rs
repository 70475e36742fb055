//! The scripts of the semaphore: a weighted, leased, first-in-first-out counting semaphore. A mutex is one with the
//! limit 1.
//!
//! ```no_run
//! use luagate::scripts::{semaphore, Keys};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let keys = Keys::semaphore("luagate", "market:17")?;
//! let ask = semaphore::Ask { id: "worker-1", limit: 5, ..semaphore::Ask::default() };
//! if let semaphore::Answer::Granted(grant, _) = semaphore::acquire(&mut con, &keys, &ask)? {
//!     println!("inside, with fence {}", grant.fence);
//!     semaphore::release(&mut con, &keys, "worker-1", 0, None)?;
//! }
//! # Ok(())
//! # }
//! ```

use super::run;
use crate::error::CallError;
use crate::protocol::keys::Keys;
use crate::protocol::semaphore::{Acquire, Inspect, Lookup, Refresh, Release, Resize, TryAcquireAll};
pub use crate::protocol::semaphore::{
    Answer, Ask, AskOne, Grant, HolderRow, Line, LookupAnswer, ReleaseAnswer, ResizeAnswer, State, TryAcquireAllAnswer,
    Usage, WaiterRow,
};
use redis::ConnectionLike;

/// Asks for permits, at once or in line. Again with the same id, it grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn acquire(con: &mut dyn ConnectionLike, keys: &Keys, ask: &Ask) -> Result<Answer, CallError> {
    run(con, &Acquire { keys, ask: *ask })
}

/// Gives permits back, but for `keep`, or a place in the queue. Again, it changes nothing more.
///
/// With a `fence`, only the permit with this fence, or the place in line with this ticket; otherwise the answer is
/// [`Gone`](ReleaseAnswer::Gone). So a call that reaches the server late does not touch a later grant of the same id.
///
/// # Errors
/// [`CallError::Invalid`] when `keep` is more than the id holds; otherwise what kept the server from answering.
pub fn release(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    id: &str,
    keep: u32,
    fence: Option<u64>,
) -> Result<ReleaseAnswer, CallError> {
    run(con, &Release { keys, id, keep, fence })
}

/// Gives a permit a new lease of `lease_ms`, counted from now (0: permanent). `None`: it is lost, and not brought back.
///
/// A lease never ends before the minimum hold of its permit.
///
/// With a `fence`, only the permit with this fence; what the id holds under another one is left as it is.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn refresh(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    id: &str,
    lease_ms: u64,
    fence: Option<u64>,
) -> Result<Option<Grant>, CallError> {
    run(con, &Refresh { keys, id, lease_ms, fence })
}

/// What an id has. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for an id that cannot be; otherwise what kept the server from answering.
pub fn lookup(con: &mut dyn ConnectionLike, keys: &Keys, id: &str) -> Result<LookupAnswer, CallError> {
    run(con, &Lookup { keys, id })
}

/// Who holds and who waits: at most `count` (up to 1,000) of each, from the `offset`-th on. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for a count above 1,000; otherwise what kept the server from answering.
pub fn inspect(con: &mut dyn ConnectionLike, keys: &Keys, offset: u32, count: u32) -> Result<State, CallError> {
    run(con, &Inspect { keys, offset, count })
}

/// Sets the limit and pins it, so that it no longer expires; 0 unpins. With `expected`, only if that is in force.
///
/// # Errors
/// What kept the server from answering.
pub fn resize(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    limit: u32,
    expected: Option<u32>,
) -> Result<ResizeAnswer, CallError> {
    run(con, &Resize { keys, limit, expected })
}

/// Asks for permits of up to 64 semaphores at once, all or none: granted if each has enough free and nobody waits for one of them.
/// Their names are of one group. Again with the same id, it grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn try_acquire_all(
    con: &mut dyn ConnectionLike,
    id: &str,
    asked: &[AskOne],
) -> Result<TryAcquireAllAnswer, CallError> {
    run(con, &TryAcquireAll { id, asked })
}
