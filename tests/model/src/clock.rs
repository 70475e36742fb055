//! In place of the library's `clock`: the clock of the model.

use crate::sync::{Condvar, MutexGuard, wait_until};
use crate::world::{self, Limit};
use luagate_core::lease::Moment;
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
    pub(crate) fn busy(&self) -> Busy {
        Busy
    }

    pub(crate) fn is_moved(&self) -> bool {
        false
    }
}

pub(crate) struct Busy;

pub(crate) struct Alarm {
    condvar: Condvar,
    is_caller: bool,
}

impl Alarm {
    pub(crate) fn new(_: &Clock, is_caller: bool) -> Alarm {
        Alarm { condvar: Condvar::new(), is_caller }
    }

    pub(crate) fn now(&self) -> Instant {
        world::now()
    }

    /// Only for a clock that a test moves.
    pub(crate) fn wakes(&self) {}

    /// Only for a clock that a test moves.
    pub(crate) fn sleeps_in_task(&self, _: Option<Instant>) {}

    #[track_caller]
    pub(crate) fn wake<T>(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        self.condvar.notify_all();
    }

    /// The gate's own thread always wakes at its time. In most scenarios something must wake a caller, unless
    /// the clock steps.
    #[track_caller]
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
        let limit = if self.is_caller && !world::looks() { Limit::Deadline } else { Limit::Tick };
        wait_until(&self.condvar, guard, until.map(limit))
    }
}
