//! The permit: the guard that a grant is.

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
/// Dropping it releases: for at most 100 ms in the dropping thread, then in the background until the server answers or
/// the lease has ended. In a forked child dropping does nothing; the permit is the parent's. A permit is not
/// re-entrant: whoever holds one and acquires again stands in line like everybody else.
///
/// It may be lost at any time: the lease may end while this process was paused or could not reach the server.
/// [`is_lost`](Permit::is_lost) is early rather than late, but no clock protects what happens after the look at it;
/// the [`fence`](Permit::fence) does, where what the permit protects refuses lower fences than it has seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    identity: Arc<Identity>,
    number: Number,
    limit: u32,
    ticket: Option<u64>,
    /// Dropping it releases.
    armed: bool,
    /// A release of it was not answered, so it may be carried out already.
    asked: bool,
    /// Its release found nothing.
    gone: bool,
    /// It was released together with others, which failed: dropping it does not try again in the dropping thread.
    tried: bool,
}

impl Permit {
    /// A permit that the id was granted, under these lease options.
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

    /// The permit that a caller was granted, once it counts.
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

    /// The fencing token: higher than that of every earlier grant of this semaphore. Hand it to what the permit
    /// protects, and let that refuse lower ones. Among several holders at once it identifies, it does not order.
    pub fn fence(&self) -> u64 {
        self.identity.fence
    }

    /// Who holds: `<uuid>`, `<label>/<uuid>`, or the id that was chosen.
    pub fn id(&self) -> &str {
        &self.identity.id
    }

    /// The keys of its semaphore, for scripts of your own; see [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        &self.identity.keys
    }

    /// How many permits this is; 0 in a forked child.
    pub fn permits(&self) -> u32 {
        match self.shared.servers.is_own_process() {
            true => self.held(|held| held.permits()).unwrap_or(0),
            false => 0,
        }
    }

    /// The limit in force when it was granted, which may be another than the one declared. After
    /// [`adopt`](crate::Semaphore::adopt) the one declared (0: none was), since nobody told another.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The place in the queue that it waited at; `None` when it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// How long it is still held, by this machine's clocks and early rather than late: zero when it is lost, and in a forked
    /// child; `None` when its lease is permanent. Does not block and asks nobody.
    pub fn remaining(&self) -> Option<Duration> {
        match self.shared.servers.is_own_process() {
            true => self.shared.permits.remaining(self.number),
            false => Some(Duration::ZERO),
        }
    }

    /// Whether it is not ours any more, by this machine's clocks and what is known. Once true it stays true. Does not
    /// block and asks nobody; so a revoked permit shows only after the next refresh.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Gives it a new lease, counted from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] when it is not ours any more; it never comes back. On any other error it lives on until its
    /// old lease ends; after [`RefreshError::Unknown`] it counts by the earlier of the old end and the new.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), None)
    }

    /// Gives it a lease of another length, 1 ms to 100 years, counted from now. Where it is renewed, the next renewal comes
    /// back to its own. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh); [`RefreshError::Invalid`] for a lease that cannot be.
    pub fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        refresh(slice::from_ref(self), Some(lease::to_ms(lease)?))
    }

    /// Renews it no more: it lives until its current lease ends, unless [`refresh`](Permit::refresh) gives it a new one by
    /// hand. [`on_lost`](crate::Semaphore::on_lost) still reports its end. A renewal that is under way still counts, so
    /// look at [`remaining`](Permit::remaining) again after a round trip. A permanent permit, and one that is not renewed,
    /// stay as they are. Does not block and asks nobody.
    pub fn stop_renewal(&self) {
        if self.shared.servers.is_own_process() {
            self.keeper(Keeper::stop_renewal);
        }
    }

    /// Gives it back. Blocks for one round trip; whoever is first in line has it when this returns.
    ///
    /// # Errors
    /// [`ReleaseError`] when the server did not confirm: it has the permit, to try again with. Dropping the error
    /// releases in the background.
    pub fn release(mut self) -> Result<Released, ReleaseError> {
        match release_all(slice::from_mut(&mut self)) {
            Ok(released) => Ok(released),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }

    /// Gives `permits` of them back and keeps the rest, at least one. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Invalid`] for 0, or for as many as it has (use [`release`](Permit::release));
    /// [`RefreshError::Lost`] when it is not ours any more. After any other error the same call may be made again: what
    /// is kept is told to the server, not what goes.
    pub fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        let span = Operation::ReleaseSome.on([self.key()]);
        span.run(|| self.keep_less(permits))
    }

    fn keep_less(&self, permits: u32) -> Result<(), RefreshError> {
        self.shared.check_process()?;
        if self.is_lost() {
            // With an id of the user's own it may be another caller's by now.
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

    /// Lets go without releasing, and returns the id, with which [`Semaphore::adopt`](crate::Semaphore::adopt) takes over
    /// in another process within [`remaining`](Permit::remaining). It is renewed no more.
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

    /// A lost permit with an id of the user's own: another caller with the id may hold again, and releasing would hit that.
    fn may_be_foreign(&self) -> bool {
        self.identity.lease.own_id && self.is_lost()
    }

    /// The same permit under other lease options: the lease that it has now goes on.
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

    /// Nobody looks after it any more.
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
        let bound = if self.tried { Duration::ZERO } else { release::DROP_BOUND };
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
