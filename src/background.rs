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
}

#[derive(Default)]
struct Queue {
    debts: VecDeque<Debt>,
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
        let debt = queue.debts.pop_front();
        drop(queue);
        let Some(debt) = debt else { continue };
        match pay(&shared.connections, debt) {
            None => pause = FIRST_PAUSE,
            Some(debt) if debt.until.map_or(closed, |until| until <= Instant::now()) => {}
            Some(debt) => {
                lock(&shared.queue).debts.push_back(debt);
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
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
