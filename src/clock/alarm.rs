//! Sleeping in a task: until it is woken, or until a time of its clock.

use super::{Clock, Sleeper};
use crate::sync::lock;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::time::Sleep;

/// Wakes one task. The counterpart of [`Notify`](super::Notify), for tasks.
pub(crate) struct Alarm {
    clock: Clock,
    state: Mutex<State>,
    sleeper: Option<Sleeper>,
}

/// Work that goes on while the [`Alarm`] of the same task sleeps. A test that moves the clock waits for its end.
pub(crate) struct InProgress(Option<Sleeper>);

impl InProgress {
    pub(crate) fn new(clock: &Clock) -> InProgress {
        InProgress(clock.sleeper(false))
    }

    pub(crate) fn begins(&self) {
        if let Some(sleeper) = &self.0 {
            sleeper.wakes();
        }
    }

    /// All of it has ended.
    pub(crate) fn ends(&self) {
        if let Some(sleeper) = &self.0 {
            sleeper.sleeps(None);
        }
    }
}

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    /// It was woken since it last looked for work.
    woken: bool,
}

impl Alarm {
    /// For a task that has something to do before it sleeps.
    pub(crate) fn awake(clock: &Clock) -> Alarm {
        Alarm { clock: clock.clone(), state: Mutex::default(), sleeper: clock.sleeper(true) }
    }

    /// For a task that has nothing to do yet.
    pub(crate) fn new(clock: &Clock) -> Alarm {
        Alarm { clock: clock.clone(), state: Mutex::default(), sleeper: clock.sleeper(false) }
    }

    /// Wakes the task, after there is something for it. Does not block. Works outside a runtime.
    pub(crate) fn wake(&self) {
        let mut state = lock(&self.state);
        state.woken = true;
        if let Some(sleeper) = &self.sleeper {
            sleeper.wakes();
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sleeps until `look` finds something. `look` is called first, then whenever the task is woken, and at the time that
    /// it returned as an error (`None`: only when the task is woken).
    ///
    /// # Cancel safety
    /// Nothing that `look` found is lost.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Result<T, Option<Instant>>) -> T {
        let (mut at, mut timer) = (None, pin!(None));
        poll_fn(|cx| self.poll(cx, &mut at, timer.as_mut(), &mut look)).await
    }

    fn poll<T>(
        &self,
        cx: &mut Context,
        at: &mut Option<Instant>,
        mut timer: Pin<&mut Option<Sleep>>,
        look: &mut dyn FnMut() -> Result<T, Option<Instant>>,
    ) -> Poll<T> {
        loop {
            *lock(&self.state) = State { waker: Some(cx.waker().clone()), woken: false };
            let until = match look() {
                Ok(found) => return Poll::Ready(found),
                Err(until) => until,
            };
            let state = lock(&self.state);
            if state.woken {
                continue; // after `look`
            }
            // Before the clock is read: a test that moves it later sees `until` and wakes this task.
            if let Some(sleeper) = &self.sleeper {
                sleeper.set_waker(cx.waker());
                sleeper.sleeps(until);
            }
            drop(state);
            if *at != until || self.clock.is_moved() {
                *at = until;
                let left = |until: Instant| until.saturating_duration_since(self.clock.now());
                timer.set(until.map(|until| tokio::time::sleep(left(until))));
            }
            match timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(())) => {
                    // If `look` names another time, the next loop sets the timer again.
                    *at = None;
                    timer.set(None);
                }
                _ => return Poll::Pending,
            }
        }
    }
}
