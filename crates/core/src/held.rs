//! A permit that this process holds: when its lease ends by this machine's clocks, and when it is lost.

use super::keys::Keys;
use super::lease::{Deadline, LeaseOptions, Moment, ServerTime};
use super::semaphore::{Grant, Refresh};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The properties of a permit that never change.
#[derive(Debug)]
pub struct Identity {
    pub keys: Keys,
    pub id: String,
    pub fence: u64,
    pub lease: LeaseOptions,
}

impl Identity {
    /// The fence, if the caller chose the id. Then each call contains the fence, since the id may be in use
    /// again when the call runs.
    pub fn own_fence(&self) -> Option<u64> {
        self.lease.own_id.then_some(self.fence)
    }

    /// The call that refreshes the lease.
    pub fn refresh(&self, lease_ms: u64) -> Refresh<'_> {
        Refresh { keys: &self.keys, id: &self.id, lease_ms, fence: self.own_fence() }
    }
}

/// What has become of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    Held,
    /// Calls that release it were sent. So many are not answered: each may have been executed.
    Releasing {
        unanswered: u32,
    },
    /// This is final, unless it is released. `is_reported`: nobody has to be told any more.
    Lost {
        is_reported: bool,
    },
    Released,
    /// The release found nothing.
    Gone,
    /// Another process, or another `Permit`, has it.
    HandedOn,
}

/// A permit and its current state.
#[derive(Clone, Debug)]
pub struct HeldPermit {
    pub identity: Arc<Identity>,
    pub permits: u32,
    deadline: Deadline,
    /// For each refresh that is in progress: the lease that it asks for, and when that lease would end. This
    /// end may be earlier than the deadline, and the server may have run the refresh already.
    under_way: Vec<(u64, Deadline)>,
    /// A refresh has had no answer. It may run at any time while its connection is open.
    may_be_refreshed: bool,
    /// The longest lease that was ever granted or asked for; `None`: permanent.
    longest: Option<Duration>,
    /// The server's time in the reply that set the deadline.
    replied_at: ServerTime,
    /// When this process took the reply to the last refresh.
    taken_at: Option<Instant>,
    /// Its lease had ended when a call that releases it was sent.
    has_ended: bool,
    pub state: HeldState,
}

impl HeldPermit {
    pub fn new(identity: Arc<Identity>, grant: &Grant, deadline: Deadline) -> HeldPermit {
        HeldPermit {
            longest: longer(lease_of(identity.lease.lease_ms), grant.left()),
            identity,
            permits: grant.permits,
            deadline,
            under_way: Vec::new(),
            may_be_refreshed: false,
            replied_at: grant.now,
            taken_at: None,
            has_ended: false,
            state: HeldState::Held,
        }
    }

    /// Returns the same permit under other lease options. It replaces this one.
    pub fn under(&mut self, lease: LeaseOptions) -> HeldPermit {
        let Identity { keys, id, fence, .. } = &*self.identity;
        let identity = Identity { keys: keys.clone(), id: id.clone(), fence: *fence, lease };
        HeldPermit {
            identity: Arc::new(identity),
            deadline: self.deadline(),
            under_way: Vec::new(),
            may_be_refreshed: self.may_be_refreshed || !self.under_way.is_empty(),
            longest: longer(self.longest, lease_of(lease.lease_ms)),
            state: std::mem::replace(&mut self.state, HeldState::HandedOn), // so that it does not count twice
            ..*self
        }
    }

    pub fn deadline(&self) -> Deadline {
        let ends = self.under_way.iter().map(|(_, end)| *end);
        ends.fold(self.deadline, Deadline::earlier)
    }

    /// The longest time from now to the end of its lease. `None`: the lease may be permanent, or a refresh
    /// without an answer may extend it later.
    pub fn longest(&self) -> Option<Duration> {
        let is_certain = self.under_way.is_empty() && !self.may_be_refreshed;
        self.longest.filter(|_| is_certain)
    }

    /// Whether its lease counts.
    pub fn is_valid(&self) -> bool {
        matches!(self.state, HeldState::Held | HeldState::Releasing { .. })
    }

    /// Whether it is renewed, and its loss is reported.
    pub fn is_watched(&self) -> bool {
        matches!(self.state, HeldState::Held | HeldState::Lost { is_reported: false })
    }

    /// The time that is left: zero if the permit is lost, `None` if it is permanent. `true`: the loss is new
    /// to the holder. It stays lost, even if a clock is set back later.
    pub fn remaining(&mut self, now: Moment) -> (Option<Duration>, bool) {
        if !self.is_valid() {
            return (Some(Duration::ZERO), false);
        }
        let left = self.deadline().remaining(now);
        let is_lost = left.is_some_and(|left| left.is_zero());
        if is_lost {
            self.state = HeldState::Lost { is_reported: !self.is_watched() };
        }
        (left, is_lost)
    }

    /// A refresh with this lease is about to be sent.
    pub fn refreshing(&mut self, lease_ms: u64, now: Moment) {
        self.longest = longer(self.longest, lease_of(lease_ms));
        if lease_ms > 0 {
            let end = Deadline::after(now, Some(Duration::from_millis(lease_ms)));
            if !fault!("a shorter lease counts only after its reply") {
                self.under_way.push((lease_ms, end));
            }
        }
    }

    /// A refresh with this lease is no longer in progress. If several ask for the same lease, the last one is
    /// removed: the others then end earlier rather than later.
    pub fn answered(&mut self, lease_ms: u64) {
        let mut under_way = self.under_way.iter();
        if let Some(index) = under_way.rposition(|(other, _)| *other == lease_ms) {
            self.under_way.remove(index);
        }
    }

    /// A refresh with this lease will have no answer. If the server ran it, the lease may end earlier now. If
    /// several ask for the same lease, it may be the first of them.
    pub fn unanswered(&mut self, lease_ms: u64) {
        let mut under_way = self.under_way.iter();
        if let Some(index) = under_way.position(|(other, _)| *other == lease_ms) {
            let (_, end) = self.under_way.remove(index);
            self.deadline = self.deadline.earlier(end);
            self.may_be_refreshed = true;
        }
    }

    /// Takes a confirmed refresh. Returns `false` if the fence is of another permit, or if this permit has
    /// been reported as lost: a lost permit must never become valid again.
    pub fn extend(&mut self, grant: &Grant, sent: Moment, now: Moment) -> bool {
        let is_other = grant.fence != self.identity.fence;
        if is_other || !self.is_valid() || self.deadline().is_past(now) {
            return false;
        }
        let from = if fault!("a new lease counts from its reply") { now } else { sent };
        let deadline = Deadline::after(from, grant.left());
        self.longest = longer(self.longest, grant.left());
        // Replies may be taken in another order than the server ran the calls. The call that it ran last
        // counts. If both ran in the same ms, the order is known only if one was sent after the reply to the
        // other.
        let is_after = self.taken_at.is_none_or(|taken| taken <= sent.instant());
        let is_last = grant.now > self.replied_at || grant.now == self.replied_at && is_after;
        self.deadline = if is_last { deadline } else { deadline.earlier(self.deadline) };
        self.replied_at = self.replied_at.max(grant.now);
        self.taken_at = Some(now.instant());
        true
    }

    /// A call that releases it is about to be sent. Returns `false` if there is nothing to release. A lost
    /// permit is released too, since the server may count its lease longer, or for ever.
    pub fn begin_release(&mut self, now: Moment) -> bool {
        self.has_ended |= self.deadline().is_past(now);
        let (state, is_sent) = match self.state {
            HeldState::Held => (HeldState::Releasing { unanswered: 1 }, true),
            HeldState::Releasing { unanswered } => {
                (HeldState::Releasing { unanswered: unanswered + 1 }, true)
            }
            HeldState::Lost { .. } => (HeldState::Lost { is_reported: true }, true),
            over @ (HeldState::Released | HeldState::Gone | HeldState::HandedOn) => (over, false),
        };
        self.state = state;
        is_sent
    }

    /// Its release was answered. `found`: there was something to release. `repeated`: the server may have run
    /// it twice. Returns whether this shows that it had been lost, which is new to the holder. If the release
    /// was sent more than once, and first while the permit was held, an earlier copy has released it.
    pub fn released(&mut self, found: bool, repeated: bool) -> bool {
        let may_be_copy = repeated || matches!(self.state, HeldState::Releasing { unanswered: 2.. });
        let may_be_copy = may_be_copy && !fault!("rule 5: a copy of a release shows a loss");
        let was_valid = self.is_valid();
        let is_released = found || was_valid && may_be_copy && !self.has_ended;
        self.state = if is_released { HeldState::Released } else { HeldState::Gone };
        was_valid && !is_released && !may_be_copy
    }

    /// A call that releases it failed, and the server did not run it.
    pub fn not_released(&mut self) {
        if let HeldState::Releasing { unanswered } = &mut self.state {
            *unanswered = unanswered.saturating_sub(1);
        }
    }

    /// It is not watched any more, and will not be released.
    pub fn hand_on(&mut self) {
        self.state = HeldState::HandedOn;
    }

    /// The server reports that the id no longer holds the permit. Returns whether the loss must be reported,
    /// and whether it is new to the holder.
    pub fn lose(&mut self) -> (bool, bool) {
        let (is_watched, is_new) = (self.is_watched(), self.is_valid());
        if is_watched || is_new {
            self.state = HeldState::Lost { is_reported: true };
        }
        (is_watched, is_new)
    }
}

/// A lease of so many ms; 0: permanent.
fn lease_of(lease_ms: u64) -> Option<Duration> {
    (lease_ms > 0).then(|| Duration::from_millis(lease_ms))
}

/// The longer of two leases. `None`: permanent.
fn longer(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.zip(other).map(|(one, other)| one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lease_of_zero_is_permanent() {
        assert_eq!([0, 1].map(lease_of), [None, Some(Duration::from_millis(1))]);
    }
}
