//! The clock of a gate: this machine's clock or, with the feature `memory`, one that a test moves ahead.

#[cfg_attr(not(feature = "memory"), allow(dead_code, reason = "no clock is moved"))]
mod moved;

#[cfg(feature = "memory")]
pub(crate) use moved::Time;

use crate::sync::wait;
use luagate_core::lease::Moment;
use moved::{Moved, Sleeper};
use std::sync::{Condvar, MutexGuard};
use std::time::{Duration, Instant};
#[cfg(feature = "memory")]
use std::{any::Any, sync::Arc};

/// This machine's monotonic clock, also if the gate has another clock: socket timeouts depend on it.
pub(crate) fn machine_now() -> Instant {
    Instant::now()
}

/// The time since `at` on this machine's monotonic clock.
pub(crate) fn since(at: Instant) -> Duration {
    at.elapsed()
}

/// The time since a fixed point. It also counts the time while the machine is suspended, when the monotonic
/// clock stops. A step of the wall clock does not change it.
#[cfg(target_os = "linux")]
fn total() -> Duration {
    let since_start = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    since_start.map(Duration::from).unwrap_or_default() // every Linux has this clock
}

/// The same by the wall clock: the standard library has no better one. A step forward looks like suspended
/// time.
#[cfg(not(target_os = "linux"))]
fn total() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// `None`: this machine's clock.
#[derive(Clone)]
pub(crate) struct Clock(Option<Moved>);

impl Clock {
    /// The clock of this machine.
    pub(crate) fn real() -> Clock {
        Clock(None)
    }

    /// A clock that shows `time`. The owner lives at least as long as the clock and its clones.
    #[cfg(feature = "memory")]
    pub(crate) fn moved(time: Arc<Time>, owner: Arc<dyn Any + Send + Sync>) -> Clock {
        Clock(Some(Moved { time, _owner: owner }))
    }

    /// How far this clock is ahead of the machine's clock, because a test moves it.
    fn ahead(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |moved| moved.time.ahead())
    }

    /// Whether a test moves this clock. Then the test must know which threads sleep.
    pub(crate) fn is_moved(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.ahead()
    }

    pub(crate) fn moment(&self) -> Moment {
        self.moment_at(Instant::now())
    }

    /// The moment at which the machine's monotonic clock shows `now`; the caller has just read it.
    pub(crate) fn moment_at(&self, now: Instant) -> Moment {
        let ahead = self.ahead(); // read once, so that both clocks show the same moment
        let suspended = self.0.as_ref().map_or(Duration::ZERO, |moved| moved.time.suspended());
        Moment::new(now + ahead, total() + ahead + suspended)
    }

    /// The time of the machine's clock when this clock shows `at`, unless a test moves it before.
    pub(crate) fn machine_time(&self, at: Instant) -> Instant {
        at.checked_sub(self.ahead()).unwrap_or(at)
    }

    /// The time of this clock when the machine's clock shows `at`, unless a test moves it before. `None`: out
    /// of range.
    pub(crate) fn at_machine_time(&self, at: Instant) -> Option<Instant> {
        at.checked_add(self.ahead())
    }

    /// Marks the caller as busy until the result is dropped. A test that moves the clock waits for it.
    pub(crate) fn busy(&self) -> Busy {
        Busy(self.sleeper(true))
    }

    fn sleeper(&self, awake: bool) -> Option<Sleeper> {
        self.0.as_ref().map(|moved| moved.sleeper(awake))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.0.as_ref().map(|moved| moved.time.ahead())).finish()
    }
}

/// See [`Clock::busy`].
pub(crate) struct Busy(#[allow(dead_code, reason = "only its drop matters")] Option<Sleeper>);

/// Wakes threads that sleep until a time of a clock. On a clock that a test moves only one thread sleeps, or
/// a task, which tells the test when it does.
pub(crate) struct Alarm {
    clock: Clock,
    condvar: Condvar,
    /// Used in place of the condition variable.
    sleeper: Option<Sleeper>,
}

impl Alarm {
    /// `awake`: its thread has something to do before it sleeps.
    pub(crate) fn new(clock: &Clock, awake: bool) -> Alarm {
        Alarm { clock: clock.clone(), condvar: Condvar::new(), sleeper: clock.sleeper(awake) }
    }

    /// The time by which its threads sleep.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Its task is about to be woken.
    pub(crate) fn wakes(&self) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.wakes();
        }
    }

    /// Its task is about to sleep.
    pub(crate) fn sleeps_in_task(&self, until: Option<Instant>) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.sleeps(until);
        }
    }

    fn condvar(&self) -> &Condvar {
        self.sleeper.as_ref().map_or(&self.condvar, |sleeper| &sleeper.condvar)
    }

    /// Wakes the threads that wait on this lock. Releases the lock before the notification, since the woken
    /// threads would wait for it.
    pub(crate) fn wake<T>(&self, guard: MutexGuard<'_, T>) {
        self.wakes(); // before the unlock: a test must not see the thread asleep while there is work for it
        drop(guard);
        self.condvar().notify_all();
    }

    /// Sleeps until it is notified or the clock shows `until`. May also return without a reason.
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
        // Before the clock is read: a test that moves it later sees `until` and wakes this thread.
        if let Some(sleeper) = &self.sleeper {
            sleeper.sleeps(until);
        }
        let left = until.map(|until| until.saturating_duration_since(self.clock.now()));
        wait(self.condvar(), guard, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;

    #[cfg(target_os = "linux")]
    #[test]
    fn leases_are_measured_by_the_clock_that_counts_suspended_time() {
        let since_start = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap().into();
        let minute = Duration::from_secs(60);
        let end =
            luagate_core::lease::Deadline::after(Moment::new(Instant::now(), since_start), Some(minute));
        let left = end.remaining(Clock::real().moment()).unwrap();
        assert!(left > minute / 2 && left < minute, "{left:?}");
    }

    #[cfg(feature = "memory")]
    #[test]
    fn a_permit_is_lost_after_a_suspension_although_the_monotonic_clock_stopped() {
        let (gate, memory) = crate::Gate::in_memory().unwrap();
        let permit =
            gate.semaphore("desk", 1).lease(Lease::fixed(Duration::from_secs(60))).acquire().unwrap();
        let half = Duration::from_secs(30);
        let nanoseconds = half.as_nanos() as u64;
        let stop_monotonic =
            || memory.time.suspended.fetch_add(nanoseconds, std::sync::atomic::Ordering::SeqCst);
        stop_monotonic();
        assert!(permit.remaining().unwrap() <= half && !permit.is_lost());
        stop_monotonic();
        assert!(permit.is_lost());
    }
}
