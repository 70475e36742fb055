//! In place of the library's `clock`: the clock of the model.

use crate::protocol::lease::Moment;
use crate::sync::{Condvar, MutexGuard, wait_until};
use crate::world::{self, Limit};
use std::task::Waker;
use std::time::Instant;

pub(crate) fn machine_now() -> Instant {
    world::now()
}

#[derive(Clone)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn real() -> Clock {
        Clock
    }

    pub(crate) fn now(&self) -> Instant {
        world::now()
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment::new(self.now(), self.now() - world::beginning())
    }

    /// Only for a clock that a test moves.
    pub(crate) fn busy(&self) {}

    pub(crate) fn is_moved(&self) -> bool {
        false
    }
}

pub(crate) struct Notify {
    condvar: Condvar,
    limit: fn(Instant) -> Limit,
}

impl Notify {
    /// The gate's own thread always wakes at its time. Something must wake a caller, unless the clock steps.
    pub(crate) fn new(_: &Clock, is_caller: bool) -> Notify {
        Notify { condvar: Condvar::new(), limit: if is_caller { Limit::Deadline } else { Limit::Tick } }
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
        self.condvar.notify_one();
    }

    #[track_caller]
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
        wait_until(&self.condvar, guard, until.map(self.limit))
    }
}
