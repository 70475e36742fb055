//! The state of a permit, and the rules of its release. Sends nothing to the server.

use crate::error::{CallError, Invalid, RefreshError};
use crate::lease::store::{Driver, Store};
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Keeper, Number};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::releases::PendingRelease;
use crate::protocol::semaphore::{Release, ReleaseAnswer};
use redis::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `D`: see [`Driver`].
pub(crate) struct PermitState<D: Driver> {
    store: Arc<Store<D>>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) number: Number,
    pub(crate) limit: u32,
    pub(crate) ticket: Option<u64>,
    /// Dropping the permit releases it.
    pub(crate) armed: bool,
    /// A call that releases it was not answered, so it may have been executed.
    asked: bool,
    /// The release found no permit.
    pub(crate) gone: bool,
    /// The store has forgotten it.
    removed: bool,
}

impl<D: Driver> PermitState<D> {
    /// The state of a permit that the store keeps under this number.
    pub(crate) fn new(store: &Arc<Store<D>>, identity: &Arc<Identity>, number: Number) -> PermitState<D> {
        PermitState {
            store: store.clone(),
            identity: identity.clone(),
            number,
            limit: 0,
            ticket: None,
            armed: true,
            asked: false,
            gone: false,
            removed: false,
        }
    }

    pub(crate) fn is_own_process(&self) -> bool {
        self.store.is_own_process()
    }

    pub(crate) fn key(&self) -> &str {
        &self.identity.keys.meta
    }

    pub(crate) fn permits(&self) -> u32 {
        match self.is_own_process() {
            true => self.held(|held| held.permits()).unwrap_or(0),
            false => 0,
        }
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self.is_own_process() {
            true => self.store.remaining(self.number),
            false => Some(Duration::ZERO),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    pub(crate) fn stop_renewal(&self) {
        if self.is_own_process() {
            self.keeper(Keeper::stop_renewal);
        }
    }

    /// Hands the permit on: it is no longer watched and will not be released.
    pub(crate) fn hand_on(&mut self) {
        self.armed = false;
        if self.is_own_process() {
            self.leave();
            self.held(HeldPermit::end);
        }
    }

    /// The same permit with other lease options. Its current lease continues. `None` if the permit is unknown.
    pub(crate) fn under(&mut self, lease: LeaseOptions) -> Option<HeldPermit> {
        self.leave();
        self.armed = false;
        self.held(|held| held.under(lease))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.held(|held| held.deadline().instant())?
    }

    /// The call that releases a part of the permits.
    pub(crate) fn begin_release_some(&self, permits: u32) -> Result<Release<'_>, RefreshError> {
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
        Ok(self.release_call(held - permits))
    }

    /// Handles the answer to the release of a part.
    pub(crate) fn end_release_some(&self, answer: ReleaseAnswer) -> Result<(), RefreshError> {
        match answer {
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

    /// The call that releases it. `None` if there is nothing to release.
    pub(crate) fn begin_release(&mut self) -> Option<Packed> {
        if !self.armed {
            return None;
        }
        self.leave();
        if self.may_be_foreign() {
            (self.armed, self.gone) = (false, true);
            return None;
        }
        Some(self.release_call(0).pack())
    }

    fn release_call(&self, keep: u32) -> Release<'_> {
        Release { keys: &self.identity.keys, id: &self.identity.id, keep, fence: self.identity.own_fence() }
    }

    /// Reads the reply to its release.
    pub(crate) fn read_release(&self, reply: Value) -> Result<ReleaseAnswer, CallError> {
        self.release_call(0).answer(reply)
    }

    /// Its release was answered. `repeated`: the server may have run it twice.
    pub(crate) fn released(&mut self, answer: ReleaseAnswer, repeated: bool) {
        self.armed = false;
        self.gone = !matches!(answer, ReleaseAnswer::Released { .. });
        // The release found nothing, and no earlier attempt of this release may have released it.
        let is_lost = self.gone && !self.asked && !repeated;
        if is_lost {
            self.keeper(|keeper, number| keeper.lose(number, false));
            self.held(HeldPermit::end);
        } else {
            self.removed = true;
            self.store.remove(self.number);
        }
    }

    /// Its release was not answered.
    pub(crate) fn unanswered(&mut self, error: &CallError) {
        self.asked |= matches!(error, CallError::Unknown(_));
    }

    /// The release that the driver repeats until it is confirmed. `until`: the last refresh of the holder was answered
    /// by then, or not at all.
    pub(crate) fn pending<C>(&mut self, until: Instant, connection: Option<C>) -> PendingRelease<C> {
        self.armed = false;
        PendingRelease::of_permit(&self.identity, self.deadline(), until, connection)
    }

    /// A lost permit with an id that the application chose. Another caller may hold with that id, and a release would
    /// affect it.
    fn may_be_foreign(&self) -> bool {
        self.identity.lease.own_id && self.is_lost()
    }

    /// Stops the renewal and the report of a loss.
    fn leave(&self) {
        self.keeper(Keeper::leave);
    }

    fn held<T>(&self, work: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        self.keeper(|keeper, number| keeper.held(number).map(work))
    }

    fn keeper<T>(&self, work: impl FnOnce(&mut Keeper, Number) -> T) -> T {
        self.store.with(|keeper| work(keeper, self.number))
    }
}

impl<D: Driver> Drop for PermitState<D> {
    fn drop(&mut self) {
        if !self.removed && self.is_own_process() {
            self.store.remove(self.number);
        }
    }
}

impl<D: Driver> fmt::Debug for PermitState<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.identity.id)
            .field("permits", &self.permits())
            .field("fence", &self.identity.fence)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl<D: Driver> fmt::Display for PermitState<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fence {}, ", self.identity.id, self.identity.fence)?;
        match self.remaining() {
            None => f.write_str("permanent)"),
            Some(left) if left.is_zero() => f.write_str("lost)"),
            Some(left) => write!(f, "{left:.1?} left)"),
        }
    }
}
