//! A value behind a lock. Threads and tasks wait for a change of it. Everything in the engine that waits for
//! a value waits here.

use super::mode::{MayBlock, Mode, in_own_thread};
use crate::clock::{Alarm, Clock};
use crate::sync::{Arc, Mutex, contained, fault, lock, spawn};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

pub(crate) struct Slot<T> {
    state: Mutex<SlotState<T>>,
    alarm: Alarm,
}

struct SlotState<T> {
    value: T,
    /// How many threads sleep. To wake them is a system call.
    sleeping: usize,
    /// The tasks that wait, each with the number of its wait.
    tasks: Vec<(u64, Waker)>,
    last: u64,
}

/// On this machine's clock.
impl<T: Default> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot::new(&Clock::real(), T::default())
    }
}

impl<T> Slot<T> {
    /// On a clock that a test moves, only one thread or one task may wait.
    pub(crate) fn new(clock: &Clock, value: T) -> Slot<T> {
        let state = SlotState { value, sleeping: 0, tasks: Vec::new(), last: 0 };
        Slot { state: Mutex::new(state), alarm: Alarm::new(clock, true) }
    }

    /// Reads the value, or changes it in a way for which nobody waits.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.state).value)
    }

    /// Changes the value. All that wait look at it again.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state.value);
        let tasks = std::mem::take(&mut state.tasks);
        if state.sleeping > 0 && !fault!("a thread is not woken by a change") {
            self.alarm.wake(state);
        } else {
            if !tasks.is_empty() {
                self.alarm.wakes();
            }
            drop(state);
        }
        let _locked = fault!("tasks are woken with a lock held").then(|| lock(&self.state));
        let skipped = usize::from(fault!("only the last task is woken"));
        tasks.into_iter().skip(skipped).for_each(|(_, waker)| contained(|| waker.wake()));
        result
    }

    /// For a thread: blocks until `look` finds something, or until `until` on the clock of this slot.
    pub(crate) fn block<R>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut T) -> Option<R>,
        _: MayBlock,
    ) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            let found = look(&mut state.value);
            let is_over = until.is_some_and(|until| self.alarm.now() >= until);
            if found.is_some() || is_over && !fault!("a thread sleeps on at its deadline") {
                return found;
            }
            state.sleeping += 1;
            state = self.alarm.sleep(state, until);
            state.sleeping -= 1;
        }
    }

    /// For a task: waits until `look` finds something. `until`: the caller stops waiting then.
    pub(crate) fn found<R>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> impl Future<Output = R> {
        let mut number = 0;
        poll_fn(move |cx| self.poll(cx, &mut number, until, &mut look))
    }

    /// As `block` for a thread, and as `found` for a task. An `async fn` would contain its arguments twice.
    pub(crate) fn until<R>(
        &self,
        until: Option<Instant>,
        mode: Mode,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> impl Future<Output = Option<R>> {
        let mut number = 0;
        poll_fn(move |cx| match mode {
            Mode::Blocking(may) => Poll::Ready(self.block(until, &mut look, may)),
            Mode::Async => self.poll(cx, &mut number, until, &mut look).map(Some),
        })
    }

    /// `number`: of this wait, or 0 if it is new.
    fn poll<R>(
        &self,
        cx: &Context,
        number: &mut u64,
        until: Option<Instant>,
        look: impl FnOnce(&mut T) -> Option<R>,
    ) -> Poll<R> {
        // Wakers are copied before the lock, and dropped after it: both can run code of an executor.
        let waker = cx.waker().clone();
        let _former;
        let mut state = lock(&self.state);
        let found = look(&mut state.value);
        if fault!("a task is missed before it waits") {
            drop(state);
            state = lock(&self.state);
        }
        let index = state.tasks.iter().position(|(other, _)| other == number);
        _former = index.map(|index| state.tasks.swap_remove(index));
        if let Some(found) = found {
            return Poll::Ready(found);
        }
        self.alarm.sleeps_in_task(until);
        if *number == 0 {
            state.last += 1;
            *number = state.last;
        }
        if index.is_none() || !fault!("a task's new waker is not used") {
            state.tasks.push((*number, waker));
        }
        Poll::Pending
    }
}

/// Runs work that blocks: in the calling thread, or in a thread of its own for a task. `None`: no thread
/// could be started.
pub(crate) async fn run_blocking<T: Send + 'static>(
    mode: Mode,
    name: &str,
    work: impl FnOnce(MayBlock) -> T + Send + 'static,
) -> Option<T> {
    if let Mode::Blocking(may) = mode {
        return Some(work(may));
    }
    let done = Arc::new(Slot::default());
    let done_there = done.clone();
    let run = move || {
        let result = in_own_thread(work);
        if fault!("the result of work that blocks wakes nobody") {
            return done_there.look(|done| *done = Some(result));
        }
        done_there.change(|done| *done = Some(result));
    };
    if !spawn(name, run) {
        return None;
    }
    Some(done.found(None, Option::take).await)
}
