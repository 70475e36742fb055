//! The clock of a gate: this machine's. With the feature `memory` `src/clock/moved.rs` takes the place of this file:
//! there a gate may have a clock that a test moves.

use crate::protocol::lease::Moment;
use crate::sync::{wait, wait_for};
use std::sync::{Condvar, MutexGuard};
use std::time::{Instant, SystemTime};

#[derive(Clone, Debug)]
pub(crate) struct Clock;

impl Clock {
    /// That of this machine.
    pub(crate) fn real() -> Clock {
        Clock
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment::new(Instant::now(), SystemTime::now())
    }

    /// What this clock shows when that of the machine shows `at`.
    pub(crate) fn at_machine_time(&self, at: Instant) -> Option<Instant> {
        Some(at)
    }

    /// Something goes on until what this returns is dropped. A clock that is moved waits for it.
    pub(crate) fn busy(&self) -> Busy {
        Busy
    }
}

pub(crate) struct Busy;

/// What a thread with nothing to do sleeps at, until it is rung or a time of its clock has come.
pub(crate) struct Bell(Condvar);

impl Bell {
    /// Of a thread that has nothing to do.
    pub(crate) fn new(_: &Clock) -> Bell {
        Bell(Condvar::new())
    }

    /// Of a thread that has something to do before it sleeps.
    pub(crate) fn awake(clock: &Clock) -> Bell {
        Bell::new(clock)
    }

    /// Wakes who sleeps for the news behind this lock, which is the one that he sleeps with. It is free before he wakes: he
    /// would wait for it at once.
    pub(crate) fn ring<T>(&self, news: MutexGuard<'_, T>) {
        drop(news);
        self.0.notify_one();
    }

    /// Sleeps until it is rung, or the clock shows `until`, or for no reason.
    pub(crate) fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        match until {
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                wait_for(&self.0, guard, left)
            }
            None => wait(&self.0, guard),
        }
    }
}
