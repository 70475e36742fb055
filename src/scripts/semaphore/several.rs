//! Several mutexes in one script.

use super::{Grant, Usage, usage};
use crate::error::CallError;
use crate::protocol::script::{Call, LazyScript};
use crate::scripts::{Keys, Reply, ServerTime, error_of, read, unexpected};
use redis::ConnectionLike;

static TRY_LOCK_ALL: LazyScript = script!("semaphore/try_lock_all");

/// What [`try_lock_all`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryLockAllAnswer {
    /// All are locked: a permit of each, in the order of the keys.
    Granted(Vec<Grant>),
    /// The id had locked all of them already; nothing was granted twice.
    Held(Vec<Grant>),
    /// The id holds none of them.
    Denied {
        /// Which is in the way, from 0 in the order of the keys: the first that is held, or that somebody waits for.
        place: usize,
        /// In how many ms its next lease expires unless it is renewed; `None`: no lease on it that runs now ever expires.
        next_expiry: Option<u64>,
        /// How full it is.
        usage: Usage,
        /// How many wait in line for it.
        waiting: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// Locks up to 64 mutexes at once, all or none, if they are free and nobody waits for one of them. Their names are of one
/// group. `lease_ms` as in [`Ask`](super::Ask). Again with the same id, it grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn try_lock_all(
    con: &mut dyn ConnectionLike,
    mutexes: &[&Keys],
    id: &str,
    lease_ms: u64,
) -> Result<TryLockAllAnswer, CallError> {
    let call = Call {
        keys: mutexes.iter().flat_map(|keys| keys.names()).collect(),
        arguments: vec![id.into(), lease_ms.into()],
    };
    read(
        TRY_LOCK_ALL.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            // One of them may have been locked before, with another lease.
            "granted" => Ok(TryLockAllAnswer::Granted(locks(reply, mutexes.len())?)),
            "held" => Ok(TryLockAllAnswer::Held(locks(reply, mutexes.len())?)),
            "denied" => Ok(TryLockAllAnswer::Denied {
                place: place(reply, mutexes.len())?,
                next_expiry: reply.number_or_never()?,
                usage: usage(reply)?,
                waiting: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}

fn locks(reply: &mut Reply, count: usize) -> Result<Vec<Grant>, CallError> {
    let now = reply.number()?;
    let grants = reply.rows(|row| {
        let grant = Grant {
            permits: 1,
            fence: row.number()?,
            expires_at: row.number_or_never()?,
            now,
        };
        grant.checked()
    })?;
    match grants.len() == count {
        true => Ok(grants),
        false => Err(unexpected(&grants)),
    }
}

/// A place from 1 to `count`, as one from 0.
fn place(reply: &mut Reply, count: usize) -> Result<usize, CallError> {
    let place: usize = reply.number()?;
    match place.checked_sub(1) {
        Some(place) if place < count => Ok(place),
        _ => Err(unexpected(&place)),
    }
}
