//! In place of the library's `clock`: the clock of the model.

use crate::sync::{Condvar, MutexGuard, wait, wait_until};
use crate::world::{self, Limit};
use std::task::Waker;
use std::time::Instant;

pub(crate) fn machine_now() -> Instant {
    world::now()
}

pub(crate) struct Clock;

impl Clock {
    pub(crate) fn real() -> Clock {
        Clock
    }
}

pub(crate) struct Notify(Condvar);

impl Notify {
    pub(crate) fn awake(_: &Clock) -> Notify {
        Notify(Condvar::new())
    }

    pub(crate) fn now(&self) -> Instant {
        world::now()
    }

    /// Only for a clock that a test moves.
    pub(crate) fn wakes(&self) {}

    /// Only for a clock that a test moves.
    pub(crate) fn sleeps_in_task(&self, _: &Waker, _: Option<Instant>) {}

    #[track_caller]
    pub(crate) fn wake<T>(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        self.0.notify_one();
    }

    #[track_caller]
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
        match until {
            Some(until) => wait_until(&self.0, guard, Some(Limit::Deadline(until))),
            None => wait(&self.0, guard),
        }
    }
}
