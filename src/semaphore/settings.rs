//! What a caller declares about a semaphore: its name, its limit, and how permits are held.

use crate::error::{Invalid, LimitMismatch, Ticket};
use crate::lease::permits::OnLost;
use crate::wait::cancel::Cancel;
use luagate_core::id;
use luagate_core::keys::Keys;
use luagate_core::lease::{self, LeaseOptions};
use luagate_core::waiter::{PermitTarget, QueueEntry};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// The longest head start that the script accepts.
const LONGEST_HEAD_START: Duration = Duration::from_secs(86_400);

/// The settings of a semaphore. They are checked when the semaphore is used.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) keys: Result<Keys, Invalid>,
    /// 0: this caller declares no limit; the stored one applies.
    pub(crate) limit: u32,
    pub(crate) label: Option<String>,
    /// Chosen by the application; `None`: a new one for each acquire.
    pub(crate) id: Option<String>,
    pub(crate) lease: Lease,
    pub(crate) strict: bool,
    pub(crate) at_least: Option<Duration>,
    pub(crate) max_waiting: Option<u32>,
    pub(crate) head_start: Duration,
    /// The place in line of an earlier wait.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) on_lost: Option<OnLost>,
}

impl Settings {
    /// The defaults, under this name. `limit`: `None` declares none.
    pub(crate) fn new(
        prefix: &str,
        label: Option<&str>,
        kind: &str,
        name: &str,
        limit: Option<u32>,
    ) -> Settings {
        let checked = limit.map_or(Ok(()), |limit| Invalid::check_count("limit", limit, ""));
        Settings {
            name: name.to_owned(),
            keys: checked.and_then(|()| Keys::of(kind, prefix, name)),
            limit: limit.unwrap_or(0),
            label: label.map(str::to_owned),
            id: None,
            lease: Lease::renewed(lease::DEFAULT),
            strict: false,
            at_least: None,
            max_waiting: None,
            head_start: Duration::ZERO,
            ticket: None,
            cancel: None,
            on_lost: None,
        }
    }

    /// These name, keys and limit, with all other settings of `other`.
    pub(crate) fn changed_to(self, other: Settings) -> Settings {
        Settings { name: self.name, keys: self.keys, limit: self.limit, ..other }
    }

    pub(crate) fn keys(&self) -> Result<&Keys, Invalid> {
        self.keys.as_ref().map_err(Invalid::clone)
    }

    /// Whether this caller accepts the limit in force.
    pub(crate) fn check_limit(&self, in_force: u32) -> Result<(), LimitMismatch> {
        LimitMismatch::check(|| &self.name, self.strict.then_some(self.limit), in_force)
    }

    /// The id of the next acquire.
    pub(crate) fn next_id(&self) -> Result<String, Invalid> {
        match &self.id {
            Some(id) => Ok(id.clone()),
            None => id::new_id(self.label.as_deref(), Uuid::new_v4()),
        }
    }

    /// An acquire with these lease options. `permits`: `None` asks for all that are free.
    pub(crate) fn target(&self, permits: Option<u32>, lease: LeaseOptions) -> Result<PermitTarget, Invalid> {
        Ok(PermitTarget {
            keys: self.keys.clone()?,
            id: self.next_id()?,
            permits,
            limit: self.limit,
            strict: self.strict,
            max_waiting: self.checked_max_waiting()?,
            head_start_ms: self.checked_head_start()?,
            lease,
            entry: QueueEntry::default(),
        })
    }

    pub(crate) fn lease_options(&self) -> Result<LeaseOptions, Invalid> {
        Ok(LeaseOptions {
            lease_ms: self.lease.checked_ms()?,
            renewed: self.lease.renewed,
            own_id: self.id.is_some(),
            at_least_ms: self.at_least.map_or(Ok(0), |least| lease::checked_ms("at_least", least))?,
        })
    }

    /// 0: no maximum.
    fn checked_max_waiting(&self) -> Result<u32, Invalid> {
        let Some(most) = self.max_waiting else {
            return Ok(0);
        };
        Invalid::check_count("max_waiting", most, ". To acquire without waiting, use `try_acquire`")?;
        Ok(most)
    }

    fn checked_head_start(&self) -> Result<u64, Invalid> {
        if self.head_start > LONGEST_HEAD_START {
            let why = format!("{:?} is out of range. Accepted: up to a day", self.head_start);
            return Err(Invalid::new("head_start", why));
        }
        Ok(u64::try_from(self.head_start.as_millis()).unwrap_or(u64::MAX))
    }
}

/// How long a permit is valid: the argument of [`Semaphore::lease`](crate::Semaphore::lease), and of the
/// locks through
/// [`Mutex::with`](crate::Mutex::with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `None`: without an end.
    length: Option<Duration>,
    renewed: bool,
}

impl Lease {
    /// Permits never expire. After a crash, a permit is held until it is [revoked](crate::Semaphore::revoke).
    pub const PERMANENT: Lease = Lease { length: None, renewed: false };

    /// A lease of `length`, 30 ms to 100 years, which the gate renews after each third of it until the permit
    /// is dropped. With another length the first call returns [`Invalid`](crate::errors::Invalid). The
    /// default is `Lease::renewed` of 30 s.
    pub const fn renewed(length: Duration) -> Lease {
        Lease { length: Some(length), renewed: true }
    }

    /// A lease of `length`, 2 ms to 100 years, which ends unless the holder
    /// [refreshes](crate::Permit::refresh) it. It must be longer than a reply takes to arrive: a permit that
    /// has ended by then is not returned.
    pub const fn fixed(length: Duration) -> Lease {
        Lease { length: Some(length), renewed: false }
    }

    /// The lease in ms; 0: permanent.
    fn checked_ms(&self) -> Result<u64, Invalid> {
        let Some(length) = self.length else {
            return Ok(0);
        };
        if self.renewed && length < lease::SHORTEST_RENEWED {
            let shortest = lease::SHORTEST_RENEWED;
            let why = format!(
                "{length:?} is too short to be renewed. Accepted: {shortest:?} or more. Use a longer lease, or `Lease::fixed`"
            );
            return Err(Invalid::new("lease", why));
        }
        lease::to_ms(length)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("lease", &self.lease)
            .field("label", &self.label)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
