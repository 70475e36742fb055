//! One release that the server has not confirmed: what it releases, where it must run, and the calls that it
//! takes.

use super::call::{Call, Packed};
use super::held::Identity;
use super::keys::Keys;
use super::script::Scripts;
use super::semaphore::{Lookup, LookupAnswer, Release, ReleaseAnswer};
use crate::failure::CallError;
use crate::value::Value;
use std::time::{Duration, Instant};

/// A release that the server has not confirmed. `C`: a connection. Its calls run in the order in which they
/// are sent.
#[derive(Clone, Debug)]
pub struct PendingRelease<C> {
    pub keys: Keys,
    pub id: String,
    pub target: ReleaseTarget,
    /// The caller chose the id, so a later call may use it again.
    pub is_own_id: bool,
    /// The calls that it undoes. Their answers are missing.
    pub lost: LostCalls<C>,
    /// After this time the server has freed the id by itself, if no lost call is left. `None`: this is not
    /// known, so the release is repeated until the gate is dropped.
    pub until: Option<Instant>,
    /// For how long the server keeps what a lost call causes.
    pub longest: Duration,
    /// The wait whose calls it undoes. When this release is confirmed, no grant to that wait can follow.
    pub given_up: Option<GivenUpNumber>,
}

/// The number of a wait that was given up.
pub type GivenUpNumber = u64;

/// The object of a release. A release may reach the server late, when its id is in use again. It must not
/// release that later grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// Everything that the id has. Only for an id that this client made for one call, and that no later call
    /// uses.
    Whatever,
    /// The permit with this fence.
    Fence(u64),
    /// Everything that the id has, except the permit with this fence (0: none). A lookup finds the fence or
    /// the ticket, and the release names it.
    Other(u64),
}

/// The connections on which a call may still run whose answer is missing.
#[derive(Clone, Debug)]
pub struct LostCalls<C> {
    /// A release can be posted behind these calls.
    open: Vec<C>,
    /// A release is posted behind these calls, and the server is silent.
    silent: Vec<C>,
}

impl<C> Default for LostCalls<C> {
    fn default() -> LostCalls<C> {
        LostCalls { open: Vec::new(), silent: Vec::new() }
    }
}

impl<C: PartialEq> LostCalls<C> {
    /// A call is sent on this connection.
    pub fn sent_on(&mut self, connection: C) {
        if !self.open.contains(&connection) {
            self.open.push(connection);
        }
    }

    /// A call on this connection is answered, so all calls before it have run. Returns whether one of these
    /// was there.
    pub fn answered_on(&mut self, connection: &C) -> bool {
        let index = self.open.iter().position(|other| other == connection);
        index.map(|index| self.open.remove(index)).is_some()
    }

    /// The server does not answer on this connection, not even to a release behind the call.
    pub fn silent_on(&mut self, connection: &C) {
        if let Some(index) = self.open.iter().position(|other| other == connection) {
            self.silent.push(self.open.remove(index));
        }
    }

    pub fn contains(&self, connection: &C) -> bool {
        self.open.contains(connection)
    }

    /// No call can run on a connection that is closed. Returns whether the server was silent on one of these.
    pub fn forget_closed(&mut self, is_open: impl Fn(&C) -> bool) -> bool {
        let silent = self.silent.len();
        self.open.retain(&is_open);
        self.silent.retain(&is_open);
        self.silent.len() < silent
    }

    /// A connection on which a release can be posted behind a call.
    pub fn first(&self) -> Option<&C> {
        self.open.first()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.open.len() + self.silent.len()
    }

    /// Whether a call may still run on a connection whose server is silent.
    pub fn is_silent(&self) -> bool {
        !self.silent.is_empty()
    }

    pub fn silent(&self) -> &[C] {
        &self.silent
    }
}

impl<C> PendingRelease<C> {
    /// The release of everything that an id may have after these calls. The server keeps it for `longest`.
    pub fn of_call(
        keys: &Keys,
        id: &str,
        is_own_id: bool,
        lost: LostCalls<C>,
        longest: Duration,
        now: Instant,
    ) -> PendingRelease<C> {
        let target = if is_own_id { ReleaseTarget::Other(0) } else { ReleaseTarget::Whatever };
        let until = now.checked_add(longest);
        PendingRelease { lost, longest, ..PendingRelease::of_grant(keys, id, is_own_id, target, until) }
    }

    /// The release of what these calls may still cause for an id that holds the permit with this fence.
    pub fn of_other(
        granted: &Identity,
        lost: LostCalls<C>,
        longest: Duration,
        now: Instant,
    ) -> PendingRelease<C> {
        let target = ReleaseTarget::Other(granted.fence);
        PendingRelease { target, lost, longest, ..PendingRelease::of_permit(granted, Some(longest), now) }
    }

    /// The release of a permit. `longest`: the longest lease that it may have. `None`: no limit is known.
    pub fn of_permit(identity: &Identity, longest: Option<Duration>, now: Instant) -> PendingRelease<C> {
        let Identity { keys, id, fence, lease } = identity;
        let until = longest.and_then(|longest| now.checked_add(longest));
        PendingRelease::of_grant(keys, id, lease.own_id, ReleaseTarget::Fence(*fence), until)
    }

    /// The release of a grant whose calls are all answered.
    pub fn of_grant(
        keys: &Keys,
        id: &str,
        is_own_id: bool,
        target: ReleaseTarget,
        until: Option<Instant>,
    ) -> PendingRelease<C> {
        PendingRelease {
            keys: keys.clone(),
            id: id.to_owned(),
            target,
            is_own_id,
            lost: LostCalls::default(),
            until,
            longest: Duration::ZERO,
            given_up: None,
        }
    }

    /// Whether it releases the permit of the same id with this fence, and no other.
    pub fn names(&self, other: &PendingRelease<C>, fence: u64) -> bool {
        self.target == ReleaseTarget::Fence(fence) && self.id == other.id && self.keys == other.keys
    }

    /// Whether it takes one call: no lookup precedes it.
    pub fn is_one_call(&self) -> bool {
        matches!(self.target, ReleaseTarget::Whatever | ReleaseTarget::Fence(_))
    }

    /// The calls of this release, in order.
    pub fn steps(&self) -> Steps {
        let next = match self.target {
            ReleaseTarget::Whatever => ReleaseCall::Release(None),
            ReleaseTarget::Fence(fence) => ReleaseCall::Release(Some(fence)),
            ReleaseTarget::Other(_) => ReleaseCall::LookUp,
        };
        Steps {
            next,
            // A place in line may be granted after the lookup. Then a second lookup follows.
            lookups: 2,
            has_found_nothing: false,
        }
    }

    /// The next of these calls. `None` once the id has nothing left to release.
    pub fn call(&self, steps: &Steps, scripts: &'static Scripts) -> Option<Packed> {
        match steps.next {
            ReleaseCall::LookUp => Some(self.lookup().pack(scripts)),
            ReleaseCall::Release(fence) => Some(self.release(fence).pack(scripts)),
            ReleaseCall::Nothing => None,
        }
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup { keys: &self.keys, id: &self.id }
    }

    fn release(&self, fence: Option<u64>) -> Release<'_> {
        Release { keys: &self.keys, id: &self.id, keep: 0, fence }
    }

    /// Takes the reply to the last of these calls. `is_named`: whether another release names this fence.
    pub fn answered(
        &self,
        steps: &mut Steps,
        reply: Value,
        is_named: impl Fn(u64) -> bool,
    ) -> Result<(), CallError> {
        let stays = |fence| self.target == ReleaseTarget::Other(fence) || is_named(fence);
        match steps.next {
            ReleaseCall::LookUp => steps.looked_up(&self.lookup().answer(reply)?, stays),
            ReleaseCall::Release(fence) => steps.released(&self.release(fence).answer(reply)?),
            ReleaseCall::Nothing => {}
        }
        Ok(())
    }
}

impl<C: PartialEq> PendingRelease<C> {
    /// Whether the server has freed the id by itself.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now) && self.lost.is_empty()
    }

    /// The server refused it on this connection. A lost call there may have run until now.
    pub fn refused_on(&mut self, connection: &C, now: Instant) {
        if self.lost.answered_on(connection) {
            self.until = now.checked_add(self.longest);
        }
    }

    /// Its lost calls on connections that are closed may have run, and, without the knowledge of this client,
    /// may still run. So nothing is certain when it is confirmed. Returns whether the server was silent on
    /// one of these connections.
    pub fn forget_closed(&mut self, now: Instant, is_open: impl Fn(&C) -> bool) -> bool {
        let lost = self.lost.len();
        let was_silent = self.lost.forget_closed(is_open);
        if self.lost.len() < lost {
            self.given_up = None;
            self.until = now.checked_add(self.longest);
        }
        was_silent
    }
}

/// The calls of one release.
#[derive(Clone, Debug)]
pub struct Steps {
    pub next: ReleaseCall,
    /// The number of lookups that are left.
    pub lookups: u32,
    /// The last release found nothing to release.
    pub has_found_nothing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseCall {
    LookUp,
    Release(Option<u64>),
    Nothing,
}

impl Steps {
    /// `stays`: the release is not for a permit with this fence.
    fn looked_up(&mut self, found: &LookupAnswer, stays: impl Fn(u64) -> bool) {
        self.lookups -= 1;
        self.next = match found {
            LookupAnswer::Held(grant) if stays(grant.fence) => ReleaseCall::Nothing,
            LookupAnswer::Held(grant) => ReleaseCall::Release(Some(grant.fence)),
            LookupAnswer::Queued { ticket, .. } => ReleaseCall::Release(Some(*ticket)),
            LookupAnswer::Gone { .. } => ReleaseCall::Nothing,
        };
    }

    fn released(&mut self, answer: &ReleaseAnswer) {
        self.has_found_nothing = *answer == ReleaseAnswer::Gone;
        let may_be_granted_since = self.lookups == 1;
        self.next = if self.has_found_nothing && may_be_granted_since {
            ReleaseCall::LookUp
        } else {
            ReleaseCall::Nothing
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_reports_whether_it_found_nothing_to_release() {
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        let released = vec![word("released"), Value::Int(0), Value::Int(0), Value::Int(1)];
        for (reply, is_nothing) in [(released, false), (vec![word("gone")], true)] {
            let keys = Keys::mutex("luagate", "m").unwrap();
            let release: PendingRelease<()> =
                PendingRelease::of_grant(&keys, "id", false, ReleaseTarget::Fence(7), Some(Instant::now()));
            let mut steps = release.steps();
            assert!(!steps.has_found_nothing);
            release.answered(&mut steps, Value::Array(reply), |_| false).unwrap();
            assert_eq!((steps.has_found_nothing, steps.next), (is_nothing, ReleaseCall::Nothing));
        }
    }

    #[test]
    fn a_call_is_lost_until_a_later_one_on_its_connection_is_answered() {
        let mut lost = LostCalls::default();
        [1, 2, 1, 3].into_iter().for_each(|connection| lost.sent_on(connection));
        assert!(lost.answered_on(&1) && !lost.answered_on(&1));
        assert_eq!(lost.first(), Some(&2));
        lost.forget_closed(|connection| *connection == 3);
        assert_eq!(lost.first(), Some(&3));
        assert!(lost.answered_on(&3) && lost.is_empty());
    }
}
