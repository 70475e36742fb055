//! A place where one thread or one task waits for something, and through which it can become the reader of a connection.

use super::mode::MayBlock;
use crate::clock::{Clock, Notify};
use crate::sync::{Mutex, ThreadId, lock, this_thread};
use std::task::{Context, Waker};
use std::time::Instant;

/// Something that one caller waits for, and how the caller waits.
pub(crate) struct Place<T> {
    state: Mutex<PlaceState<T>>,
    notify: Notify,
}

struct PlaceState<T> {
    content: T,
    waits: Waits,
}

enum Waits {
    /// Nobody waits, or its thread reads.
    No,
    /// A thread that is about to sleep.
    Awake,
    Asleep,
    /// A thread that sleeps or is about to. It was made the reader.
    Reader,
    /// A task, and the thread that polled it last.
    Task(Waker, ThreadId),
}

/// A task that must be woken.
pub(super) type Woken = (Waker, ThreadId);

/// How a thread stopped sleeping.
pub(super) struct Slept<R> {
    /// `None`: it was made the reader, or its time is over.
    pub(super) found: Option<R>,
    /// It was made the reader. It must read, or pass the role on.
    pub(super) is_reader: bool,
}

impl<T> Place<T> {
    /// For a thread that is about to sleep. It can be made the reader from now on.
    pub(super) fn of_thread(clock: &Clock, content: T) -> Place<T> {
        Place::new(clock, content, Waits::Awake)
    }

    pub(crate) fn of_nobody(clock: &Clock, content: T) -> Place<T> {
        Place::new(clock, content, Waits::No)
    }

    pub(super) fn of_task(clock: &Clock, content: T, cx: &Context) -> Place<T> {
        Place::new(clock, content, Waits::Task(cx.waker().clone(), this_thread()))
    }

    fn new(clock: &Clock, content: T, waits: Waits) -> Place<T> {
        Place { state: Mutex::new(PlaceState { content, waits }), notify: Notify::new(clock, true) }
    }

    /// Looks at the content, or takes from it.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.state).content)
    }

    /// Changes the content, and wakes whoever waits.
    pub(crate) fn update<R>(&self, update: impl FnOnce(&mut T) -> R) -> R {
        let (result, woken) = self.change(update);
        if let Some((waker, _)) = woken {
            waker.wake();
        }
        result
    }

    /// Changes the content. Wakes a thread; returns a task, which the caller must wake.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> (R, Option<Woken>) {
        let mut state = lock(&self.state);
        let result = change(&mut state.content);
        match std::mem::replace(&mut state.waits, Waits::No) {
            Waits::Asleep => {
                state.waits = Waits::Awake;
                self.notify.wake(state); // a system call: only if the thread sleeps
                (result, None)
            }
            Waits::Task(waker, thread) => {
                self.notify.wakes();
                (result, Some((waker, thread)))
            }
            waits => {
                state.waits = waits;
                (result, None)
            }
        }
    }

    /// Makes its thread the reader. `false`: no thread sleeps here or is about to.
    pub(super) fn make_reader(&self) -> bool {
        let mut state = lock(&self.state);
        match state.waits {
            Waits::Awake => state.waits = Waits::Reader,
            Waits::Asleep => {
                state.waits = Waits::Reader;
                self.notify.wake(state);
            }
            Waits::No | Waits::Reader | Waits::Task(..) => return false,
        }
        true
    }

    /// The thread is about to sleep. It can be made the reader from now on.
    pub(super) fn awaits(&self) {
        lock(&self.state).waits = Waits::Awake;
    }

    /// Blocks until `look` finds something, or the thread is made the reader, or until `until` on the clock of this
    /// place.
    pub(super) fn sleep<R>(&self, until: Instant, mut look: impl FnMut(&mut T) -> Option<R>, _: MayBlock) -> Slept<R> {
        let mut state = lock(&self.state);
        loop {
            let found = look(&mut state.content);
            let is_reader = matches!(state.waits, Waits::Reader);
            if found.is_some() || is_reader || self.notify.now() >= until {
                state.waits = Waits::No;
                return Slept { found, is_reader };
            }
            state.waits = Waits::Asleep;
            state = self.notify.sleep(state, Some(until));
        }
    }

    /// Blocks until `look` finds something, or until `until` on the clock of this place.
    pub(crate) fn wait<R>(&self, until: Instant, look: impl FnMut(&mut T) -> Option<R>, may: MayBlock) -> Option<R> {
        self.sleep(until, look, may).found
    }

    /// For a task: returns what `look` finds. Otherwise the task is woken when the content changes. `until`: it sleeps until
    /// then at most.
    pub(crate) fn poll<R>(
        &self,
        cx: &Context,
        until: Option<Instant>,
        look: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let mut state = lock(&self.state);
        let found = look(&mut state.content);
        if found.is_none() {
            self.notify.sleeps_in_task(cx.waker(), until);
        }
        let waits = match (&found, &mut state.waits) {
            (Some(_), _) => Waits::No,
            (None, Waits::Task(waker, thread)) if waker.will_wake(cx.waker()) => {
                *thread = this_thread();
                return None;
            }
            (None, _) => Waits::Task(cx.waker().clone(), this_thread()),
        };
        let before = std::mem::replace(&mut state.waits, waits);
        drop(state);
        drop(before); // without the lock: to drop a waker can run code of an executor
        found
    }
}
