//! The permit: the guard that a grant returns.

mod refresh;
mod release;
mod several;

pub(crate) use refresh::{confirm, refresh, refresh_all};
pub use release::{ReleaseError, Released};
pub(crate) use release::{drop_all, drop_within, release_all};

use crate::error::{CallError, Invalid, RefreshError};
use crate::lease::permits::OnLost;
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Keeper, Number};
use crate::protocol::keys::Keys;
use crate::protocol::lease::{self, Deadline, LeaseOptions};
use crate::protocol::semaphore::{Grant, Release, ReleaseAnswer};
use crate::protocol::waiter::Granted;
use crate::shared::Shared;
use crate::trace::Operation;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Permits that this process holds, until they are released, dropped or lost.
///
/// Dropping a permit releases it. This takes at most 100 ms in the dropping thread, or no time with
/// [`drop_in_background`](crate::GateBuilder::drop_in_background). Then it continues in the background until the server
/// answers or the lease has ended. In a forked child, dropping does nothing, because the parent holds the permit. A
/// permit is not re-entrant: a holder that acquires again waits in line like every other caller.
///
/// A permit can be lost at any time. Its lease may end while this process is paused or cannot reach the server.
/// [`is_lost`](Permit::is_lost) reports a loss early rather than late. But it cannot protect the work after that check.
/// The [`fence`](Permit::fence) can, if the protected resource refuses every fence lower than the highest one it has
/// seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    identity: Arc<Identity>,
    number: Number,
    limit: u32,
    ticket: Option<u64>,
    /// Dropping the permit releases it.
    armed: bool,
    /// A call that releases it was not answered, so it may have been executed.
    asked: bool,
    /// The release found no permit.
    gone: bool,
    /// A release together with other permits failed. Dropping it releases only in the background.
    tried: bool,
}

impl Permit {
    /// A permit that the server has granted to this id, with these lease options.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        identity: Identity,
        grant: &Grant,
        deadline: Deadline,
        on_lost: Option<&OnLost>,
    ) -> Permit {
        let held = HeldPermit::new(Arc::new(identity), grant, deadline);
        Permit::keep(shared.clone(), held, on_lost)
    }

    fn keep(shared: Arc<Shared>, held: HeldPermit, on_lost: Option<&OnLost>) -> Permit {
        let identity = held.identity.clone();
        Permit {
            number: shared.permits.keep(held, on_lost),
            shared,
            identity,
            limit: 0,
            ticket: None,
            armed: true,
            asked: false,
            gone: false,
            tried: false,
        }
    }

    /// A permit from a grant, after its confirmation.
    pub(crate) fn granted(
        shared: &Arc<Shared>,
        granted: Granted,
        on_lost: Option<&OnLost>,
    ) -> Result<Permit, CallError> {
        let Granted { identity, grant, deadline, .. } = granted;
        let mut permit = Permit::new(shared, identity, &grant, deadline, on_lost);
        permit.limit = granted.limit;
        permit.ticket = granted.ticket;
        confirm(slice::from_ref(&permit))?;
        shared.servers.counts.grant(granted.ticket.is_some());
        Ok(permit)
    }

    pub(crate) fn with_limit(mut self, limit: u32) -> Permit {
        self.limit = limit;
        self
    }

    /// The fencing token: a number that is higher than that of every earlier grant of this semaphore. Pass it to the
    /// protected resource, and let the resource refuse lower numbers. If several holders are allowed at the same time,
    /// the fence identifies a grant but does not order the holders.
    pub fn fence(&self) -> u64 {
        self.identity.fence
    }

    /// The id of the holder: `<uuid>`, `<label>/<uuid>`, or the id that the application chose.
    pub fn id(&self) -> &str {
        &self.identity.id
    }

    /// The keys of the semaphore, for your own scripts. See [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        &self.identity.keys
    }

    /// The number of permits in this guard. 0 in a forked child.
    pub fn permits(&self) -> u32 {
        match self.shared.servers.is_own_process() {
            true => self.held(|held| held.permits()).unwrap_or(0),
            false => 0,
        }
    }

    /// The limit in force at the time of the grant. It may differ from the declared limit. After
    /// [`adopt`](crate::Semaphore::adopt) it is the declared limit (0: none), because the server does not report the
    /// limit to that call.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The place in line at which the caller waited. `None` if it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// The time for which the permit is still held, by the clocks of this machine, early rather than late. Zero if the
    /// permit is lost, and in a forked child. `None` if the permit is permanent. Does not block and sends nothing to
    /// the server.
    pub fn remaining(&self) -> Option<Duration> {
        match self.shared.servers.is_own_process() {
            true => self.shared.permits.remaining(self.number),
            false => Some(Duration::ZERO),
        }
    }

    /// Whether the permit is lost, by the clocks of this machine and the replies so far. Once true, it stays true. Does
    /// not block and sends nothing to the server. Therefore a revoked permit is reported only after the next refresh.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Starts a new lease from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if the permit is lost. A lost permit never becomes valid again. After any other error the
    /// permit is valid until its old lease ends. After [`RefreshError::Unknown`] the earlier of the old and the new end
    /// counts.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), None)
    }

    /// Starts a new lease of another length from now, 1 ms to 100 years. If the permit is renewed in the background,
    /// the next renewal returns to the length from the settings. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh), and [`RefreshError::Invalid`] if the length is out of range.
    pub fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), Some(lease::to_ms(lease)?))
    }

    /// Stops the background renewal. The permit ends with its current lease, unless the caller calls
    /// [`refresh`](Permit::refresh). [`on_lost`](crate::Semaphore::on_lost) still reports the end. A renewal that is
    /// already on its way still counts: read [`remaining`](Permit::remaining) again after a round trip. A permit that
    /// is permanent or not renewed does not change. Does not block and sends nothing to the server.
    pub fn stop_renewal(&self) {
        if self.shared.servers.is_own_process() {
            self.keeper(Keeper::stop_renewal);
        }
    }

    /// Releases the permit. Blocks for one round trip. When it returns, the server has granted it to the first waiter.
    ///
    /// # Errors
    /// [`ReleaseError`] if the server did not confirm the release. It contains the permit, so that the caller can try
    /// again. Dropping the error releases in the background.
    pub fn release(mut self) -> Result<Released, ReleaseError> {
        match release_all(slice::from_mut(&mut self)) {
            Ok(released) => Ok(released),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }

    /// Releases `permits` of the permits in this guard and keeps the rest, which is at least one. Blocks for one round
    /// trip.
    ///
    /// # Errors
    /// [`RefreshError::Invalid`] for 0, and for all of them or more: use [`release`](Permit::release).
    /// [`RefreshError::Lost`] if the permit is lost. After any other error the same call can be repeated, because the
    /// client sends the number that it keeps, not the number that it releases.
    pub fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        let span = Operation::ReleaseSome.on([self.key()]);
        span.run(|| self.keep_less(permits))
    }

    fn keep_less(&self, permits: u32) -> Result<(), RefreshError> {
        self.shared.check_process()?;
        if self.is_lost() {
            // Another caller may hold with the same id by now, if the application chose the id.
            return Err(RefreshError::Lost(self.identity.lost()));
        }
        let held = self.permits();
        if permits == 0 || permits >= held {
            let why = format!(
                "{permits} of {held}. Accepted: 1 or more, and fewer than {held}. To release all, call `release`"
            );
            return Err(Invalid::new("permits", why).into());
        }
        let release = Release {
            keys: &self.identity.keys,
            id: &self.identity.id,
            keep: held - permits,
            fence: self.identity.own_fence(),
        };
        match self.shared.call(&release)? {
            ReleaseAnswer::Released { left, .. } => {
                self.held(|held| held.set_permits(left));
                Ok(())
            }
            ReleaseAnswer::Cancelled | ReleaseAnswer::Gone => {
                self.keeper(|keeper, number| {
                    keeper.leave(number);
                    keeper.lose(number, false);
                });
                Err(RefreshError::Lost(self.identity.lost()))
            }
        }
    }

    /// Drops the guard without releasing, and returns the id. Within [`remaining`](Permit::remaining), another process
    /// can take over with [`Semaphore::adopt`](crate::Semaphore::adopt). The renewal stops.
    pub fn into_id(mut self) -> String {
        self.armed = false;
        if self.shared.servers.is_own_process() {
            self.leave();
            self.held(HeldPermit::end);
        }
        self.identity.id.clone()
    }

    pub(crate) fn is_of_same_gate(&self, other: &Permit) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn key(&self) -> &str {
        &self.identity.keys.meta
    }

    /// A lost permit with an id that the application chose. Another caller may hold with that id, and a release would
    /// affect it.
    fn may_be_foreign(&self) -> bool {
        self.identity.lease.own_id && self.is_lost()
    }

    /// The same permit with other lease options. Its current lease continues.
    pub(crate) fn under(mut self, lease: LeaseOptions, on_lost: Option<&OnLost>) -> Permit {
        self.leave();
        self.armed = false;
        let held = self.held(|held| held.under(lease));
        let Some(held) = held else {
            return self;
        };
        let mut permit = Permit::keep(self.shared.clone(), held, on_lost);
        (permit.limit, permit.ticket) = (self.limit, self.ticket);
        permit
    }

    /// Stops the renewal and the report of a loss.
    fn leave(&self) {
        self.keeper(Keeper::leave);
    }

    fn held<T>(&self, work: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        self.keeper(|keeper, number| keeper.held(number).map(work))
    }

    fn keeper<T>(&self, work: impl FnOnce(&mut Keeper, Number) -> T) -> T {
        self.shared.permits.with(|keeper| work(keeper, self.number))
    }

    fn deadline(&self) -> Option<Instant> {
        self.held(|held| held.deadline().instant())?
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let bound = if self.tried { Duration::ZERO } else { self.shared.drop_bound };
        drop_within(slice::from_mut(self), bound);
        if self.shared.servers.is_own_process() {
            self.shared.permits.remove(self.number);
        }
    }
}

impl AsRef<Permit> for Permit {
    fn as_ref(&self) -> &Permit {
        self
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.id())
            .field("permits", &self.permits())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fence {}, ", self.id(), self.fence())?;
        match self.remaining() {
            None => f.write_str("permanent)"),
            Some(left) if left.is_zero() => f.write_str("lost)"),
            Some(left) => write!(f, "{left:.1?} left)"),
        }
    }
}
