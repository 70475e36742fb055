//! Releases that the server has not confirmed, as a state machine: when to repeat each, and until when.

use super::call::{Call, Packed};
use super::held::Identity;
use super::inbox::GivenUpNumber;
use super::keys::Keys;
use super::semaphore::{Lookup, LookupAnswer, Release, ReleaseAnswer};
use crate::error::CallError;
use redis::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long releases continue after their gate was dropped.
const LAST_RELEASES: Duration = Duration::from_secs(30);

/// The maximum number of releases in one packet.
const BATCH: usize = 100;

/// A release that the server has not confirmed. `C`: the connection of the call whose reply is missing. On this
/// connection the release reaches the server after that call.
#[derive(Clone, Debug)]
pub struct PendingRelease<C> {
    pub keys: Keys,
    pub id: String,
    pub target: ReleaseTarget,
    pub connection: Option<C>,
    /// After this time the server has freed the id by itself. `None`: a permanent lease, whose release is repeated
    /// until the gate is dropped.
    pub until: Option<Instant>,
    /// The wait whose calls it undoes, until a grant to that wait could follow this release: see `take_connection`.
    pub given_up: Option<GivenUpNumber>,
}

/// The object of a release. A release may reach the server late, when its id is in use again. It must not release that
/// later grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// Everything that the id has. Only for an id that this client made for one call, and that no later call uses.
    Whatever,
    /// The permit with this fence.
    Fence(u64),
    /// Everything that an id chosen by the caller has after a call without an answer. A lookup finds its fence or
    /// ticket, and the release names it.
    LookUp,
    /// The permit that the id has. A place in line stays. A lookup finds the fence.
    Held,
}

impl<C> PendingRelease<C> {
    pub fn new(keys: &Keys, id: &str, target: ReleaseTarget, connection: Option<C>, until: Option<Instant>) -> Self {
        PendingRelease { keys: keys.clone(), id: id.to_owned(), target, connection, until, given_up: None }
    }

    /// The release of everything that an id may have after a call without an answer. At `until` the server has freed the
    /// id by itself.
    pub fn of_call(keys: &Keys, id: &str, is_own_id: bool, connection: Option<C>, until: Option<Instant>) -> Self {
        let target = if is_own_id { ReleaseTarget::LookUp } else { ReleaseTarget::Whatever };
        PendingRelease::new(keys, id, target, connection, until)
    }

    /// The release of a permit. At `until` the server has ended its lease.
    pub fn of_permit(identity: &Identity, until: Option<Instant>, connection: Option<C>) -> Self {
        let target = ReleaseTarget::Fence(identity.fence);
        PendingRelease::new(&identity.keys, &identity.id, target, connection, until)
    }

    /// Takes the connection on which to send it, if that is open. Also returns the wait that can be forgotten once this release
    /// is confirmed there.
    ///
    /// On that connection the server runs the call first, and nothing is left after the release. Without that, the call may
    /// still run after the release. From now on the release is sent on other connections, so the wait stays remembered.
    pub fn take_connection(&mut self, is_open: impl FnOnce(&C) -> bool) -> (Option<C>, Option<GivenUpNumber>) {
        let given_up = self.given_up;
        let Some(connection) = self.connection.take() else {
            return (None, given_up); // each of its calls was answered
        };
        self.given_up = None;
        if is_open(&connection) { (Some(connection), given_up) } else { (None, None) }
    }

    /// Whether it concerns only later calls with its id, and does not hold back other calls of its name: nobody has dropped
    /// this permit, or the release follows a call on a connection of its own.
    fn is_aside(&self) -> bool {
        self.connection.is_some() || self.target == ReleaseTarget::Held
    }

    /// Whether it takes one call: no lookup precedes it.
    pub fn is_one_call(&self) -> bool {
        !matches!(self.target, ReleaseTarget::LookUp | ReleaseTarget::Held)
    }

    /// Whether it may share a packet: it takes one call, which need not follow another one on a connection of its own.
    fn is_free(&self) -> bool {
        self.is_one_call() && self.connection.is_none()
    }

    /// Whether the server has freed the id by itself.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The calls of this release, in order.
    pub fn steps(&self) -> Steps {
        Steps {
            keys: self.keys.clone(),
            id: self.id.clone(),
            next: match self.target {
                ReleaseTarget::Whatever => ReleaseCall::Release(None),
                ReleaseTarget::Fence(fence) => ReleaseCall::Release(Some(fence)),
                ReleaseTarget::LookUp | ReleaseTarget::Held => ReleaseCall::LookUp,
            },
            keeps_place: self.target == ReleaseTarget::Held,
            // A place in line may be granted after the lookup. Then a second lookup follows.
            lookups: 2,
            has_found_nothing: false,
        }
    }
}

/// The calls of one release.
#[derive(Clone, Debug)]
pub struct Steps {
    keys: Keys,
    id: String,
    pub next: ReleaseCall,
    keeps_place: bool,
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
    /// The next call. `None` once the id has nothing left to release.
    pub fn call(&self) -> Option<Packed> {
        match self.next {
            ReleaseCall::LookUp => Some(self.lookup().pack()),
            ReleaseCall::Release(fence) => Some(self.release(fence).pack()),
            ReleaseCall::Nothing => None,
        }
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup { keys: &self.keys, id: &self.id }
    }

    fn release(&self, fence: Option<u64>) -> Release<'_> {
        Release { keys: &self.keys, id: &self.id, keep: 0, fence }
    }

    /// Takes the reply to the last call.
    pub fn answered(&mut self, reply: Value) -> Result<(), CallError> {
        self.next = match self.next {
            ReleaseCall::LookUp => {
                self.lookups -= 1;
                match self.lookup().answer(reply)? {
                    LookupAnswer::Held(grant) => ReleaseCall::Release(Some(grant.fence)),
                    LookupAnswer::Queued { .. } if self.keeps_place => ReleaseCall::Nothing,
                    LookupAnswer::Queued { ticket, .. } => ReleaseCall::Release(Some(ticket)),
                    LookupAnswer::Gone { .. } => ReleaseCall::Nothing,
                }
            }
            ReleaseCall::Release(fence) => {
                let answer = self.release(fence).answer(reply)?;
                self.has_found_nothing = answer == ReleaseAnswer::Gone;
                let is_looked_up = self.lookups < 2;
                if answer == ReleaseAnswer::Gone && is_looked_up && self.lookups > 0 && !self.keeps_place {
                    ReleaseCall::LookUp
                } else {
                    ReleaseCall::Nothing
                }
            }
            ReleaseCall::Nothing => ReleaseCall::Nothing,
        };
        Ok(())
    }
}

/// All pending releases of a gate.
#[derive(Clone, Debug)]
pub struct Releases<C> {
    pub pending: VecDeque<PendingRelease<C>>,
    /// The releases that are being sent to each server.
    pub current: BTreeMap<usize, Vec<Current>>,
    /// Servers that did not answer, each with the end and the length of its pause. Releases for other servers do not
    /// wait for them.
    pub pauses: BTreeMap<usize, (Instant, Duration)>,
    /// When the last attempt ends, once the gate is dropped.
    closes: Option<Instant>,
    /// The key of each release that is posted and not answered, in the order of their numbers.
    pub posted: VecDeque<(u64, Arc<str>)>,
}

/// A release that is being sent.
#[derive(Clone, Debug)]
pub struct Current {
    pub keys: Keys,
    pub id: String,
    is_aside: bool,
}

/// The next step for pending releases.
pub enum ToRelease<C> {
    /// Send these in one packet to this server.
    Now(usize, Vec<PendingRelease<C>>),
    /// Wait until this time; `None`: until there is a new release.
    At(Option<Instant>),
    /// The gate is dropped and nothing is left to do.
    Closed,
}

/// Whether an id can be used again.
pub enum Settled<C> {
    Yes,
    /// Send this release first.
    After(PendingRelease<C>),
    /// Wait for the answer to a release that is in progress.
    Soon,
}

impl<C> Default for Releases<C> {
    fn default() -> Releases<C> {
        Releases {
            pending: VecDeque::new(),
            current: BTreeMap::new(),
            pauses: BTreeMap::new(),
            closes: None,
            posted: VecDeque::new(),
        }
    }
}

impl<C> Releases<C> {
    pub fn add(&mut self, releases: impl IntoIterator<Item = PendingRelease<C>>) {
        self.pending.extend(releases);
    }

    /// Whether all are confirmed.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The release with this number, for this key, is about to be sent. Each has a higher number than the one before.
    pub fn post(&mut self, number: u64, key: &Arc<str>) {
        self.posted.push_back((number, key.clone()));
    }

    /// The posted release with this number has its reply, or will have none.
    pub fn answered(&mut self, number: u64) {
        if let Some(index) = self.posted.iter().position(|(posted, _)| *posted == number) {
            self.posted.remove(index);
        }
    }

    /// Whether a posted release for this key, with this number or a lower one, has no reply yet. If a later call has its
    /// reply, the release went to another server, and may run after that call.
    pub fn has_posted(&self, key: &[u8], latest: u64) -> bool {
        let mut earlier = self.posted.iter().take_while(|(number, _)| *number <= latest);
        earlier.any(|(_, posted)| posted.as_bytes() == key)
    }

    /// How many are not confirmed.
    pub fn count(&self) -> usize {
        self.pending.len() + self.current.values().map(Vec::len).sum::<usize>()
    }

    pub fn is_closed(&self) -> bool {
        self.closes.is_some()
    }

    /// The gate is dropped. Releases continue for up to 30 s.
    pub fn close(&mut self, now: Instant) {
        self.closes = Some(now + LAST_RELEASES);
    }

    /// The next releases to send together, to a server that is not paused and gets none at the moment. `node_of` returns the
    /// server of a release.
    pub fn next(&mut self, now: Instant, node_of: impl Fn(&PendingRelease<C>) -> usize) -> ToRelease<C> {
        let is_closed = self.closes.is_some_and(|closes| closes <= now);
        self.pending.retain(|pending| !is_closed && !pending.is_over(now));
        let nodes = self.pending.iter().map(&node_of).enumerate();
        let mut free = nodes.filter(|(_, node)| !self.current.contains_key(node) && !self.is_paused(*node, now));
        let Some((index, node)) = free.next() else {
            return match self.pauses.values().map(|(end, _)| *end).filter(|end| *end > now).min() {
                None if self.closes.is_some() && self.is_empty() => ToRelease::Closed,
                end => ToRelease::At(end),
            };
        };
        let batch = self.take_batch(index, node_of);
        let current = batch.iter().map(|pending| Current {
            keys: pending.keys.clone(),
            id: pending.id.clone(),
            is_aside: pending.is_aside(),
        });
        self.current.insert(node, current.collect());
        ToRelease::Now(node, batch)
    }

    /// Whether releases for this server wait for the end of a pause. `next` has returned this time, or an earlier one.
    pub fn is_paused(&self, node: usize, now: Instant) -> bool {
        self.pauses.get(&node).is_some_and(|(end, _)| *end > now)
    }

    /// The release at this index, and others that the same packet may contain.
    fn take_batch(&mut self, index: usize, node_of: impl Fn(&PendingRelease<C>) -> usize) -> Vec<PendingRelease<C>> {
        let mut batch = Vec::from_iter(self.pending.remove(index));
        let mut index = index;
        while let (Some(other), Some(first)) = (self.pending.get(index), batch.first())
            && batch.len() < BATCH
        {
            if first.is_free() && other.is_free() && node_of(first) == node_of(other) {
                batch.extend(self.pending.remove(index));
            } else {
                index += 1;
            }
        }
        batch
    }

    /// Takes the result of the batch that was sent to `node`: the unconfirmed releases are pending again.
    pub fn sent(&mut self, node: usize, unconfirmed: Vec<PendingRelease<C>>, now: Instant) {
        self.current.remove(&node);
        if unconfirmed.is_empty() {
            self.pauses.remove(&node);
            return;
        }
        let pause = match self.pauses.get(&node) {
            Some((_, pause)) => (*pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.pauses.insert(node, (now + pause, pause));
        self.pending.extend(unconfirmed);
    }

    /// Whether a call for this key may be sent: no release of the same name must be repeated first. A later call would
    /// overtake the release, and a call with the same id, `own_id`, would be undone by it.
    pub fn settle(&mut self, key: &[u8], own_id: Option<&str>, now: Instant) -> Settled<C> {
        let concerns =
            |keys: &Keys, id: &str, is_aside: bool| keys.meta.as_bytes() == key && (!is_aside || own_id == Some(id));
        let is_first = |pending: &PendingRelease<C>| concerns(&pending.keys, &pending.id, pending.is_aside());
        while let Some(index) = self.pending.iter().position(is_first)
            && let Some(pending) = self.pending.remove(index)
        {
            if !pending.is_over(now) {
                return Settled::After(pending);
            }
        }
        let mut current = self.current.values().flatten();
        if current.any(|current| concerns(&current.keys, &current.id, current.is_aside)) {
            Settled::Soon
        } else {
            Settled::Yes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(name: &str, until: Instant) -> PendingRelease<()> {
        PendingRelease {
            keys: Keys::mutex("luagate", name).unwrap(),
            id: "id".to_owned(),
            target: ReleaseTarget::Whatever,
            connection: None,
            until: Some(until),
            given_up: None,
        }
    }

    #[test]
    fn the_next_release_is_in_the_future_though_the_pause_of_another_server_is_over() {
        let node_of = |pending: &PendingRelease<()>| usize::from(pending.keys.meta.contains("away"));
        let mut releases = Releases::default();
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        releases.add([pending("here", after(40)), pending("away", after(60_000))]);
        for (node, at) in [(0, 0), (1, 0), (1, 55)] {
            let ToRelease::Now(_, unconfirmed) = releases.next(after(at), node_of) else {
                panic!("it waits");
            };
            releases.sent(node, unconfirmed, after(at));
        }
        // The first one is over by itself. The server of the second one is paused for 100 ms.
        let ToRelease::At(Some(at)) = releases.next(after(60), node_of) else {
            panic!("it does not wait");
        };
        assert_eq!(at, after(155));
    }

    #[test]
    fn a_release_reports_whether_it_found_nothing_to_release() {
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        let released = vec![word("released"), Value::Int(0), Value::Int(0), Value::Int(1)];
        for (reply, is_nothing) in [(released, false), (vec![word("gone")], true)] {
            let mut release = pending("m", Instant::now());
            release.target = ReleaseTarget::Fence(7);
            let mut steps = release.steps();
            assert!(!steps.has_found_nothing);
            steps.answered(Value::Array(reply)).unwrap();
            assert_eq!((steps.has_found_nothing, steps.next), (is_nothing, ReleaseCall::Nothing));
        }
    }

    #[test]
    fn releases_are_closed_with_their_gate() {
        let mut releases = Releases::<()>::default();
        assert!(!releases.is_closed());
        releases.close(Instant::now());
        assert!(releases.is_closed());
    }
}
