//! Pending releases: those that the server has not confirmed. One thread of a gate repeats them until the server answers, or until
//! there is nothing left to release.

use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::name::Keys;
use crate::scripts::semaphore::{self, LookupAnswer, ReleaseAnswer};
use crate::sync::{lock, wait, wait_for};
use crate::transport::connections::{Answered, Parked, Turn, Unanswered};
use crate::transport::servers::Servers;
use redis::ConnectionLike;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the thread goes on after its gate was dropped.
const LAST_RELEASES: Duration = Duration::from_secs(30);

/// How many releases go in one packet at most.
const BATCH: usize = 100;

/// A release that the server has not confirmed.
pub(crate) struct PendingRelease {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) target: Target,
    /// The connection of the call whose reply is missing: a release on it reaches the server after that call.
    pub(crate) connection: Option<Parked>,
    /// Past this the server has freed the id by itself; `None`: a permanent lease, released for as long as the gate lives.
    pub(crate) until: Option<Instant>,
}

/// What is released. A release may reach the server late, when its id is in use again; it must not hit the later grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Whatever the id has. Only for an id that this client made for one call, which no later call uses.
    Whatever,
    /// The permit with this fence.
    Fence(u64),
    /// Whatever an own id has after a call without an answer. It is looked up, then released by its fence or its ticket.
    LookUp,
}

impl PendingRelease {
    fn is_of(&self, keys: &Keys, id: &str) -> bool {
        self.keys == *keys && self.id == id
    }

    /// The server to which it goes.
    fn lane(&self, servers: &Servers) -> usize {
        match &self.connection {
            Some(connection) => connection.node(),
            None => servers.lane(&self.keys.meta),
        }
    }

    /// Whether it may go in a packet with others. On a connection of its own it goes alone: after a packet whose replies are late
    /// the connection would be of no use to others whose calls it carried.
    fn goes_with_others(&self) -> bool {
        self.connection.is_none() && self.target != Target::LookUp
    }

    fn fence(&self) -> Option<u64> {
        match self.target {
            Target::Fence(fence) => Some(fence),
            Target::Whatever | Target::LookUp => None,
        }
    }
}

/// The thread and its queue.
pub(crate) struct Cleanup {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    queue: Mutex<Queue>,
    filled: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<PendingRelease>,
    /// What is on its way to the server.
    current: Vec<(Keys, String)>,
    running: bool,
    /// When the thread ends at the latest, once the gate is gone.
    closes: Option<Instant>,
}

impl Cleanup {
    pub(crate) fn new(servers: Arc<Servers>) -> Cleanup {
        Cleanup {
            shared: Arc::new(Shared {
                servers,
                queue: Mutex::default(),
                filled: Condvar::new(),
                answered: Condvar::new(),
            }),
        }
    }

    /// Leaves releases to the thread. Starts the thread if none runs.
    pub(crate) fn release_later(&self, pending: impl IntoIterator<Item = PendingRelease>) {
        let mut queue = lock(&self.shared.queue);
        queue.pending.extend(pending);
        if !queue.running && !queue.pending.is_empty() {
            let shared = self.shared.clone();
            let name = "luagate-cleanup".to_owned();
            let thread = std::thread::Builder::new().name(name);
            // Where no thread can be started, the lease ends by itself; the next release tries again.
            queue.running = thread.spawn(move || work(&shared)).is_ok();
        }
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// Releases once, by `until`. Returns whether that was confirmed; if not, the thread repeats it.
    pub(crate) fn release_now(&self, pending: PendingRelease, until: Instant) -> bool {
        let left = release(&self.shared.servers, vec![pending], Some(until));
        let is_confirmed = left.is_empty();
        self.release_later(left.into_iter().map(|(pending, _)| pending));
        is_confirmed
    }

    /// Returns once no release of this id is pending, so that the id can be used again: a release that is pending would give
    /// back what a later call is granted, or would be undone by it.
    ///
    /// Blocks until `until` at most (`None`: the read timeout). An error: a release is still not confirmed.
    pub(crate) fn settle(
        &self,
        keys: &Keys,
        id: &str,
        until: Option<Instant>,
    ) -> Result<(), CallError> {
        let servers = &self.shared.servers;
        let until = until.unwrap_or_else(|| servers.clock.now() + servers.read_timeout());
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(at) = queue.pending.iter().position(|p| p.is_of(keys, id)) {
                let pending = queue.pending.remove(at);
                drop(queue);
                let now = servers.clock.now();
                let pending = pending.filter(|pending| !is_over(pending, None, now));
                let left = release(servers, Vec::from_iter(pending), Some(until));
                if let Some((pending, error)) = left.into_iter().next() {
                    self.release_later([pending]);
                    return Err(unsettled(error));
                }
                queue = lock(&self.shared.queue);
                continue;
            }
            let is_current = |(keys2, id2): &(Keys, String)| keys2 == keys && id2 == id;
            if !queue.current.iter().any(is_current) {
                return Ok(());
            }
            let left = until.saturating_duration_since(servers.clock.now());
            if left.is_zero() {
                let late = Failure::new(FailureKind::TimedOut, "no answer yet");
                return Err(unsettled(CallError::Failed(late)));
            }
            queue = wait_for(&self.shared.answered, queue, left);
        }
    }
}

/// Nothing was sent for the new call, so its outcome is known.
fn unsettled(error: CallError) -> CallError {
    let (kind, text) = match &error {
        CallError::Failed(failure) | CallError::Unknown(failure) => {
            (failure.kind(), failure.text())
        }
        CallError::Invalid(_) => return error,
    };
    let text = format!("an earlier release of this id is not confirmed yet: {text}");
    CallError::Failed(Failure::new(kind, text))
}

impl Drop for Cleanup {
    /// The thread still releases what it can within half a minute, then ends.
    fn drop(&mut self) {
        if self.shared.servers.is_own_process() {
            let now = self.shared.servers.clock.now();
            lock(&self.shared.queue).closes = Some(now + LAST_RELEASES);
            self.shared.filled.notify_one();
        }
    }
}

fn work(shared: &Shared) {
    let servers = &shared.servers;
    let mut pauses = Pauses::default();
    while let Some((mut batch, closes)) = next(shared, &pauses) {
        let now = servers.clock.now();
        batch.retain(|pending| !is_over(pending, closes, now));
        let lane = batch.first().map(|pending| pending.lane(servers));
        let left = release(servers, batch, None);
        if let Some(lane) = lane {
            pauses.note(lane, left.is_empty());
        }
        let mut queue = lock(&shared.queue);
        queue.current.clear();
        queue
            .pending
            .extend(left.into_iter().map(|(pending, _)| pending));
        drop(queue);
        shared.answered.notify_all();
    }
}

/// The next releases that go in one packet to a server that is not left alone, and when the thread ends. Waits for one. Nothing
/// when the gate is gone.
fn next(shared: &Shared, pauses: &Pauses) -> Option<(Vec<PendingRelease>, Option<Instant>)> {
    let mut queue = lock(&shared.queue);
    loop {
        let now = Instant::now();
        let end = |pending: &PendingRelease| pauses.end(pending.lane(&shared.servers), now);
        if let Some(at) = queue.pending.iter().position(|p| end(p).is_none()) {
            let batch = take_batch(&mut queue.pending, at, &shared.servers);
            let ids = batch.iter().map(|p| (p.keys.clone(), p.id.clone()));
            queue.current = ids.collect();
            return Some((batch, queue.closes));
        }
        // All servers for which something is pending are left alone for now.
        queue = match queue.pending.iter().filter_map(end).min() {
            Some(end) => wait_for(&shared.filled, queue, end.saturating_duration_since(now)),
            None if queue.closes.is_some() => return None,
            None => wait(&shared.filled, queue),
        };
    }
}

/// The release at this index, and others that may go with it.
fn take_batch(
    pending: &mut VecDeque<PendingRelease>,
    at: usize,
    servers: &Servers,
) -> Vec<PendingRelease> {
    let mut batch = Vec::from_iter(pending.remove(at));
    let mut index = at;
    while let (Some(other), Some(first)) = (pending.get(index), batch.first()) {
        if batch.len() == BATCH {
            break;
        }
        let together = first.goes_with_others() && other.goes_with_others();
        if together && first.lane(servers) == other.lane(servers) {
            batch.extend(pending.remove(index));
        } else {
            index += 1;
        }
    }
    batch
}

/// Servers that did not answer, each left alone for a while. What is pending for the others does not wait for them.
#[derive(Default)]
struct Pauses {
    by_lane: BTreeMap<usize, (Instant, Duration)>,
}

impl Pauses {
    /// Until when this server is left alone; nothing when it is not.
    fn end(&self, lane: usize, now: Instant) -> Option<Instant> {
        let (end, _) = self.by_lane.get(&lane)?;
        (*end > now).then_some(*end)
    }

    /// It answered, or not.
    fn note(&mut self, lane: usize, answered: bool) {
        if answered {
            self.by_lane.remove(&lane);
            return;
        }
        let pause = match self.by_lane.get(&lane) {
            Some((_, pause)) => (*pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.by_lane.insert(lane, (Instant::now() + pause, pause));
    }
}

/// Whether the server has freed it by itself, or the gate is gone for too long.
fn is_over(pending: &PendingRelease, closes: Option<Instant>, now: Instant) -> bool {
    pending.until.is_some_and(|until| until <= now) || closes.is_some_and(|closes| closes <= now)
}

/// Releases these once: one, or several that go in one packet. Returns what the server did not confirm, and why.
///
/// A connection of their own is used once: it may be dead. What was sent on it stays behind the call all the same.
fn release(
    servers: &Servers,
    mut batch: Vec<PendingRelease>,
    until: Option<Instant>,
) -> Vec<(PendingRelease, CallError)> {
    let outcomes = match batch.as_mut_slice() {
        [] => Vec::new(),
        [one] => vec![outcome(match one.connection.take() {
            Some(own) => servers.call_on(own, until, &mut |con| release_one(con, one)),
            None => servers.call(&one.keys.meta, until, &mut |con| release_one(con, one)),
        })],
        several => release_several(servers, several, until),
    };
    let left = batch.into_iter().zip(outcomes);
    left.filter_map(|(pending, outcome)| Some((pending, outcome.err()?)))
        .collect()
}

fn release_one(con: &mut dyn ConnectionLike, pending: &PendingRelease) -> Result<(), CallError> {
    let (keys, id) = (&pending.keys, pending.id.as_str());
    if pending.target != Target::LookUp {
        return semaphore::release(con, keys, id, 0, pending.fence()).map(drop);
    }
    // A place in line may be granted after the lookup. Then it is looked up once more.
    for _ in 0..2 {
        let found = match semaphore::lookup(con, keys, id)? {
            LookupAnswer::Held(grant) => grant.fence,
            LookupAnswer::Queued { ticket, .. } => ticket,
            LookupAnswer::Gone { .. } => break,
        };
        if semaphore::release(con, keys, id, 0, Some(found))? != ReleaseAnswer::Gone {
            break;
        }
    }
    Ok(())
}

fn release_several(
    servers: &Servers,
    several: &[PendingRelease],
    until: Option<Instant>,
) -> Vec<Result<(), CallError>> {
    let calls = several.iter().map(|p| (&p.keys, p.id.as_str(), p.fence()));
    let calls: Vec<_> = calls.collect();
    let packets = servers.call_each(
        Turn::Last,
        &calls,
        |(keys, ..)| &keys.meta,
        until,
        &mut |con, calls| semaphore::release_all(con, calls),
    );
    let mut outcomes = vec![Err(crate::scripts::unexpected(&"no answer")); several.len()];
    for packet in packets {
        let told = each(packet.outcome, packet.places.len());
        for (place, told) in packet.places.into_iter().zip(told) {
            if let Some(outcome) = outcomes.get_mut(place) {
                *outcome = told;
            }
        }
    }
    outcomes
}

fn outcome<T>(answered: Result<Answered<T>, Unanswered>) -> Result<(), CallError> {
    answered.map(drop).map_err(|unanswered| unanswered.error)
}

/// The outcome of each call of a packet.
fn each<T>(
    answered: Result<Answered<Vec<Result<T, CallError>>>, Unanswered>,
    count: usize,
) -> Vec<Result<(), CallError>> {
    match answered {
        Ok(answered) => {
            let outcomes = answered.reply.into_iter();
            outcomes.map(|outcome| outcome.map(drop)).collect()
        }
        Err(unanswered) => vec![Err(unanswered.error); count],
    }
}
