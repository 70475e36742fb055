//! Releases that could not be confirmed in time: one thread a gate repeats them until the server answers, or until
//! there is nothing left to release.

use crate::connections::{Parked, Turn};
use crate::name::Keys;
use crate::scripts::semaphore;
use crate::servers::Servers;
use crate::sync::{lock, wait, wait_for};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAYMENTS: Duration = Duration::from_secs(30);

/// Ids to be released, most often one.
pub(crate) struct Debt {
    pub(crate) permits: Vec<(Keys, String)>,
    /// The connection that carried the call whose reply is missing: a release on it cannot overtake that call.
    pub(crate) wire: Option<Parked>,
    /// Past this the server has freed the id by itself; `None`: a permanent lease, tried for as long as the gate lives.
    pub(crate) until: Option<Instant>,
}

/// The thread and its queue.
pub(crate) struct Background {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    queue: Mutex<Queue>,
    filled: Condvar,
    paid: Condvar,
}

#[derive(Default)]
struct Queue {
    debts: VecDeque<Debt>,
    /// What is being paid.
    current: Vec<(Keys, String)>,
    running: bool,
    /// When the thread ends at the latest, once the gate is gone.
    closes: Option<Instant>,
}

impl Background {
    pub(crate) fn new(servers: Arc<Servers>) -> Background {
        Background {
            shared: Arc::new(Shared {
                servers,
                queue: Mutex::default(),
                filled: Condvar::new(),
                paid: Condvar::new(),
            }),
        }
    }

    /// Leaves a release to the thread. Starts the thread if none runs.
    pub(crate) fn release(&self, debt: Debt) {
        let mut queue = lock(&self.shared.queue);
        queue.debts.push_back(debt);
        if !queue.running {
            let shared = self.shared.clone();
            let name = "luagate-background".to_owned();
            let thread = std::thread::Builder::new().name(name);
            // Where no thread can be started, the lease ends by itself; the next debt tries again.
            queue.running = thread.spawn(move || work(&shared)).is_ok();
        }
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// Takes back what is owed for an id that is about to be used again, so that nothing releases it later: it has to be
    /// paid before. One that is being paid just now is waited for until `until`.
    pub(crate) fn take_back(&self, keys: &Keys, id: &str, until: Instant) -> Option<Debt> {
        let has_it = |permits: &[(Keys, String)]| {
            permits
                .iter()
                .any(|(keys2, id2)| keys2 == keys && id2 == id)
        };
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(at) = queue.debts.iter().position(|debt| has_it(&debt.permits)) {
                let mut debt = queue.debts.remove(at)?;
                if debt.permits.len() == 1 {
                    return Some(debt);
                }
                // The others are owed all the same.
                debt.permits
                    .retain(|(keys2, id2)| keys2 != keys || id2 != id);
                let until = debt.until;
                queue.debts.push_back(debt);
                return Some(Debt {
                    permits: vec![(keys.clone(), id.to_owned())],
                    wire: None,
                    until,
                });
            }
            let now = self.shared.servers.clock.now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() || !has_it(&queue.current) {
                return None;
            }
            queue = wait_for(&self.shared.paid, queue, left);
        }
    }
}

impl Drop for Background {
    /// The thread still pays what it can within half a minute, then ends.
    fn drop(&mut self) {
        if self.shared.servers.is_own_process() {
            let now = self.shared.servers.clock.now();
            lock(&self.shared.queue).closes = Some(now + LAST_PAYMENTS);
            self.shared.filled.notify_one();
        }
    }
}

fn work(shared: &Shared) {
    let mut rests = Rests::default();
    while let Some((debt, closes)) = next(shared, &rests) {
        if is_over(&debt, closes, shared.servers.clock.now()) {
            settled(shared, None);
            continue;
        }
        let lane = lane_of(&shared.servers, &debt);
        let unpaid = pay(&shared.servers, debt);
        rests.heed(lane, unpaid.is_none());
        settled(shared, unpaid);
    }
}

/// The first debt whose server does not rest, and when the thread ends; waits for one. Nothing when the gate is gone.
fn next(shared: &Shared, rests: &Rests) -> Option<(Debt, Option<Instant>)> {
    let mut queue = lock(&shared.queue);
    loop {
        let now = Instant::now();
        let ready = queue
            .debts
            .iter()
            .position(|debt| !rests.rests(lane_of(&shared.servers, debt), now));
        if let Some(debt) = ready.and_then(|place| queue.debts.remove(place)) {
            queue.current.clone_from(&debt.permits);
            return Some((debt, queue.closes));
        }
        queue = match rests.first_end() {
            Some(end) if !queue.debts.is_empty() => {
                wait_for(&shared.filled, queue, end.saturating_duration_since(now))
            }
            _ if queue.closes.is_some() => return None,
            _ => wait(&shared.filled, queue),
        };
    }
}

/// What was being paid is paid, or to be tried again.
fn settled(shared: &Shared, unpaid: Option<Debt>) {
    let mut queue = lock(&shared.queue);
    queue.current.clear();
    queue.debts.extend(unpaid);
    drop(queue);
    shared.paid.notify_all();
}

/// The server to which the first release of a debt goes.
fn lane_of(servers: &Servers, debt: &Debt) -> usize {
    match (&debt.wire, debt.permits.first()) {
        (Some(wire), _) => wire.node(),
        (None, Some((keys, _))) => servers.lane(&keys.meta),
        (None, None) => 0,
    }
}

/// Servers that did not answer, each left alone for a while: what is owed to the others does not wait for them.
#[derive(Default)]
struct Rests {
    by_lane: BTreeMap<usize, (Instant, Duration)>,
}

impl Rests {
    fn rests(&self, lane: usize, now: Instant) -> bool {
        self.by_lane.get(&lane).is_some_and(|(end, _)| *end > now)
    }

    fn first_end(&self) -> Option<Instant> {
        self.by_lane.values().map(|(end, _)| *end).min()
    }

    /// It answered, or not.
    fn heed(&mut self, lane: usize, answered: bool) {
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
fn is_over(debt: &Debt, closes: Option<Instant>, now: Instant) -> bool {
    debt.until.is_some_and(|until| until <= now) || closes.is_some_and(|closes| closes <= now)
}

/// Releases once; gives back what of the debt was not answered. A connection of its own is used once: it may be dead, and
/// what was sent on it stays in its order behind the call all the same.
fn pay(servers: &Servers, mut debt: Debt) -> Option<Debt> {
    let permits: Vec<(&Keys, &str)> = debt
        .permits
        .iter()
        .map(|(keys, id)| (keys, id.as_str()))
        .collect();
    let mut paid = vec![false; permits.len()];
    if let Some(wire) = debt.wire.take() {
        // One by itself leaves the connection to others whose calls it carried, though its reply is late too.
        let released = servers.call_on(wire, None, &mut |con| match permits.as_slice() {
            [(keys, id)] => semaphore::release(con, keys, id, 0).map(|answer| vec![Ok(answer)]),
            permits => semaphore::release_all(con, permits),
        });
        for (paid, outcome) in paid
            .iter_mut()
            .zip(released.into_iter().flat_map(|a| a.reply))
        {
            *paid = outcome.is_ok();
        }
    } else {
        let packets = servers.call_each(
            Turn::Last,
            &permits,
            |(keys, _)| &keys.meta,
            None,
            &mut |con, permits| semaphore::release_all(con, permits),
        );
        for packet in packets {
            let outcomes = packet
                .outcome
                .into_iter()
                .flat_map(|answered| answered.reply);
            for (place, outcome) in packet.places.into_iter().zip(outcomes) {
                if let Some(paid) = paid.get_mut(place) {
                    *paid = outcome.is_ok();
                }
            }
        }
    }
    drop(permits);
    let mut paid = paid.into_iter();
    debt.permits.retain(|_| !paid.next().unwrap_or(false));
    (!debt.permits.is_empty()).then_some(debt)
}
