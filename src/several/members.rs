//! The semaphores of one acquire: their order, the checks of the arguments, and the meaning of answers. Sends nothing to
//! the server.

use crate::engine::connection::Connection;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{
    AboveLimit, AcquireError, AcquireSeveralError, Blocked, CallError, Denied, Invalid, LimitMismatch, NamedUsage,
    TryAcquireSeveralError,
};
use crate::lease::releases::PendingRelease;
use crate::protocol::held::Identity;
use crate::protocol::keys::Keys;
use crate::protocol::lease::LeaseOptions;
use crate::protocol::semaphore::{AskOne, Grant, Line, TryAcquireSeveral, TryAcquireSeveralAnswer, Usage};
use crate::protocol::waiter::denied;
use crate::semaphore::Semaphore;
use crate::settings::Settings;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of semaphores of one script call.
const MOST_SEMAPHORES: usize = 64;

/// One semaphore, and the number of permits to take.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) semaphore: Semaphore,
    pub(super) permits: u32,
}

/// In the order of waiting: the smallest declared limit first, then by the bytes of their keys.
#[derive(Clone)]
pub(super) struct Members(Vec<Member>);

impl Members {
    pub(super) fn new(semaphores: impl IntoIterator<Item = (Semaphore, u32)>) -> Members {
        let members = semaphores.into_iter().map(|(semaphore, permits)| Member { semaphore, permits });
        let mut members: Vec<_> = members.collect();
        members.sort_by_cached_key(|Member { semaphore, .. }| {
            let key = semaphore.settings().keys().map(|keys| keys.meta.clone()).ok();
            // A semaphore without a declared limit is the last one to wait for.
            (semaphore.settings().limit().checked_sub(1).unwrap_or(u32::MAX), key)
        });
        Members(members)
    }

    pub(super) fn with(self, set: impl Fn(Semaphore) -> Semaphore) -> Members {
        let members = self.0.into_iter();
        let members = members.map(|Member { semaphore, permits }| Member { semaphore: set(semaphore), permits });
        Members(members.collect())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Member> {
        self.0.iter()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|member| member.semaphore.settings().name())
    }

    /// Checks the arguments. Returns the first semaphore, and the keys of all.
    pub(super) fn check(&self) -> Result<(&Semaphore, Vec<&Keys>), Invalid> {
        let semaphores = self.0.iter().map(|member| &member.semaphore);
        let keys: Vec<&Keys> =
            semaphores.clone().map(|semaphore| semaphore.settings().keys()).collect::<Result<_, _>>()?;
        let Some(first) = semaphores.clone().next().filter(|_| keys.len() <= MOST_SEMAPHORES) else {
            let why = format!("got {}. Accepted: 1 to {MOST_SEMAPHORES}", keys.len());
            return Err(Invalid::new("semaphores", why));
        };
        for (index, semaphore) in semaphores.enumerate() {
            let settings = semaphore.settings();
            if settings.id.is_some() {
                let why = format!(
                    "the semaphore {} has a chosen id. Accepted: semaphores without `id`. Remove the call of `id`",
                    settings.name()
                );
                return Err(Invalid::new("id", why));
            }
            let mut before = self.0.iter().take(index).map(|member| &member.semaphore);
            if before.any(|other| other.is_of_same_gate(semaphore) && other.settings().is_same(settings)) {
                let why = format!("{:?} twice. Accepted: each semaphore once", settings.name());
                return Err(Invalid::new("semaphores", why));
            }
        }
        if let Some(member) = self.0.iter().find(|member| member.permits == 0) {
            let why = format!("got 0 of {}. Accepted: 1 to the limit", member.semaphore.settings().name());
            return Err(Invalid::new("permits", why));
        }
        Ok((first, keys))
    }

    /// The arguments of the script that takes the permits of all semaphores, or none.
    pub(super) fn asked<'a>(&self, first: &Semaphore, keys: &[&'a Keys]) -> Result<Vec<AskOne<'a>>, Invalid> {
        let tag = keys.first().map_or("", |keys| keys.tag());
        let is_elsewhere = |member: &Member| !member.semaphore.is_of_same_gate(first);
        if self.0.iter().any(is_elsewhere) || keys.iter().any(|other| other.tag() != tag) {
            let why = "different gates or groups. Accepted: one gate and one group, as in `{trade}:sword` and `{trade}:shield`. \
                       For any other semaphores use `acquire_timeout`";
            return Err(Invalid::new("semaphores", why));
        }
        let asked = self.0.iter().zip(keys).map(|(member, &keys)| {
            let settings = member.semaphore.settings();
            let (lease, limit) = (settings.lease_options()?, settings.limit());
            let (lease_ms, at_least_ms) = (lease.first_lease_ms(), lease.at_least_ms);
            Ok(AskOne { keys, permits: member.permits, limit, lease_ms, at_least_ms })
        });
        asked.collect()
    }

    /// The grants in the answer to this call.
    pub(super) fn granted(
        &self,
        answer: TryAcquireSeveralAnswer,
    ) -> Result<Vec<(Grant, Usage)>, TryAcquireSeveralError> {
        match answer {
            TryAcquireSeveralAnswer::Granted(grants) | TryAcquireSeveralAnswer::Held(grants) => Ok(grants),
            TryAcquireSeveralAnswer::Denied { index, next_expiry, lines, .. } => {
                for (member, line) in self.0.iter().zip(&lines) {
                    member.semaphore.settings().check_limit(line.usage.limit)?;
                }
                Err(self.blocked(index, next_expiry, &lines))
            }
            TryAcquireSeveralAnswer::AboveLimit { index, limit, .. } => {
                let member = self.0.get(index);
                let name = self.names().nth(index).unwrap_or_default().to_owned();
                let permits = member.map_or(0, |member| member.permits);
                Err(TryAcquireSeveralError::AboveLimit(AboveLimit { name, permits, limit }))
            }
        }
    }

    /// Each granted permit with its semaphore, and the limit in force.
    pub(super) fn identities(
        &self,
        id: &str,
        grants: &[(Grant, Usage)],
    ) -> Result<Vec<(&Settings, Identity)>, Invalid> {
        let granted = self.0.iter().zip(grants).map(|(member, (grant, _))| {
            let settings = member.semaphore.settings();
            let (keys, lease) = (settings.keys()?.clone(), settings.lease_options()?);
            Ok((settings, Identity { keys, id: id.to_owned(), fence: grant.fence, lease }))
        });
        granted.collect()
    }

    /// Whether the callers accept the limits in force.
    pub(super) fn check_limits(&self, grants: &[(Grant, Usage)]) -> Result<(), LimitMismatch> {
        let mut limits = self.0.iter().zip(grants);
        limits.try_for_each(|(member, (_, usage))| member.semaphore.settings().check_limit(usage.limit))
    }

    fn blocked(&self, index: usize, next_expiry: Option<u64>, lines: &[Line]) -> TryAcquireSeveralError {
        let usages = self.names().zip(lines).map(|(name, line)| NamedUsage {
            name: name.to_owned(),
            in_use: line.usage.in_use,
            limit: line.usage.limit,
            waiting: line.waiting,
        });
        let usages: Vec<_> = usages.collect();
        TryAcquireSeveralError::Blocked(Blocked {
            name: usages.get(index).map(|usage| usage.name.clone()).unwrap_or_default(),
            denied: lines.get(index).map(|line| denied(line.usage, line.waiting, next_expiry)),
            usages,
        })
    }

    /// The lease options of all, for waiting in line.
    pub(super) fn leases(&self) -> Result<Vec<LeaseOptions>, Invalid> {
        self.0.iter().map(|member| member.semaphore.settings().lease_options()).collect()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.0.iter().map(|member| (member.semaphore.settings().name(), member.permits));
        f.debug_map().entries(members).finish()
    }
}

/// The releases of everything that an unanswered call may have acquired.
pub(super) fn abandoned(
    call: &TryAcquireSeveral,
    connection: Option<Arc<Connection>>,
    now: Instant,
) -> Vec<PendingRelease> {
    let pending = call.asked.iter().map(|one| {
        let until = now.checked_add(Duration::from_millis(one.lease_ms));
        PendingRelease::of_call(one.keys, call.id, false, connection.clone(), until)
    });
    pending.collect()
}

/// A timeout for waiting.
pub(super) fn check_timeout(timeout: Duration) -> Result<(), Invalid> {
    if timeout.is_zero() {
        let why = "got 0. Accepted: more than 0. To acquire without waiting, use `try_acquire`";
        Err(Invalid::new("timeout", why))
    } else {
        Ok(())
    }
}

/// The time was over before this semaphore was asked, or before the grants were confirmed.
pub(super) fn too_late(settings: &Settings) -> AcquireSeveralError {
    AcquireSeveralError::TimedOut(blocked(settings, None))
}

fn blocked(settings: &Settings, denied: Option<Denied>) -> Blocked {
    Blocked { name: settings.name().to_owned(), denied, usages: Vec::new() }
}

/// The wait for one of the semaphores ended with this error.
pub(super) fn not_acquired(error: AcquireError, settings: &Settings) -> AcquireSeveralError {
    match error {
        AcquireError::TimedOut(denied) => AcquireSeveralError::TimedOut(blocked(settings, Some(denied))),
        AcquireError::LineFull(denied) => AcquireSeveralError::LineFull(blocked(settings, Some(denied))),
        AcquireError::Cancelled(cancelled) => AcquireSeveralError::Cancelled(cancelled),
        AcquireError::Revoked(revoked) => AcquireSeveralError::Revoked(revoked),
        AcquireError::LimitMismatch(mismatch) => AcquireSeveralError::LimitMismatch(mismatch),
        AcquireError::AboveLimit(above) => AcquireSeveralError::AboveLimit(above),
        AcquireError::Invalid(invalid) => AcquireSeveralError::Invalid(invalid),
        AcquireError::Failed(failure) => AcquireSeveralError::Failed(failure),
        AcquireError::Unknown(failure) => AcquireSeveralError::Unknown(failure),
        // Impossible for a new id.
        AcquireError::AlreadyHeld(_) => {
            let kind = FailureKind::UnexpectedReply;
            CallError::Unknown(Failure::new(kind, error.to_string())).into()
        }
    }
}
