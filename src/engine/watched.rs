//! A value behind a lock. Threads and tasks can wait for a change of it.

use super::mode::{MayBlock, Mode, in_own_thread};
use crate::clock::machine_now;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, spawn, wait};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Watched<T> {
    state: Mutex<WatchedState<T>>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchedState<T> {
    value: T,
    wakers: Vec<Waker>,
    /// How many threads sleep. To notify them is a system call.
    sleeping: usize,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Watched<T> {
        Watched { state: Mutex::new(WatchedState { value, wakers: Vec::new(), sleeping: 0 }), changed: Condvar::new() }
    }

    /// Reads the value, or changes it in a way for which nobody waits.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.state).value)
    }

    /// Changes the value. All that wait look at it again.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state.value);
        self.wake(state);
        result
    }

    fn wake(&self, mut state: MutexGuard<WatchedState<T>>) {
        let wakers = std::mem::take(&mut state.wakers);
        let sleeping = state.sleeping;
        drop(state);
        if sleeping > 0 {
            self.changed.notify_all();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` finds something. A blocking caller waits until `latest` at most, on this machine's clock; `None`:
    /// its time is over.
    pub(crate) async fn until<R>(
        &self,
        latest: Option<Instant>,
        mode: Mode,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        match mode {
            Mode::Blocking(may) => self.block_until(latest, look, may),
            Mode::Async => {
                poll_fn(|cx| {
                    let mut state = lock(&self.state);
                    let found = look(&mut state.value);
                    if found.is_none() && !state.wakers.last().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        state.wakers.push(cx.waker().clone());
                    }
                    found.map_or(Poll::Pending, |found| Poll::Ready(Some(found)))
                })
                .await
            }
        }
    }

    fn block_until<R>(
        &self,
        latest: Option<Instant>,
        mut look: impl FnMut(&mut T) -> Option<R>,
        _: MayBlock,
    ) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = look(&mut state.value) {
                return Some(found);
            }
            let left = latest.map(|latest| latest.saturating_duration_since(machine_now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state.sleeping += 1;
            state = wait(&self.changed, state, left);
            state.sleeping -= 1;
        }
    }
}

/// Runs work that blocks: in the calling thread, or in a thread of its own for a task. `None`: no thread could be started.
pub(super) async fn run_blocking<T: Send + 'static>(
    mode: Mode,
    name: &str,
    work: impl FnOnce(MayBlock) -> T + Send + 'static,
) -> Option<T> {
    if let Mode::Blocking(may) = mode {
        return Some(work(may));
    }
    let done = Arc::new(Watched::new(None));
    let done_there = done.clone();
    let run = move || {
        let result = in_own_thread(work);
        done_there.change(|done| *done = Some(result));
    };
    if !spawn(name, run) {
        return None;
    }
    done.until(None, mode, Option::take).await
}
