//! The scripts of the semaphore: a weighted, leased, first-in-first-out counting semaphore. A mutex is a
//! semaphore with the limit 1.
//!
//! ```no_run
//! use luagate::scripts::{semaphore, Keys};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let keys = Keys::semaphore("luagate", "market:17")?;
//! let ask = semaphore::Ask { id: "worker-1", limit: 5, ..semaphore::Ask::default() };
//! if let semaphore::AcquireAnswer::Granted(grant, _) = semaphore::acquire(&mut con, &keys, &ask)? {
//!     println!("granted, with fence {}", grant.fence);
//!     semaphore::release(&mut con, &keys, "worker-1", 0, Some(grant.fence))?;
//! }
//! # Ok(())
//! # }
//! ```

use super::run;
use crate::error::CallError;
use luagate_core::keys::Keys;
pub use luagate_core::semaphore::{
    Acquire, AcquireAnswer, Ask, AskOne, Grant, HolderRow, Inspect, Line, Lookup, LookupAnswer, Refresh,
    Release, ReleaseAnswer, Resize, ResizeAnswer, State, TryAcquireSeveral, TryAcquireSeveralAnswer, Usage,
    WaiterRow,
};
use redis::ConnectionLike;

/// Asks for permits, at once or in line. Repeating the call with the same id grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses. Otherwise the reason why there was no
/// valid reply.
pub fn acquire(con: &mut dyn ConnectionLike, keys: &Keys, ask: &Ask) -> Result<AcquireAnswer, CallError> {
    run(con, &Acquire { keys, ask: *ask })
}

/// Releases all permits of an id except `keep`, or its place in line. Repeating the call changes nothing.
///
/// With a `fence`, it releases only the permit with this fence, or the place in line with this ticket.
/// Otherwise the answer is [`Gone`](ReleaseAnswer::Gone). So a delayed call does not affect a later grant of
/// the same id.
///
/// # Errors
/// [`CallError::Invalid`] if `keep` is more than the id holds. Otherwise the reason why there was no valid
/// reply.
pub fn release(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    id: &str,
    keep: u32,
    fence: Option<u64>,
) -> Result<ReleaseAnswer, CallError> {
    run(con, &Release { keys, id, keep, fence })
}

/// Starts a new lease of `lease_ms` from now (0: permanent). `None`: the permit is lost, and the call does
/// not restore it.
///
/// A lease never ends before the minimum hold of its permit.
///
/// With a `fence`, it refreshes only the permit with this fence. A permit of the id with another fence does
/// not change.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses. Otherwise the reason why there was no
/// valid reply.
pub fn refresh(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    id: &str,
    lease_ms: u64,
    fence: Option<u64>,
) -> Result<Option<Grant>, CallError> {
    run(con, &Refresh { keys, id, lease_ms, fence })
}

/// Returns the permits or the place in line of an id. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for an id that is not valid. Otherwise the reason why there was no valid reply.
pub fn lookup(con: &mut dyn ConnectionLike, keys: &Keys, id: &str) -> Result<LookupAnswer, CallError> {
    run(con, &Lookup { keys, id })
}

/// Returns the holders and the waiters: at most `count` (up to 1,000) of each, without the first `offset`
/// entries. Changes nothing.
///
/// # Errors
/// [`CallError::Invalid`] for a count above 1,000. Otherwise the reason why there was no valid reply.
pub fn inspect(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    offset: u32,
    count: u32,
) -> Result<State, CallError> {
    run(con, &Inspect { keys, offset, count })
}

/// Sets the limit and pins it, so that it no longer expires. 0 removes the pin. With `expected`, only if that
/// limit is in force.
///
/// # Errors
/// The reason why there was no valid reply.
pub fn resize(
    con: &mut dyn ConnectionLike,
    keys: &Keys,
    limit: u32,
    expected: Option<u32>,
) -> Result<ResizeAnswer, CallError> {
    run(con, &Resize { keys, limit, expected })
}

/// Asks for permits of up to 64 semaphores, all or none. They are granted if each semaphore has enough free
/// permits and no caller waits for any of them. All names must share a group. Repeating the call with the
/// same id grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses. Otherwise the reason why there was no
/// valid reply.
pub fn try_acquire_several(
    con: &mut dyn ConnectionLike,
    id: &str,
    asked: &[AskOne],
) -> Result<TryAcquireSeveralAnswer, CallError> {
    run(con, &TryAcquireSeveral { id, asked })
}
