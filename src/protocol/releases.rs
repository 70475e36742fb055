//! Releases that the server has not confirmed, as a state machine: when to repeat each, and until when.

use super::call::{Call, Packed};
use super::held::Identity;
use super::keys::Keys;
use super::semaphore::{Lookup, LookupAnswer, Release, ReleaseAnswer};
use crate::error::CallError;
use redis::Value;
use std::collections::{BTreeMap, VecDeque};
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
pub(crate) struct PendingRelease<C> {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) target: Target,
    pub(crate) connection: Option<C>,
    /// After this time the server has freed the id by itself. `None`: a permanent lease, whose release is repeated
    /// until the gate is dropped.
    pub(crate) until: Option<Instant>,
}

/// The object of a release. A release may reach the server late, when its id is in use again. It must not release that
/// later grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// Everything that the id has. Only for an id that this client made for one call, and that no later call uses.
    Whatever,
    /// The permit with this fence.
    Fence(u64),
    /// Everything that an id chosen by the caller has after a call without an answer. A lookup finds its fence or
    /// ticket, and the release names it.
    LookUp,
    /// The permit that the id has. A place in line stays. A lookup finds the fence.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "only a future can be left without a poll"))]
    Held,
}

/// The connection of a call whose reply is missing.
pub(crate) trait Ordered {
    /// Whether one packet on this connection may contain releases of both.
    fn is_shared_with(&self, other: &Self) -> bool;
}

impl<C> PendingRelease<C> {
    /// The release of everything that an id may have after a call without an answer. At `until` the server has freed the
    /// id by itself.
    pub(crate) fn of_call(
        keys: &Keys,
        id: &str,
        is_own_id: bool,
        connection: Option<C>,
        until: Option<Instant>,
    ) -> PendingRelease<C> {
        let target = match is_own_id {
            true => Target::LookUp,
            false => Target::Whatever,
        };
        PendingRelease { keys: keys.clone(), id: id.to_owned(), target, connection, until }
    }

    /// The release of a permit that ends at `deadline`. A refresh until `latest`, whose reply was lost, may have
    /// extended its lease on the server.
    pub(crate) fn of_permit(
        identity: &Identity,
        deadline: Option<Instant>,
        latest: Instant,
        connection: Option<C>,
    ) -> PendingRelease<C> {
        let lease = Duration::from_millis(identity.lease.lease_ms);
        PendingRelease {
            keys: identity.keys.clone(),
            id: identity.id.clone(),
            target: Target::Fence(identity.fence),
            connection,
            until: match deadline {
                Some(deadline) if !lease.is_zero() => latest.checked_add(lease).map(|latest| latest.max(deadline)),
                _ => None, // a permanent permit has no end
            },
        }
    }

    fn is_of(&self, keys: &Keys, id: &str) -> bool {
        self.keys == *keys && self.id == id
    }

    /// Whether the server has freed the id by itself.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The calls of this release, in order.
    pub(crate) fn steps(&self) -> Steps {
        let next = match self.target {
            Target::Whatever => Next::Release(None),
            Target::Fence(fence) => Next::Release(Some(fence)),
            Target::LookUp | Target::Held => Next::LookUp,
        };
        Steps {
            keys: self.keys.clone(),
            id: self.id.clone(),
            next,
            keeps_place: self.target == Target::Held,
            // A place in line may be granted after the lookup. Then a second lookup follows.
            lookups: 2,
        }
    }
}

/// The calls of one release.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    keys: Keys,
    id: String,
    pub(crate) next: Next,
    keeps_place: bool,
    /// The number of lookups that are left.
    pub(crate) lookups: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    LookUp,
    Release(Option<u64>),
    Nothing,
}

impl Steps {
    /// The next call. `None` once the id has nothing left to release.
    pub(crate) fn call(&self) -> Option<Packed> {
        match self.next {
            Next::LookUp => Some(self.lookup().pack()),
            Next::Release(fence) => Some(self.release(fence).pack()),
            Next::Nothing => None,
        }
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup { keys: &self.keys, id: &self.id }
    }

    fn release(&self, fence: Option<u64>) -> Release<'_> {
        Release { keys: &self.keys, id: &self.id, keep: 0, fence }
    }

    /// Takes the reply to the last call.
    pub(crate) fn answered(&mut self, reply: Value) -> Result<(), CallError> {
        self.next = match self.next {
            Next::LookUp => {
                self.lookups -= 1;
                match self.lookup().answer(reply)? {
                    LookupAnswer::Held(grant) => Next::Release(Some(grant.fence)),
                    LookupAnswer::Queued { .. } if self.keeps_place => Next::Nothing,
                    LookupAnswer::Queued { ticket, .. } => Next::Release(Some(ticket)),
                    LookupAnswer::Gone { .. } => Next::Nothing,
                }
            }
            Next::Release(fence) => {
                let answer = self.release(fence).answer(reply)?;
                let is_looked_up = self.lookups < 2;
                match answer == ReleaseAnswer::Gone && is_looked_up && self.lookups > 0 && !self.keeps_place {
                    true => Next::LookUp,
                    false => Next::Nothing,
                }
            }
            Next::Nothing => Next::Nothing,
        };
        Ok(())
    }
}

/// All pending releases of a gate.
#[derive(Clone, Debug)]
pub(crate) struct Releases<C> {
    pub(crate) pending: VecDeque<PendingRelease<C>>,
    /// The releases that are being sent.
    pub(crate) current: Vec<(Keys, String)>,
    /// Servers that did not answer, each with the end and the length of its pause. Releases for other servers do not
    /// wait for them.
    pub(crate) pauses: BTreeMap<usize, (Instant, Duration)>,
    /// When the last attempt ends, once the gate is dropped.
    closes: Option<Instant>,
}

/// The next step for pending releases.
pub(crate) enum ToRelease<C> {
    /// Send these in one packet to one server.
    Now(Vec<PendingRelease<C>>),
    /// Wait until this time; `None`: until there is a new release.
    At(Option<Instant>),
    /// The gate is dropped and nothing is left to do.
    Closed,
}

/// Whether an id can be used again.
pub(crate) enum Settled<C> {
    Yes,
    /// Send this release first.
    After(PendingRelease<C>),
    /// Wait for the answer to a release that is in progress.
    Soon,
}

impl<C> Default for Releases<C> {
    fn default() -> Releases<C> {
        Releases { pending: VecDeque::new(), current: Vec::new(), pauses: BTreeMap::new(), closes: None }
    }
}

impl<C: Ordered> PendingRelease<C> {
    /// Whether one packet may contain both. A release with its own connection goes with those of the same connection.
    fn goes_with(&self, other: &PendingRelease<C>) -> bool {
        let is_one_call = |release: &Self| !matches!(release.target, Target::LookUp | Target::Held);
        let is_same = match (&self.connection, &other.connection) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_shared_with(other),
            _ => false,
        };
        is_same && is_one_call(self) && is_one_call(other)
    }
}

impl<C: Ordered> Releases<C> {
    pub(crate) fn add(&mut self, releases: impl IntoIterator<Item = PendingRelease<C>>) {
        self.pending.extend(releases);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The gate is dropped. Releases continue for up to 30 s.
    pub(crate) fn close(&mut self, now: Instant) {
        self.closes = Some(now + LAST_RELEASES);
    }

    /// The next releases to send together, to a server that is not paused. `node_of` returns the server of a release.
    pub(crate) fn next(&mut self, now: Instant, node_of: impl Fn(&PendingRelease<C>) -> usize) -> ToRelease<C> {
        let is_closed = self.closes.is_some_and(|closes| closes <= now);
        self.pending.retain(|pending| !is_closed && !pending.is_over(now));
        let pauses = &self.pauses;
        let pause = |pending: &PendingRelease<C>| {
            let (end, _) = pauses.get(&node_of(pending))?;
            (*end > now).then_some(*end)
        };
        let Some(index) = self.pending.iter().position(|pending| pause(pending).is_none()) else {
            return match self.pending.iter().filter_map(pause).min() {
                None if self.closes.is_some() => ToRelease::Closed,
                end => ToRelease::At(end),
            };
        };
        let batch = self.take_batch(index, node_of);
        let ids = batch.iter().map(|pending| (pending.keys.clone(), pending.id.clone()));
        self.current = ids.collect();
        ToRelease::Now(batch)
    }

    /// The release at this index, and others that the same packet may contain.
    fn take_batch(&mut self, index: usize, node_of: impl Fn(&PendingRelease<C>) -> usize) -> Vec<PendingRelease<C>> {
        let mut batch = Vec::from_iter(self.pending.remove(index));
        let mut index = index;
        while let (Some(other), Some(first)) = (self.pending.get(index), batch.first())
            && batch.len() < BATCH
        {
            if first.goes_with(other) && node_of(first) == node_of(other) {
                batch.extend(self.pending.remove(index));
            } else {
                index += 1;
            }
        }
        batch
    }

    /// Takes the result of the last batch, which was sent to `node`: the unconfirmed releases are pending again.
    pub(crate) fn sent(&mut self, node: usize, unconfirmed: Vec<PendingRelease<C>>, now: Instant) {
        self.current.clear();
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

    /// Whether no release of this id is pending. A pending release would release the grant of a later call, or the
    /// later call would undo the release.
    pub(crate) fn settle(&mut self, keys: &Keys, id: &str, now: Instant) -> Settled<C> {
        self.pending.retain(|pending| !pending.is_of(keys, id) || !pending.is_over(now));
        let mut pending = self.pending.iter();
        if let Some(index) = pending.position(|pending| pending.is_of(keys, id))
            && let Some(pending) = self.pending.remove(index)
        {
            return Settled::After(pending);
        }
        let mut current = self.current.iter();
        match current.any(|(other, current)| other == keys && current == id) {
            true => Settled::Soon,
            false => Settled::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ordered for () {
        fn is_shared_with(&self, (): &()) -> bool {
            false
        }
    }

    fn pending(name: &str, until: Instant) -> PendingRelease<()> {
        PendingRelease {
            keys: Keys::mutex("luagate", name).unwrap(),
            id: "id".to_owned(),
            target: Target::Whatever,
            connection: None,
            until: Some(until),
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
            let ToRelease::Now(unconfirmed) = releases.next(after(at), node_of) else {
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
}
