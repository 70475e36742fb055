//! A value behind a lock. Threads and tasks wait for a change of it. Everything in the engine that waits for
//! a value waits here.

use super::mode::{MayBlock, Mode, in_own_thread};
use crate::clock::{Alarm, Clock};
use crate::foreign::Foreign;
use crate::sync::{Arc, Mutex, fault, lock, spawn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

pub(crate) struct Slot<T> {
    state: Mutex<SlotState<T>>,
    alarm: Alarm,
    foreign: Foreign,
}

struct SlotState<T> {
    value: T,
    /// How many threads sleep. To wake them is a system call.
    sleeping: usize,
    /// The tasks that wait.
    tasks: Vec<WaitingTask>,
    last: u64,
}

struct WaitingTask {
    /// Of its wait.
    number: u64,
    waker: Waker,
    mode: Mode,
}

impl<T> Slot<T> {
    /// On a clock that a test moves, only one thread or one task may wait.
    pub(crate) fn new(foreign: &Foreign, clock: &Clock, value: T) -> Slot<T> {
        let state = SlotState { value, sleeping: 0, tasks: Vec::new(), last: 0 };
        Slot { state: Mutex::new(state), alarm: Alarm::new(clock, true), foreign: foreign.clone() }
    }

    /// On this machine's clock.
    pub(crate) fn of_machine(foreign: &Foreign, value: T) -> Slot<T> {
        Slot::new(foreign, &Clock::real(), value)
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
        let skipped = usize::from(fault!("only the last task is woken"));
        tasks.into_iter().skip(skipped).for_each(|task| task.mode.wake(&self.foreign, task.waker));
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

    /// As `block` for a thread. For a task: waits until `look` finds something. `until`: its caller stops
    /// waiting then.
    pub(crate) fn until<R, L: FnMut(&mut T) -> Option<R>>(
        &self,
        until: Option<Instant>,
        mode: Mode,
        look: L,
    ) -> SlotWait<'_, T, L> {
        SlotWait { slot: self, until, mode, look, number: 0 }
    }
}

/// A wait for a change. It is forgotten when it is dropped: its waker is not kept, and not dropped by another
/// thread.
pub(crate) struct SlotWait<'a, T, L> {
    slot: &'a Slot<T>,
    until: Option<Instant>,
    mode: Mode,
    look: L,
    /// 0: its waker is not in the slot.
    number: u64,
}

impl<T, L> Unpin for SlotWait<'_, T, L> {}

impl<T, R, L: FnMut(&mut T) -> Option<R>> Future for SlotWait<'_, T, L> {
    type Output = Option<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<Option<R>> {
        let SlotWait { slot, until, mode, look, number } = &mut *self;
        if let Mode::Blocking(may) = *mode {
            return Poll::Ready(slot.block(*until, look, may));
        }
        // Wakers are copied before the lock, and dropped after it: both can run code of an executor.
        let locked = fault!("a waker is copied with a lock held").then(|| lock(&slot.state));
        let waker = cx.waker().clone();
        drop(locked);
        let former;
        let mut state = lock(&slot.state);
        let found = look(&mut state.value);
        if fault!("a task is missed before it waits") {
            drop(state);
            state = lock(&slot.state);
        }
        former = state.take(*number);
        if found.is_some() {
            *number = 0;
            return Poll::Ready(found);
        }
        slot.alarm.sleeps_in_task(*until);
        if *number == 0 {
            state.last += 1;
            *number = state.last;
        }
        let task = match former {
            Some(former) if fault!("a task's new waker is not used") => former,
            _ => WaitingTask { number: *number, waker, mode: *mode },
        };
        state.tasks.push(task);
        Poll::Pending
    }
}

impl<T, L> Drop for SlotWait<'_, T, L> {
    fn drop(&mut self) {
        if self.number > 0 && self.slot.foreign.is_own_process() {
            let task = lock(&self.slot.state).take(self.number);
            let _locked = fault!("a waker is dropped with a lock held").then(|| lock(&self.slot.state));
            drop(task); // without the lock
        }
    }
}

impl<T> SlotState<T> {
    fn take(&mut self, number: u64) -> Option<WaitingTask> {
        let index = self.tasks.iter().position(|task| task.number == number)?;
        Some(self.tasks.swap_remove(index))
    }
}

/// Runs work that blocks in a new thread, and waits for it until `until`. `None`: it takes longer, or no
/// thread could be started.
pub(crate) async fn run_in_thread<T: Send + 'static>(
    foreign: &Foreign,
    name: &str,
    until: Instant,
    mode: Mode,
    work: impl FnOnce(MayBlock) -> T + Send + 'static,
) -> Option<T> {
    let done = Arc::new(Slot::of_machine(foreign, None));
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
    done.until(Some(until), mode, Option::take).await
}
