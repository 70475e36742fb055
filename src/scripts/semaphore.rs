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

mod inspect;
mod lookup;
mod resize;
mod several;

pub use inspect::{HolderRow, State, WaiterRow, inspect};
pub use lookup::{LookupAnswer, lookup};
pub use resize::{ResizeAnswer, resize};
pub use several::{TryLockAllAnswer, try_lock_all};

use super::{Keys, Reply, ServerTime, error_of, read, unexpected};
use crate::error::CallError;
use crate::protocol::replicas::MinReplicas;
use crate::protocol::script::{Argument, Call, LazyScript};
use redis::{Connection, ConnectionLike, RedisResult, Value};

static ACQUIRE: LazyScript = script!("semaphore/acquire");
static RELEASE: LazyScript = script!("semaphore/release");
static REFRESH: LazyScript = script!("semaphore/refresh");

/// What [`acquire`] asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who asks: 1 to 200 bytes without white space or control characters. An id holds one permit at most.
    pub id: &'a str,
    /// How many permits, 1 to the limit in force; `None`: whatever is free now, at least 1, never in line.
    pub permits: Option<u32>,
    /// The limit that this caller declares; the first grant stores it. 0: whatever is stored.
    pub limit: u32,
    /// How long the permit lives unless refreshed, in ms, up to 100 years; 0: permanent.
    pub lease_ms: u64,
    /// How long the caller stays in line after this call, in ms, up to a day (60 s with no inbox); 0: does not wait.
    pub wait_ms: u64,
    /// The channel on which a grant is told; subscribe to it before asking. Whoever may publish there can send what looks like
    /// a grant, so let a secret of this wait follow, `<channel>#<secret>`: then messages end with the SHA-1 of the secret and
    /// what stands before, as `lua/README.md` has it. Empty: the caller only asks again.
    pub inbox: &'a str,
    /// 0, or the ticket of an earlier answer: brings back the place of a waiter that the server forgot.
    pub ticket: u64,
}

impl Default for Ask<'_> {
    /// One permit for 30 s, at once or not at all. The id and, where none is stored, the limit have to be filled in.
    fn default() -> Self {
        Ask {
            id: "",
            permits: Some(1),
            limit: 0,
            lease_ms: 30_000,
            wait_ms: 0,
            inbox: "",
            ticket: 0,
        }
    }
}

/// A permit as the server tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many permits are held.
    pub permits: u32,
    /// The fencing token: higher than that of every earlier grant of this semaphore.
    pub fence: u64,
    /// The end of the lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The server's time at this reply.
    pub now: ServerTime,
}

/// What [`acquire`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Granted by this call.
    Granted(Grant, Usage),
    /// The id held already; nothing was granted twice.
    Held(Grant, Usage),
    /// In line.
    Queued {
        /// The place in line, for all who wait: the smallest is granted first.
        ticket: u64,
        /// The place in line now, from 1.
        position: u64,
        /// In how many ms asking again makes sense without a message.
        retry_after: u64,
        /// How full it is.
        usage: Usage,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// Not granted and not in line.
    Denied {
        /// In how many ms the next lease expires unless it is renewed; `None`: no lease that runs now ever expires.
        next_expiry: Option<u64>,
        /// How full it is.
        usage: Usage,
        /// How many wait in line.
        waiting: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// More permits were asked for than the limit in force allows. The id has no place in line.
    AboveLimit {
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// How full a semaphore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
}

/// Asks for permits, at once or in line. Again with the same id, it grants nothing twice.
///
/// # Errors
/// [`CallError::Invalid`] for an argument that the script refuses; otherwise what kept the server from answering.
pub fn acquire(con: &mut dyn ConnectionLike, keys: &Keys, ask: &Ask) -> Result<Answer, CallError> {
    let call = Call {
        keys: keys.names().to_vec(),
        arguments: vec![
            ask.id.into(),
            match ask.permits {
                Some(permits) => u64::from(permits).into(),
                None => "all".into(),
            },
            u64::from(ask.limit).into(),
            ask.lease_ms.into(),
            ask.wait_ms.into(),
            ask.inbox.into(),
            ask.ticket.into(),
        ],
    };
    read(
        ACQUIRE.run(con, &call).map_err(error_of)?,
        |reply| match reply.word()? {
            "granted" => {
                let grant = granted(reply, ask.lease_ms)?;
                match ask.permits {
                    Some(asked) if asked != grant.permits => Err(unexpected(&grant)),
                    _ => Ok(Answer::Granted(grant, usage(reply)?)),
                }
            }
            "held" => Ok(Answer::Held(grant(reply)?, usage(reply)?)),
            "queued" => Ok(Answer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                retry_after: reply.number()?,
                usage: usage(reply)?,
                now: reply.number()?,
            }),
            "denied" => Ok(Answer::Denied {
                next_expiry: reply.number_or_never()?,
                usage: usage(reply)?,
                waiting: reply.number()?,
                now: reply.number()?,
            }),
            "above_limit" => Ok(Answer::AboveLimit {
                limit: reply.number()?,
                now: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        },
    )
}

/// What [`release`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// Given back, but for `left`.
    Released {
        /// How many permits the id still holds.
        left: u32,
        /// How full the semaphore is now.
        usage: Usage,
    },
    /// It was in line, and left.
    Cancelled,
    /// It held nothing: its lease had ended, or it was released before.
    Gone,
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
    let reply = RELEASE.run(con, &release_call(keys, id, keep, fence));
    released(reply.map_err(error_of)?)
}

/// Gives back all that each of these has, in one packet; each has its own outcome.
pub(crate) fn release_all(
    con: &mut Connection,
    permits: &[(&Keys, &str, Option<u64>)],
) -> Result<Vec<Result<ReleaseAnswer, CallError>>, CallError> {
    let calls: Vec<Call> = permits
        .iter()
        .map(|(keys, id, fence)| release_call(keys, id, 0, *fence))
        .collect();
    each(RELEASE.run_all(con, &calls, None), permits, |value, _| {
        released(value)
    })
}

fn release_call<'a>(keys: &'a Keys, id: &'a str, keep: u32, fence: Option<u64>) -> Call<'a> {
    let mut arguments = vec![id.into(), u64::from(keep).into()];
    arguments.extend(fence.map(Argument::Number));
    Call {
        keys: keys.names().to_vec(),
        arguments,
    }
}

fn released(value: Value) -> Result<ReleaseAnswer, CallError> {
    read(value, |reply| match reply.word()? {
        "released" => Ok(ReleaseAnswer::Released {
            left: reply.number()?,
            usage: usage(reply)?,
        }),
        "cancelled" => Ok(ReleaseAnswer::Cancelled),
        "gone" => Ok(ReleaseAnswer::Gone),
        other => Err(unexpected(&other)),
    })
}

/// Gives a permit a new lease of `lease_ms`, counted from now (0: permanent). `None`: it is lost, and not brought back.
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
    let reply = REFRESH.run(con, &refresh_call(keys, id, lease_ms, fence));
    refreshed(reply.map_err(error_of)?, lease_ms)
}

/// Refreshes many in one packet; each has its own outcome. Where `replicas` are to confirm it, nothing is refreshed for the
/// caller unless they did.
pub(crate) fn refresh_all(
    con: &mut Connection,
    permits: &[(&Keys, &str, u64, Option<u64>)],
    replicas: Option<&MinReplicas>,
) -> Result<Vec<Result<Option<Grant>, CallError>>, CallError> {
    let calls: Vec<Call> = permits
        .iter()
        .map(|(keys, id, lease_ms, fence)| refresh_call(keys, id, *lease_ms, *fence))
        .collect();
    // It covers what this connection wrote, and whatever was written before: a grant that another one made.
    let wait = replicas.map(MinReplicas::command);
    let mut replies = REFRESH.run_all(con, &calls, wait.as_ref());
    let confirmed = match (replicas, &mut replies) {
        (Some(replicas), Ok(replies)) => replicas.check(replies.pop()),
        _ => Ok(()),
    };
    let mut outcomes = each(replies, permits, |value, (_, _, lease_ms, _)| {
        refreshed(value, *lease_ms)
    })?;
    if let Err(error) = confirmed {
        let refreshed = outcomes
            .iter_mut()
            .filter(|outcome| matches!(outcome, Ok(Some(_))));
        refreshed.for_each(|outcome| *outcome = Err(error.clone()));
    }
    Ok(outcomes)
}

fn refresh_call<'a>(keys: &'a Keys, id: &'a str, lease_ms: u64, fence: Option<u64>) -> Call<'a> {
    let mut arguments = vec![id.into(), lease_ms.into()];
    arguments.extend(fence.map(Argument::Number));
    Call {
        keys: keys.names().to_vec(),
        arguments,
    }
}

fn refreshed(value: Value, lease_ms: u64) -> Result<Option<Grant>, CallError> {
    read(value, |reply| match reply.word()? {
        "refreshed" => granted(reply, lease_ms).map(Some),
        "lost" => reply.number::<ServerTime>().map(|_| None),
        other => Err(unexpected(&other)),
    })
}

/// The outcomes of calls for each of `permits` in one packet. One that says that the connection is of no use says it for all.
fn each<P, T>(
    replies: RedisResult<Vec<RedisResult<Value>>>,
    permits: &[P],
    read: impl Fn(Value, &P) -> Result<T, CallError>,
) -> Result<Vec<Result<T, CallError>>, CallError> {
    let mut outcomes = Vec::with_capacity(permits.len());
    // Of a packet more than one reply may be due still.
    let replies = replies.map_err(|error| match error_of(error) {
        CallError::Unknown(failure) => CallError::Unknown(failure.of_several()),
        error => error,
    });
    for (reply, permit) in replies?.into_iter().zip(permits) {
        let outcome = reply.map_err(error_of);
        match outcome.and_then(|value| read(value, permit)) {
            Err(CallError::Failed(failure)) if failure.is_broken() => {
                return Err(CallError::Failed(failure));
            }
            outcome => outcomes.push(outcome),
        }
    }
    Ok(outcomes)
}

fn grant(reply: &mut Reply) -> Result<Grant, CallError> {
    let grant = Grant {
        permits: reply.number()?,
        fence: reply.number()?,
        expires_at: reply.number_or_never()?,
        now: reply.number()?,
    };
    grant.checked()
}

/// A grant of this very call, with the lease that it asked for.
fn granted(reply: &mut Reply, lease_ms: u64) -> Result<Grant, CallError> {
    let grant = grant(reply)?;
    grant.check_lease(lease_ms)?;
    Ok(grant)
}

fn usage(reply: &mut Reply) -> Result<Usage, CallError> {
    Ok(Usage {
        in_use: reply.number()?,
        limit: reply.number()?,
    })
}

impl Grant {
    /// Nobody holds nothing, or by a lease that has ended.
    fn checked(self) -> Result<Grant, CallError> {
        let lives = self.expires_at.is_none_or(|end| end > self.now);
        match self.permits > 0 && self.fence > 0 && lives {
            true => Ok(self),
            false => Err(unexpected(&self)),
        }
    }

    fn check_lease(&self, lease_ms: u64) -> Result<(), CallError> {
        let end = (lease_ms > 0).then(|| self.now.saturating_add(lease_ms));
        match self.expires_at == end {
            true => Ok(()),
            false => Err(unexpected(self)),
        }
    }

    /// How long the lease ran at the server's `now`; `None`: for ever.
    pub(crate) fn left(&self) -> Option<std::time::Duration> {
        self.expires_at.map(|end| super::between(self.now, end))
    }
}
