//! The calls of the semaphore scripts, and their answers.

use super::call::{Argument, Call, Packed, PackedKeys};
use super::keys::Keys;
use super::lease::ServerTime;
use super::reply::{Reply, between, read, unexpected};
use super::script::{ScriptName, Scripts};
use crate::failure::CallError;
use crate::value::Value;
use std::time::Duration;

/// A permit, as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many permits are held.
    pub permits: u32,
    /// The fencing token: higher than that of every earlier grant of this semaphore, with the exceptions of
    /// `Permit::fence`.
    pub fence: u64,
    /// The end of the lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The server's time at this reply.
    pub now: ServerTime,
}

impl Grant {
    fn read(reply: &mut Reply) -> Result<Grant, CallError> {
        let grant = Grant {
            permits: reply.number()?,
            fence: reply.number()?,
            expires_at: reply.number_or_never()?,
            now: reply.number()?,
        };
        grant.checked()
    }

    /// Reads a grant by this call. It must have the lease that the call asked for, or a longer one because of
    /// a minimum hold.
    fn read_of_lease(reply: &mut Reply, lease_ms: u64, at_least_ms: Option<u64>) -> Result<Grant, CallError> {
        let grant = Grant::read(reply)?;
        let end = (lease_ms > 0).then(|| grant.now.saturating_add(lease_ms.max(at_least_ms.unwrap_or(0))));
        let fits = match (grant.expires_at, end) {
            // A refresh does not contain the minimum hold.
            (Some(ends), Some(end)) if at_least_ms.is_none() => ends >= end,
            (ends, end) => ends == end,
        };
        if fits { Ok(grant) } else { Err(unexpected(&grant)) }
    }

    /// Rejects a grant of zero permits, without a fence, or with a lease that has ended.
    fn checked(self) -> Result<Grant, CallError> {
        let lives = self.expires_at.is_none_or(|end| end > self.now);
        if self.permits > 0 && self.fence > 0 && lives { Ok(self) } else { Err(unexpected(&self)) }
    }

    /// The time since the grant at the server's `now`, or up to 1 ms less. A fence is the server's time in
    /// microseconds, or higher. `None`: it is ahead of the clock, so the time is unknown.
    pub(super) fn age(&self) -> Option<Duration> {
        let now = self.now.saturating_mul(1_000);
        (self.fence < now.saturating_add(1_000))
            .then(|| Duration::from_micros(now.saturating_sub(self.fence)))
    }

    #[doc(hidden)]
    /// The time that was left of the lease at the server's `now`; `None`: permanent.
    pub fn left(&self) -> Option<Duration> {
        self.expires_at.map(|end| between(self.now, end))
    }
}

/// How many permits of a semaphore are in use, and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
}

impl Usage {
    fn read(reply: &mut Reply) -> Result<Usage, CallError> {
        Ok(Usage { in_use: reply.number()?, limit: reply.number()? })
    }
}

/// The arguments of `acquire`.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The id of the caller: 1 to 200 bytes without white space or control characters. An id holds at most
    /// one permit of a semaphore.
    pub id: &'a str,
    /// How many permits: 1 to the limit in force. `None`: all that are free now, at least 1; such a caller
    /// never waits in line.
    pub permits: Option<u32>,
    /// The limit that this caller declares; the first grant stores it. 0: declares none, the stored limit
    /// applies.
    pub limit: u32,
    /// The lease in ms, up to 100 years: the permit ends after this time unless it is refreshed. 0:
    /// permanent.
    pub lease_ms: u64,
    /// How long the caller stays in line after this call, in ms, up to a day (60 s with no inbox). 0: does
    /// not wait.
    pub wait_ms: u64,
    /// The channel to which the server sends a message when it grants. Subscribe to it before this call. Any
    /// client that may publish on the channel can send a forged grant message. Therefore append a secret of
    /// this wait: `<channel>#<secret>`. Then each message ends with the SHA-1 of the secret and the text
    /// before it, as `lua/README.md` describes. Empty: no messages, the caller only asks again.
    pub inbox: &'a str,
    /// 0, or the ticket of an earlier answer: restores the place of a waiter if the server lost it. One that
    /// no server gave counts as 0.
    pub ticket: u64,
    /// Joins the line only while fewer than this number wait; 0: no maximum. A caller that is in line already
    /// stays in line.
    pub max_waiting: u32,
    /// Minimum hold, in ms, up to 100 years: permits that are released earlier count as in use until this
    /// time after the grant. 0: none. The lease is at least as long.
    pub at_least_ms: u64,
    /// Head start, in ms, up to a day: the caller joins the line as if it had come that much earlier. 0:
    /// none.
    pub head_start_ms: u64,
}

impl Default for Ask<'_> {
    /// One permit for 30 s, without waiting. The caller must fill in the id, and the limit if none is stored.
    fn default() -> Self {
        Ask {
            id: "",
            permits: Some(1),
            limit: 0,
            lease_ms: 30_000,
            wait_ms: 0,
            inbox: "",
            ticket: 0,
            max_waiting: 0,
            at_least_ms: 0,
            head_start_ms: 0,
        }
    }
}

/// The answer of `acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAnswer {
    /// Granted by this call.
    Granted(Grant, Usage),
    /// The id already held a permit. Nothing was granted twice.
    Held(Grant, Usage),
    /// The caller waits in line.
    Queued {
        /// The number that orders all waiters: the smallest ticket is granted first. Fences of this place in
        /// line are above the ticket plus the head start in µs.
        ticket: u64,
        /// The position in line now, from 1.
        position: u64,
        /// The time in ms after which the caller should ask again if no message arrives.
        retry_after: u64,
        /// How full the semaphore is.
        usage: Usage,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// Not granted and not in line. Either the caller does not wait, and too little is free or others wait;
    /// or the line is full.
    Denied {
        /// The time in ms until the next lease expires, unless it is renewed. If the line is full, this is
        /// the earliest possible time. `None`: no current lease ever expires.
        next_expiry: Option<u64>,
        /// How full the semaphore is.
        usage: Usage,
        /// How many callers wait in line.
        waiting: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The call asked for more permits than the limit in force. The id has no place in line.
    AboveLimit {
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `acquire`.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The other arguments.
    pub ask: Ask<'a>,
}

impl Call for Acquire<'_> {
    type Answer = AcquireAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let ask = &self.ask;
        let arguments = [
            ask.id.into(),
            match ask.permits {
                Some(permits) => permits.into(),
                None => "all".into(),
            },
            ask.limit.into(),
            ask.lease_ms.into(),
            ask.wait_ms.into(),
            ask.inbox.into(),
            ask.ticket.into(),
            ask.max_waiting.into(),
            ask.at_least_ms.into(),
            ask.head_start_ms.into(),
        ];
        // The last three are optional, and rarely used.
        let optional = [u64::from(ask.max_waiting), ask.at_least_ms, ask.head_start_ms];
        let unused = optional.iter().rev().take_while(|value| **value == 0).count();
        let used = arguments.len() - unused;
        Packed::new(
            &scripts[ScriptName::Acquire],
            &self.keys.packed,
            arguments.get(..used).unwrap_or(&arguments),
        )
    }

    fn answer(&self, reply: Value) -> Result<AcquireAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => {
                let grant = Grant::read_of_lease(reply, self.ask.lease_ms, Some(self.ask.at_least_ms))?;
                match self.ask.permits {
                    Some(asked) if asked != grant.permits => Err(unexpected(&grant)),
                    _ => Ok(AcquireAnswer::Granted(grant, Usage::read(reply)?)),
                }
            }
            "held" => Ok(AcquireAnswer::Held(Grant::read(reply)?, Usage::read(reply)?)),
            "queued" => Ok(AcquireAnswer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                retry_after: reply.number()?,
                usage: Usage::read(reply)?,
                now: reply.number()?,
            }),
            "denied" => Ok(AcquireAnswer::Denied {
                next_expiry: reply.number_or_never()?,
                usage: Usage::read(reply)?,
                waiting: reply.number()?,
                now: reply.number()?,
            }),
            "above_limit" => Ok(AcquireAnswer::AboveLimit { limit: reply.number()?, now: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}

/// A call of `refresh`.
#[derive(Clone, Copy, Debug)]
pub struct Refresh<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The id that holds the permit.
    pub id: &'a str,
    /// The new lease from now, in ms, up to 100 years; 0: permanent.
    pub lease_ms: u64,
    /// Refreshes only the permit with this fence; `None`: any.
    pub fence: Option<u64>,
}

impl Call for Refresh<'_> {
    /// `None`: the permit is lost.
    type Answer = Option<Grant>;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let mut arguments = vec![self.id.into(), self.lease_ms.into()];
        arguments.extend(self.fence.map(Argument::Number));
        Packed::new(&scripts[ScriptName::Refresh], &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<Option<Grant>, CallError> {
        read(reply, |reply| match reply.word()? {
            "refreshed" => Grant::read_of_lease(reply, self.lease_ms, None).map(Some),
            "lost" => reply.number::<ServerTime>().map(|_| None),
            other => Err(unexpected(&other)),
        })
    }
}

/// The answer of `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// The permits were released, except `left`.
    Released {
        /// How many permits the id still holds.
        left: u32,
        /// How full the semaphore is now.
        usage: Usage,
    },
    /// The id waited in line, and was removed.
    Cancelled,
    /// The id held nothing: its lease had ended, or it was released before.
    Gone,
}

/// A call of `release`.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The id that holds the permits or waits in line.
    pub id: &'a str,
    /// How many permits the id keeps; 0: none.
    pub keep: u32,
    /// Releases only the permit with this fence or the place in line with this ticket; `None`: any.
    pub fence: Option<u64>,
}

impl Call for Release<'_> {
    type Answer = ReleaseAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let mut arguments = vec![self.id.into(), self.keep.into()];
        arguments.extend(self.fence.map(Argument::Number));
        Packed::new(&scripts[ScriptName::Release], &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<ReleaseAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "released" => Ok(ReleaseAnswer::Released { left: reply.number()?, usage: Usage::read(reply)? }),
            "cancelled" => Ok(ReleaseAnswer::Cancelled),
            "gone" => Ok(ReleaseAnswer::Gone),
            other => Err(unexpected(&other)),
        })
    }
}

/// The answer of `lookup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// The id holds a permit.
    Held(Grant),
    /// The id waits in line.
    Queued {
        /// Its ticket.
        ticket: u64,
        /// Its position in line, from 1.
        position: u64,
        /// The server's time at this reply.
        now: ServerTime,
    },
    /// The id has neither.
    Gone {
        /// The server's time at this reply.
        now: ServerTime,
    },
}

/// A call of `lookup`.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The id that holds or waits.
    pub id: &'a str,
}

impl Call for Lookup<'_> {
    type Answer = LookupAnswer;

    fn only_reads(&self) -> bool {
        true
    }

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        Packed::new(&scripts[ScriptName::Lookup], &self.keys.packed, &[self.id.into()])
    }

    fn answer(&self, reply: Value) -> Result<LookupAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "held" => Ok(LookupAnswer::Held(Grant::read(reply)?)),
            "queued" => Ok(LookupAnswer::Queued {
                ticket: reply.number()?,
                position: reply.number()?,
                now: reply.number()?,
            }),
            "gone" => Ok(LookupAnswer::Gone { now: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}

/// The answer of `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The limit in force; 0: none is stored.
    pub limit: u32,
    /// Whether `resize` pinned it.
    pub pinned: bool,
    /// How many permits are in use.
    pub in_use: u32,
    /// The number of holders.
    pub holder_count: u64,
    /// The number of waiters.
    pub waiter_count: u64,
    /// The last fence or ticket that was issued.
    pub last_fence: u64,
    /// The server's time at this reply.
    pub now: ServerTime,
    /// The holders, in the order in which their leases end.
    pub holders: Vec<HolderRow>,
    /// The waiters, in the order of the line.
    pub waiters: Vec<WaiterRow>,
}

/// A holder, as `inspect` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderRow {
    /// Its id.
    pub id: String,
    /// How many permits it holds. 0: unknown, because keys were lost.
    pub permits: u32,
    /// The fence of its permit.
    pub fence: u64,
    /// The end of its lease; `None`: never.
    pub expires_at: Option<ServerTime>,
    /// The permits were released before the end of their minimum hold. They have no holder, and are in use
    /// until `expires_at`.
    pub cooling_down: bool,
}

/// A waiter, as `inspect` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterRow {
    /// Its id.
    pub id: String,
    /// How many permits it asks for.
    pub permits: u32,
    /// Its ticket.
    pub ticket: u64,
    /// The waiter's deadline on the server: it leaves the line at this time unless it asks again.
    pub patience_until: ServerTime,
}

/// A call of `inspect`.
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// How many holders and how many waiters to skip.
    pub offset: u32,
    /// How many of each to return at most, up to 1,000.
    pub count: u32,
}

impl Call for Inspect<'_> {
    type Answer = State;

    fn only_reads(&self) -> bool {
        true
    }

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let arguments = [self.offset.into(), self.count.into()];
        Packed::new(&scripts[ScriptName::Inspect], &self.keys.packed, &arguments)
    }

    fn answer(&self, reply: Value) -> Result<State, CallError> {
        read(reply, |reply| {
            Ok(State {
                limit: reply.number()?,
                pinned: reply.flag()?,
                in_use: reply.number()?,
                holder_count: reply.number()?,
                waiter_count: reply.number()?,
                last_fence: reply.number()?,
                now: reply.number()?,
                holders: reply.rows(|row| {
                    Ok(HolderRow {
                        id: row.word()?.to_owned(),
                        permits: row.number()?,
                        fence: row.number()?,
                        expires_at: row.number_or_never()?,
                        cooling_down: row.flag()?,
                    })
                })?,
                waiters: reply.rows(|row| {
                    Ok(WaiterRow {
                        id: row.word()?.to_owned(),
                        permits: row.number()?,
                        ticket: row.number()?,
                        patience_until: row.number()?,
                    })
                })?,
            })
        })
    }
}

/// The answer of `resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeAnswer {
    /// The limit was set or unpinned.
    Resized {
        /// The limit that was in force before; 0: none.
        old: u32,
        /// The limit in force now.
        new: u32,
        /// How many permits are in use. This may exceed the limit for a while.
        in_use: u32,
    },
    /// The limit in force was not the expected one. Nothing was changed.
    Unchanged {
        /// The limit in force.
        current: u32,
        /// How many permits are in use.
        in_use: u32,
    },
}

/// A call of `resize`.
#[derive(Clone, Copy, Debug)]
pub struct Resize<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// The new limit; 0: removes the pin.
    pub limit: u32,
    /// Changes the limit only if this one is in force; `None`: always.
    pub expected: Option<u32>,
}

impl Call for Resize<'_> {
    type Answer = ResizeAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let expected = match self.expected {
            Some(limit) => limit.into(),
            None => "-1".into(),
        };
        Packed::new(&scripts[ScriptName::Resize], &self.keys.packed, &[self.limit.into(), expected])
    }

    fn answer(&self, reply: Value) -> Result<ResizeAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "resized" => Ok(ResizeAnswer::Resized {
                old: reply.number()?,
                new: reply.number()?,
                in_use: reply.number()?,
            }),
            "unchanged" => Ok(ResizeAnswer::Unchanged { current: reply.number()?, in_use: reply.number()? }),
            other => Err(unexpected(&other)),
        })
    }
}

/// The arguments of `try_acquire_several` for one semaphore.
#[derive(Clone, Copy, Debug)]
pub struct AskOne<'a> {
    /// The keys of the semaphore.
    pub keys: &'a Keys,
    /// How many permits: 1 to the limit in force.
    pub permits: u32,
    /// The limit that this caller declares; a grant stores it if none is stored. 0: declares none, the stored
    /// limit applies.
    pub limit: u32,
    /// The lease in ms, up to 100 years: the permit ends after this time unless it is refreshed. 0:
    /// permanent.
    pub lease_ms: u64,
    /// Minimum hold, in ms; 0: none. See [`Ask::at_least_ms`].
    pub at_least_ms: u64,
}

impl<'a> AskOne<'a> {
    /// A mutex, for 30 s.
    pub fn mutex(keys: &'a Keys) -> AskOne<'a> {
        AskOne { keys, permits: 1, limit: 1, lease_ms: 30_000, at_least_ms: 0 }
    }
}

/// How full a semaphore is, and how many callers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// How full the semaphore is.
    pub usage: Usage,
    /// How many callers wait in line.
    pub waiting: u64,
}

/// The answer of `try_acquire_several`. Lists have the order of the
/// arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryAcquireSeveralAnswer {
    /// All are granted. The list includes permits that the id already held.
    Granted(Vec<(Grant, Usage)>),
    /// The id already held all of them. Nothing was granted twice.
    Held(Vec<(Grant, Usage)>),
    /// None is granted.
    Denied {
        /// The first semaphore with too few free permits or with waiters; from 0.
        index: usize,
        /// The time in ms until its next lease expires, unless it is renewed. `None`: no current lease on it
        /// ever expires.
        next_expiry: Option<u64>,
        /// The server's time at this reply.
        now: ServerTime,
        /// How full each is.
        lines: Vec<Line>,
        /// At how many of them the id has a permit all the same, by an earlier run of this call whose reply
        /// was lost. If not 0, release the id at each.
        still_held: usize,
    },
    /// The call asked one of the semaphores for more permits than its limit in force. None is granted.
    AboveLimit {
        /// The index of that semaphore, from 0.
        index: usize,
        /// The limit in force.
        limit: u32,
        /// The server's time at this reply.
        now: ServerTime,
        /// As in [`Denied`](TryAcquireSeveralAnswer::Denied).
        still_held: usize,
    },
}

/// A call of `try_acquire_several`.
#[derive(Clone, Copy, Debug)]
pub struct TryAcquireSeveral<'a> {
    /// The id of the caller, as in [`Ask::id`].
    pub id: &'a str,
    /// The permits of each semaphore: 1 to 64 semaphores.
    pub asked: &'a [AskOne<'a>],
}

impl Call for TryAcquireSeveral<'_> {
    type Answer = TryAcquireSeveralAnswer;

    fn pack(&self, scripts: &'static Scripts) -> Packed {
        let keys: Vec<&str> = self.asked.iter().flat_map(|one| one.keys.list()).collect();
        let mut arguments: Vec<Argument> = vec![self.id.into()];
        for one in self.asked {
            let at_least_ms =
                if fault!("the minimum hold of several is ignored") { 0 } else { one.at_least_ms };
            arguments.extend([one.permits.into(), one.limit.into(), one.lease_ms.into(), at_least_ms.into()]);
        }
        Packed::new(&scripts[ScriptName::TryAcquireSeveral], &PackedKeys::new(&keys), &arguments)
    }

    fn answer(&self, reply: Value) -> Result<TryAcquireSeveralAnswer, CallError> {
        read(reply, |reply| match reply.word()? {
            "granted" => Ok(TryAcquireSeveralAnswer::Granted(self.grants(reply)?)),
            "held" => Ok(TryAcquireSeveralAnswer::Held(self.grants(reply)?)),
            "denied" => Ok(TryAcquireSeveralAnswer::Denied {
                index: self.index(reply)?,
                next_expiry: reply.number_or_never()?,
                now: reply.number()?,
                lines: self
                    .rows(reply, |row| Ok(Line { usage: Usage::read(row)?, waiting: row.number()? }))?,
                still_held: reply.number()?,
            }),
            "above_limit" => Ok(TryAcquireSeveralAnswer::AboveLimit {
                index: self.index(reply)?,
                limit: reply.number()?,
                now: reply.number()?,
                still_held: reply.number()?,
            }),
            other => Err(unexpected(&other)),
        })
    }
}

impl TryAcquireSeveral<'_> {
    /// The id's permit of each semaphore. It may have held one of them before, with another number of permits
    /// and another lease.
    fn grants(&self, reply: &mut Reply) -> Result<Vec<(Grant, Usage)>, CallError> {
        let now = reply.number()?;
        self.rows(reply, |row| {
            let grant = Grant {
                permits: row.number()?,
                fence: row.number()?,
                expires_at: row.number_or_never()?,
                now,
            };
            Ok((grant.checked()?, Usage::read(row)?))
        })
    }

    /// A list with a row for each semaphore.
    fn rows<T>(
        &self,
        reply: &mut Reply,
        row: impl Fn(&mut Reply) -> Result<T, CallError>,
    ) -> Result<Vec<T>, CallError> {
        let rows = reply.rows(row)?;
        if rows.len() == self.asked.len() { Ok(rows) } else { Err(unexpected(&rows.len())) }
    }

    /// Reads a number that begins at 1, and returns it as an index that begins at 0.
    fn index(&self, reply: &mut Reply) -> Result<usize, CallError> {
        let number: usize = reply.number()?;
        match number.checked_sub(1) {
            Some(index) if index < self.asked.len() => Ok(index),
            _ => Err(unexpected(&number)),
        }
    }
}
