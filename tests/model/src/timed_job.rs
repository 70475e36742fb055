//! A job of the gate's own thread: a list of entries, each with work and a time.

use crate::changes::Changes;
use crate::engine::worker::{Job, NextWork, Worker};
use crate::sync::{Mutex, lock};
use crate::world::{Id, fail, foreign, has_failed, is_missed, new_id, now, wait_on, wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The work of an entry.
pub(crate) enum Task {
    Nothing,
    /// It starts work that waits for a change of this value. After that, the job has another entry.
    Renew(Arc<Changes>),
}

struct Entry {
    at: Instant,
    task: Task,
    is_done: Arc<AtomicBool>,
}

#[derive(Default)]
struct ConnectionState {
    entries: Vec<Entry>,
    /// The work that entries have started and that is not over.
    renewals: usize,
    is_closed: bool,
}

pub(crate) struct TimedJob {
    worker: Worker,
    state: Mutex<ConnectionState>,
    is_working: AtomicBool,
    changed: Id,
}

impl TimedJob {
    pub(crate) fn new(worker: Worker) -> Arc<TimedJob> {
        Arc::new(TimedJob {
            worker,
            state: Mutex::default(),
            is_working: AtomicBool::new(false),
            changed: new_id(),
        })
    }

    /// Adds an entry. Returns whether it is done. The caller calls the gate's own thread.
    pub(crate) fn add(&self, at: Instant, task: Task) -> Arc<AtomicBool> {
        let is_done = Arc::new(AtomicBool::new(false));
        lock(&self.state).entries.push(Entry { at, task, is_done: is_done.clone() });
        is_done
    }

    /// Blocks until an entry is done.
    pub(crate) fn wait(&self, is_done: &AtomicBool) {
        while !is_done.load(Ordering::Relaxed) {
            wait_on(self.changed, None);
        }
    }

    /// The gate was dropped. The entries that are left will still be done.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
    }

    async fn renew(self: Arc<TimedJob>, changes: Arc<Changes>) {
        changes.changed_for_worker(1).await;
        let next = now() + Duration::from_millis(10);
        lock(&self.state).renewals -= 1;
        self.add(next, Task::Nothing);
        self.worker.call();
    }

    /// Does what is due. Returns when the next entry is due, and whether the job has nothing left to do.
    fn work_at(self: &Arc<TimedJob>, time: Instant) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        let (due, later) = std::mem::take(&mut state.entries).into_iter().partition(|entry| entry.at <= time);
        state.entries = later;
        let due: Vec<_> = due;
        state.renewals += due.iter().filter(|entry| matches!(entry.task, Task::Renew(_))).count();
        let next = state.entries.iter().map(|entry| entry.at).min();
        let is_over = state.is_closed && next.is_none() && state.renewals == 0;
        drop(state);
        for Entry { at, task, is_done } in due {
            if is_missed(at) {
                fail("a job was called too late".into());
            }
            if let Task::Renew(changes) = task {
                self.worker.spawn(self.clone().renew(changes));
            }
            is_done.store(true, Ordering::Relaxed);
            wake(self.changed);
        }
        (next, is_over)
    }
}

impl Job for TimedJob {
    fn work(self: Arc<TimedJob>) -> NextWork {
        if self.is_working.swap(true, Ordering::Relaxed) {
            fail("two threads do the work of one job".into());
        }
        foreign("works");
        let (next, is_over) = self.work_at(now());
        self.is_working.store(false, Ordering::Relaxed);
        if is_over { NextWork::Never } else { NextWork::At(next) }
    }
}

impl Drop for TimedJob {
    fn drop(&mut self) {
        foreign("drops a job");
        let is_over = has_failed() || lock(&self.state).entries.is_empty();
        if !is_over {
            fail("a job was dropped that had work left".into());
        }
    }
}
