//! Releases that could not be confirmed in time: one thread a gate repeats them until the server answers, or until
//! there is nothing left to release.

use crate::connections::{Connections, Wire, lock};
use crate::name::Keys;
use crate::scripts::semaphore;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An id to be released.
pub(crate) struct Debt {
    pub(crate) keys: Keys,
    pub(crate) id: String,
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
    /// The one that is being paid.
    current: Option<(Keys, String)>,
    running: bool,
    closed: bool,
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

    /// Takes back what is owed for an id that is about to be used again, so that nothing releases it later. True when
    /// something was owed, and has to be released before.
    pub(crate) fn take_back(&self, keys: &Keys, id: &str) -> bool {
        let is_it = |keys2: &Keys, id2: &str| keys2 == keys && id2 == id;
        let mut queue = lock(&self.shared.queue);
        loop {
            let before = queue.debts.len();
            queue.debts.retain(|debt| !is_it(&debt.keys, &debt.id));
            if queue.debts.len() < before {
                return true;
            }
            // On its way just now: it is paid, or comes back into the queue.
            match &queue.current {
                Some((keys2, id2)) if is_it(keys2, id2) => {
                    queue = self
                        .shared
                        .paid
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                _ => return false,
            }
        }
    }
}

impl Drop for Background {
    /// The thread still pays what is due within its bounds, then ends.
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_one();
    }
}

fn work(shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut queue = lock(&shared.queue);
        while queue.debts.is_empty() {
            if queue.closed {
                return;
            }
            queue = shared
                .filled
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let closed = queue.closed;
        let Some(debt) = queue.debts.pop_front() else {
            continue;
        };
        queue.current = Some((debt.keys.clone(), debt.id.clone()));
        drop(queue);
        let unpaid = pay(&shared.connections, debt);
        let unpaid = unpaid.filter(|debt| !is_over(debt, closed));
        let failed = unpaid.is_some();
        let mut queue = lock(&shared.queue);
        queue.current = None;
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

/// Whether the server has freed it by itself, or nobody is left who could wait for it.
fn is_over(debt: &Debt, closed: bool) -> bool {
    match debt.until {
        Some(until) => until <= Instant::now(),
        None => closed,
    }
}

/// Releases once; gives the debt back when no answer came.
fn pay(connections: &Connections, mut debt: Debt) -> Option<Debt> {
    let (keys, id) = (&debt.keys, &debt.id);
    let release = &mut |con: &mut dyn redis::ConnectionLike| semaphore::release(con, keys, id, 0);
    let outcome = match debt.wire.take() {
        Some(wire) => connections.call_on(*wire, release).map(drop),
        None => connections.call(None, release).map(drop),
    };
    match outcome {
        Ok(()) => None,
        Err(unanswered) => {
            debt.wire = unanswered.wire;
            Some(debt)
        }
    }
}
