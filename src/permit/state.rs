//! The state of a permit, and the rules of its release. Sends nothing to the server.

use super::Released;
use crate::error::{CallError, Invalid, RefreshError};
use crate::lease::permits::Store;
use crate::lease::releases::{Dropped, PendingRelease};
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, HeldState, Identity};
use crate::protocol::keeper::{Keeper, Number};
use crate::protocol::lease::LeaseOptions;
use crate::protocol::semaphore::{Release, ReleaseAnswer};
use crate::trace::Operation;
use redis::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct PermitState {
    store: Arc<Store>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) number: Number,
    pub(crate) limit: u32,
    pub(crate) ticket: Option<u64>,
}

impl PermitState {
    /// The state of a permit that the store keeps under this number.
    pub(crate) fn new(store: &Arc<Store>, identity: &Arc<Identity>, number: Number) -> PermitState {
        PermitState { store: store.clone(), identity: identity.clone(), number, limit: 0, ticket: None }
    }

    pub(crate) fn is_own_process(&self) -> bool {
        self.store.is_own_process()
    }

    pub(crate) fn key(&self) -> &str {
        &self.identity.keys.meta
    }

    pub(crate) fn permits(&self) -> u32 {
        if self.is_own_process() { self.held(|held| held.permits()).unwrap_or(0) } else { 0 }
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        if self.is_own_process() { self.store.remaining(self.number) } else { Some(Duration::ZERO) }
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
    pub(crate) fn hand_on(&self) {
        if self.is_own_process() {
            self.keeper(Keeper::hand_on);
        }
    }

    /// The same permit with other lease options. Its current lease continues. `None` if the permit is unknown.
    pub(crate) fn under(&self, lease: LeaseOptions) -> Option<HeldPermit> {
        self.keeper(|keeper, number| keeper.under(number, lease))
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
                self.keeper(|keeper, number| keeper.lose(number, false));
                Err(RefreshError::Lost(self.identity.lost()))
            }
        }
    }

    /// The call that releases it. `None` if there is nothing to release.
    pub(crate) fn begin_release(&self) -> Option<Packed> {
        self.store.begin_release(self.number).then(|| self.release_call(0).pack())
    }

    fn release_call(&self, keep: u32) -> Release<'_> {
        Release { keys: &self.identity.keys, id: &self.identity.id, keep, fence: self.identity.own_fence() }
    }

    /// Reads the reply to its release.
    pub(crate) fn read_release(&self, reply: Value) -> Result<ReleaseAnswer, CallError> {
        self.release_call(0).answer(reply)
    }

    /// Its release was answered. `repeated`: the server may have run it twice.
    pub(crate) fn released(&self, answer: ReleaseAnswer, repeated: bool) -> Released {
        let found = matches!(answer, ReleaseAnswer::Released { .. });
        self.keeper(|keeper, number| keeper.released(number, found, repeated));
        if found { Released::Released } else { Released::Gone }
    }

    /// Its release was not answered.
    pub(crate) fn unanswered(&self, error: &CallError) {
        if !matches!(error, CallError::Unknown(_)) {
            self.keeper(Keeper::not_released);
        }
    }

    /// How an earlier release ended.
    pub(crate) fn earlier_release(&self) -> Released {
        match self.held(|held| held.state()) {
            Some(HeldState::Gone) => Released::Gone,
            _ => Released::Released,
        }
    }

    /// The guard is dropped. If there is something to release: the release, and the permit, which the store forgets when the
    /// release is answered. `now`: the last refresh of the holder was answered by then, or not at all.
    pub(crate) fn end(&self, now: Instant) -> Option<(PendingRelease, Dropped)> {
        let until = self.store.drop_permit(self.number, now)?;
        let span = Operation::Release.on([self.key()]);
        let pending = PendingRelease::of_permit(&self.identity, until, None);
        Some((pending, Dropped { store: self.store.clone(), number: self.number, span }))
    }

    fn held<T>(&self, work: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        self.keeper(|keeper, number| keeper.held(number).map(work))
    }

    fn keeper<T>(&self, work: impl FnOnce(&mut Keeper, Number) -> T) -> T {
        self.store.with(|keeper| work(keeper, self.number))
    }
}

impl fmt::Debug for PermitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.identity.id)
            .field("permits", &self.permits())
            .field("fence", &self.identity.fence)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for PermitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fence {}, ", self.identity.id, self.identity.fence)?;
        match self.remaining() {
            None => f.write_str("permanent)"),
            Some(left) if left.is_zero() => f.write_str("lost)"),
            Some(left) => write!(f, "{left:.1?} left)"),
        }
    }
}
