//! What a caller declares about a semaphore: its name, its limit, and how permits are held.

pub(crate) mod latch;

use crate::error::{Invalid, LimitMismatch, MOST};
use crate::lease::store::OnLost;
use crate::protocol::id;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{self, LeaseOptions};
use crate::protocol::waiter::{PermitTarget, QueueEntry};
use crate::wait::cancel::Cancel;
use std::fmt;
use std::time::Duration;

/// The settings of a semaphore. They are checked when the semaphore is used.
#[derive(Clone)]
pub(crate) struct Settings {
    name: String,
    keys: Result<Keys, Invalid>,
    /// 0: this caller declares no limit; the stored one applies.
    limit: u32,
    pub(crate) label: Option<String>,
    /// Chosen by the application; `None`: a new one for each acquire.
    pub(crate) id: Option<String>,
    /// `None`: the default, which is renewed.
    pub(crate) lease: Option<Duration>,
    pub(crate) renewed: bool,
    pub(crate) permanent: bool,
    pub(crate) strict: bool,
    pub(crate) at_least: Option<Duration>,
    pub(crate) max_waiting: Option<u32>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) on_lost: Option<OnLost>,
}

impl Settings {
    /// The defaults, under this name. `limit`: `None` declares none.
    pub(crate) fn new(prefix: &str, label: Option<&str>, kind: &str, name: &str, limit: Option<u32>) -> Settings {
        let keys = match limit {
            Some(limit) if !(1..=MOST).contains(&limit) => {
                let why = format!("{limit} is out of range. Accepted: 1 to {MOST}");
                Err(Invalid::new("limit", why))
            }
            _ => Keys::of(kind, prefix, name),
        };
        Settings {
            name: name.to_owned(),
            keys,
            limit: limit.unwrap_or(0),
            label: label.map(str::to_owned),
            id: None,
            lease: None,
            renewed: false,
            permanent: false,
            strict: false,
            at_least: None,
            max_waiting: None,
            cancel: None,
            on_lost: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn keys(&self) -> Result<&Keys, Invalid> {
        self.keys.as_ref().map_err(Invalid::clone)
    }

    /// Whether both have the same keys.
    pub(crate) fn is_same(&self, other: &Settings) -> bool {
        self.keys == other.keys
    }

    /// The limit that this caller declares. 0: none.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether this caller accepts the limit in force.
    pub(crate) fn check_limit(&self, in_force: u32) -> Result<(), LimitMismatch> {
        LimitMismatch::check(|| &self.name, self.strict.then_some(self.limit), in_force)
    }

    /// The id of the next acquire.
    pub(crate) fn next_id(&self) -> Result<String, Invalid> {
        match &self.id {
            Some(id) => Ok(id.clone()),
            None => id::new_id(self.label.as_deref()),
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
            lease,
            entry: QueueEntry::default(),
        })
    }

    pub(crate) fn lease_options(&self) -> Result<LeaseOptions, Invalid> {
        Ok(LeaseOptions {
            lease_ms: if self.permanent { 0 } else { lease::to_ms(self.lease.unwrap_or(lease::DEFAULT))? },
            renewed: self.is_renewed()?,
            own_id: self.id.is_some(),
            at_least_ms: match self.at_least {
                Some(least) => lease::at_least_ms(least)?,
                None => 0,
            },
        })
    }

    /// 0: no maximum.
    fn checked_max_waiting(&self) -> Result<u32, Invalid> {
        match self.max_waiting {
            None => Ok(0),
            Some(n @ 1..=MOST) => Ok(n),
            Some(n) => {
                let why = format!(
                    "{n} is out of range. Accepted: 1 to {MOST}. To acquire without waiting, use `try_acquire`"
                );
                Err(Invalid::new("max_waiting", why))
            }
        }
    }

    fn is_renewed(&self) -> Result<bool, Invalid> {
        let lease = self.lease.unwrap_or(lease::DEFAULT);
        let renewed = !self.permanent && (self.renewed || self.lease.is_none());
        if renewed && lease < lease::SHORTEST_RENEWED {
            let shortest = lease::SHORTEST_RENEWED;
            let why = format!(
                "{lease:?} is too short for `auto_renew`. Accepted: {shortest:?} or more. Use a longer lease, or leave out `auto_renew`"
            );
            return Err(Invalid::new("lease", why));
        }
        Ok(renewed)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("lease", &self.lease)
            .field("permanent", &self.permanent)
            .field("label", &self.label)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
