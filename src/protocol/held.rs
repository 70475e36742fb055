//! A permit that this process holds: when its lease ends by this machine's clocks, and when it is lost.

use super::keys::Keys;
use super::lease::{Deadline, LeaseOptions, Moment, ServerTime};
use super::semaphore::{Grant, Refresh};
use crate::error::Lost;
use std::sync::Arc;
use std::time::Duration;

/// The properties of a permit that never change.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) fence: u64,
    pub(crate) lease: LeaseOptions,
}

impl Identity {
    /// The fence, if the caller chose the id. Then each call contains the fence, since the id may be in use again when
    /// the call runs.
    pub(crate) fn own_fence(&self) -> Option<u64> {
        self.lease.own_id.then_some(self.fence)
    }

    /// The call that refreshes the lease.
    pub(crate) fn refresh(&self, lease_ms: u64) -> Refresh<'_> {
        Refresh { keys: &self.keys, id: &self.id, lease_ms, fence: self.own_fence() }
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost { id: self.id.clone() }
    }
}

/// A permit and its current state.
#[derive(Clone, Debug)]
pub(crate) struct HeldPermit {
    pub(crate) identity: Arc<Identity>,
    permits: u32,
    deadline: Deadline,
    /// For each refresh that is in progress: the lease that it asks for, and when that lease would end. This end may be
    /// earlier than the deadline, and the server may have run the refresh already.
    under_way: Vec<(u64, Deadline)>,
    /// The server's time in the reply that set the deadline.
    replied_at: ServerTime,
    /// Released, handed on, or known to be lost. This is final.
    over: bool,
    /// The permit was reported as lost. It stays lost, even if a clock is set back later.
    seen_lost: bool,
}

impl HeldPermit {
    pub(crate) fn new(identity: Arc<Identity>, grant: &Grant, deadline: Deadline) -> HeldPermit {
        HeldPermit {
            identity,
            permits: grant.permits,
            deadline,
            under_way: Vec::new(),
            replied_at: grant.now,
            over: false,
            seen_lost: false,
        }
    }

    /// Returns the same permit under other lease options. It replaces this one.
    pub(crate) fn under(&mut self, lease: LeaseOptions) -> HeldPermit {
        let Identity { keys, id, fence, .. } = &*self.identity;
        let identity = Identity { keys: keys.clone(), id: id.clone(), fence: *fence, lease };
        HeldPermit {
            identity: Arc::new(identity),
            deadline: self.deadline(),
            under_way: Vec::new(),
            over: std::mem::replace(&mut self.over, true), // so that it does not count twice
            ..*self
        }
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn set_permits(&mut self, permits: u32) {
        self.permits = permits;
    }

    pub(crate) fn deadline(&self) -> Deadline {
        let ends = self.under_way.iter().map(|(_, end)| *end);
        ends.fold(self.deadline, Deadline::earlier)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The time that is left: zero if the permit is lost, `None` if it is permanent. `true`: the loss is new to the
    /// holder.
    pub(crate) fn remaining(&mut self, now: Moment) -> (Option<Duration>, bool) {
        if self.over || self.seen_lost {
            return (Some(Duration::ZERO), false);
        }
        let left = self.deadline().remaining(now);
        self.seen_lost = left.is_some_and(|left| left.is_zero());
        (left, self.seen_lost)
    }

    /// A refresh with this lease is about to be sent.
    pub(crate) fn refreshing(&mut self, lease_ms: u64, now: Moment) {
        if lease_ms > 0 {
            let end = Deadline::after(now, Some(Duration::from_millis(lease_ms)));
            self.under_way.push((lease_ms, end));
        }
    }

    /// A refresh with this lease is no longer in progress. If several ask for the same lease, the last one is removed:
    /// the others then end earlier rather than later.
    pub(crate) fn answered(&mut self, lease_ms: u64) {
        let mut under_way = self.under_way.iter();
        if let Some(index) = under_way.rposition(|(other, _)| *other == lease_ms) {
            self.under_way.remove(index);
        }
    }

    /// Takes a confirmed refresh. Returns `false` if the fence is of another permit, or if this permit has been
    /// reported as lost: a lost permit must never become valid again.
    pub(crate) fn extend(&mut self, grant: &Grant, sent: Moment, now: Moment) -> bool {
        let is_other = grant.fence != self.identity.fence;
        if is_other || self.over || self.seen_lost || self.deadline().is_past(now) {
            return false;
        }
        let deadline = Deadline::after(sent, grant.left());
        // Replies may arrive in another order than the server ran the calls. The call that it ran last counts.
        self.deadline = match grant.now >= self.replied_at {
            true => deadline,
            false => deadline.earlier(self.deadline),
        };
        self.replied_at = self.replied_at.max(grant.now);
        true
    }

    /// A refresh with this lease, sent at `sent`, was not answered. If the server ran it, the lease may end earlier
    /// now.
    pub(crate) fn may_end(&mut self, sent: Moment, lease_ms: u64) {
        if lease_ms > 0 {
            let end = Deadline::after(sent, Some(Duration::from_millis(lease_ms)));
            self.deadline = self.deadline.earlier(end);
        }
    }

    /// The permit was released or handed on.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// The server reports that the id no longer holds the permit. Returns whether this is the first report, and whether
    /// the loss is new to the holder.
    pub(crate) fn lose(&mut self) -> (bool, bool) {
        let is_first = !std::mem::replace(&mut self.over, true);
        let is_new = is_first && !self.seen_lost;
        (is_first, is_new)
    }
}
