//! Releases that could not be confirmed in time: one thread a gate repeats them until the server answers, or until
//! there is nothing left to release.

use crate::connections::{Connections, Wire};
use crate::name::Keys;
use crate::scripts::semaphore;
use crate::sync::{lock, wait, wait_for};
use redis::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAYMENTS: Duration = Duration::from_secs(30);

/// Ids to be released, most often one.
pub(crate) struct Debt {
    pub(crate) permits: Vec<(Keys, String)>,
    /// The connection that carried the call whose reply is missing: a release on it cannot overtake that call.
    pub(crate) wire: Option<Box<Wire>>,
    /// Past this the server has freed the id by itself; `None`: a permanent lease, tried for as long as the gate lives.
    pub(crate) until: Option<Instant>,
}

/// The thread and its queue.
pub(crate) struct Background {
    shared: Arc<Shared>,
}

struct Shared {
    connections: Arc<Connections>,
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
    pub(crate) fn new(connections: Arc<Connections>) -> Background {
        Background {
            shared: Arc::new(Shared {
                connections,
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
            let now = self.shared.connections.clock.now();
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
        if self.shared.connections.is_own_process() {
            let now = self.shared.connections.clock.now();
            lock(&self.shared.queue).closes = Some(now + LAST_PAYMENTS);
            self.shared.filled.notify_one();
        }
    }
}

fn work(shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut queue = lock(&shared.queue);
        while queue.debts.is_empty() {
            if queue.closes.is_some() {
                return;
            }
            queue = wait(&shared.filled, queue);
        }
        let closes = queue.closes;
        let Some(debt) = queue.debts.pop_front() else {
            continue;
        };
        if is_over(&debt, closes, shared.connections.clock.now()) {
            continue;
        }
        queue.current.clone_from(&debt.permits);
        drop(queue);
        let unpaid = pay(&shared.connections, debt);
        let failed = unpaid.is_some();
        let mut queue = lock(&shared.queue);
        queue.current.clear();
        queue.debts.extend(unpaid);
        drop(queue);
        shared.paid.notify_all();
        if failed {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            pause = FIRST_PAUSE;
        }
    }
}

/// Whether the server has freed it by itself, or the gate is gone for too long.
fn is_over(debt: &Debt, closes: Option<Instant>, now: Instant) -> bool {
    debt.until.is_some_and(|until| until <= now) || closes.is_some_and(|closes| closes <= now)
}

/// Releases once; gives back what of the debt was not answered. A connection of its own is used once: it may be dead, and
/// what was sent on it stays in its order behind the call all the same.
fn pay(connections: &Connections, mut debt: Debt) -> Option<Debt> {
    let wire = debt.wire.take();
    let permits: Vec<(&Keys, &str)> = debt
        .permits
        .iter()
        .map(|(k, id)| (k, id.as_str()))
        .collect();
    let release = &mut |con: &mut Connection| semaphore::release_all(con, &permits);
    let outcome = match wire {
        Some(wire) => connections.call_on(*wire, None, release),
        None => connections.call(None, release),
    };
    let Ok(answered) = outcome else {
        return Some(debt);
    };
    let mut outcomes = answered.reply.iter();
    debt.permits
        .retain(|_| outcomes.next().is_some_and(Result::is_err));
    (!debt.permits.is_empty()).then_some(debt)
}
