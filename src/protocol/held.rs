//! A permit that this process holds: how long it lives by this machine's clocks, and when it is lost.

use super::keys::Keys;
use super::lease::{Deadline, LeaseOptions, Moment, ServerTime};
use super::semaphore::{Grant, Refresh};
use crate::error::Lost;
use std::sync::Arc;
use std::time::Duration;

/// What never changes of a permit.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) fence: u64,
    pub(crate) lease: LeaseOptions,
}

impl Identity {
    /// The fence, where the id is the user's own: then calls name it, since the id may be in use again when they are carried out.
    pub(crate) fn own_fence(&self) -> Option<u64> {
        self.lease.own_id.then_some(self.fence)
    }

    /// The call that gives it a new lease.
    pub(crate) fn refresh(&self, lease_ms: u64) -> Refresh<'_> {
        Refresh { keys: &self.keys, id: &self.id, lease_ms, fence: self.own_fence() }
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost { id: self.id.clone() }
    }
}

/// A permit and what is known of its life.
#[derive(Clone, Debug)]
pub(crate) struct HeldPermit {
    pub(crate) identity: Arc<Identity>,
    permits: u32,
    deadline: Deadline,
    /// The lease that each refresh asks for which is under way, and when it would end. It may be an earlier end than the
    /// deadline, and the server may have carried it out already.
    under_way: Vec<(u64, Deadline)>,
    /// The server's time at the reply that told the deadline.
    told: ServerTime,
    /// Released, handed on, or known to be lost: nothing brings it back.
    over: bool,
    /// It was seen as lost, so it stays so, whatever a clock shows later.
    seen_lost: bool,
}

impl HeldPermit {
    pub(crate) fn new(identity: Arc<Identity>, grant: &Grant, deadline: Deadline) -> HeldPermit {
        HeldPermit {
            identity,
            permits: grant.permits,
            deadline,
            under_way: Vec::new(),
            told: grant.now,
            over: false,
            seen_lost: false,
        }
    }

    /// The same permit under other lease options, in place of this one.
    pub(crate) fn under(&mut self, lease: LeaseOptions) -> HeldPermit {
        let Identity { keys, id, fence, .. } = &*self.identity;
        let identity = Identity { keys: keys.clone(), id: id.clone(), fence: *fence, lease };
        HeldPermit {
            identity: Arc::new(identity),
            deadline: self.deadline(),
            under_way: Vec::new(),
            over: std::mem::replace(&mut self.over, true), // so that nobody counts it twice
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

    /// Zero when it is lost, `None` when it is permanent; and whether its holder has yet to learn of it.
    pub(crate) fn remaining(&mut self, now: Moment) -> (Option<Duration>, bool) {
        if self.over || self.seen_lost {
            return (Some(Duration::ZERO), false);
        }
        let left = self.deadline().remaining(now);
        self.seen_lost = left.is_some_and(|left| left.is_zero());
        (left, self.seen_lost)
    }

    /// A refresh for this lease is about to be sent.
    pub(crate) fn refreshing(&mut self, lease_ms: u64, now: Moment) {
        if lease_ms > 0 {
            let end = Deadline::told(now, Some(Duration::from_millis(lease_ms)));
            self.under_way.push((lease_ms, end));
        }
    }

    /// A refresh for this lease is not under way any more. Of several that are alike it is the last one, so that the others
    /// count rather early than late.
    pub(crate) fn answered(&mut self, lease_ms: u64) {
        let mut under_way = self.under_way.iter();
        if let Some(index) = under_way.rposition(|(other, _)| *other == lease_ms) {
            self.under_way.remove(index);
        }
    }

    /// A refresh was confirmed. Whoever saw this permit as lost must never see it alive again, and another fence is of another
    /// permit: then this is false.
    pub(crate) fn extend(&mut self, grant: &Grant, sent: Moment, now: Moment) -> bool {
        let is_other = grant.fence != self.identity.fence;
        if is_other || self.over || self.seen_lost || self.deadline().is_past(now) {
            return false;
        }
        let deadline = Deadline::told(sent, grant.left());
        // Replies may come in another order than the calls were carried out in: the last one there counts.
        self.deadline = match grant.now >= self.told {
            true => deadline,
            false => deadline.earlier(self.deadline),
        };
        self.told = self.told.max(grant.now);
        true
    }

    /// A refresh for this lease, sent at `sent`, was not answered. If it was carried out, the end may be an earlier one now.
    pub(crate) fn may_end(&mut self, sent: Moment, lease_ms: u64) {
        if lease_ms > 0 {
            let end = Deadline::told(sent, Some(Duration::from_millis(lease_ms)));
            self.deadline = self.deadline.earlier(end);
        }
    }

    /// It is over: released, or handed on.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// The server says that the id holds it no more. Whether it is over only now, and whether its holder has yet to learn of it.
    pub(crate) fn lose(&mut self) -> (bool, bool) {
        let is_first = !std::mem::replace(&mut self.over, true);
        let is_new = is_first && !self.seen_lost;
        (is_first, is_new)
    }
}
