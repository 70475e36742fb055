//! The clock of a gate, in place of `src/clock.rs`: this machine's, or that of a `Memory`, which runs along with it and
//! can be moved ahead. Who moves it sees which of the threads that go by it sleep, and until when.

use crate::memory::World;
use crate::protocol::lease::Moment;
use crate::sync::{lock, wait, wait_for};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

/// How far a clock can be moved altogether. The scripts take fences and tickets, which begin with the time in µs, up to
/// 2^52: that is the year 2112.
const FARTHEST: Duration = Duration::from_secs(50 * 365 * 86_400);

/// How many times it is seen whether what was done gave others something to do, before nobody may begin anything.
const ROUNDS: u32 = 20;

/// How often a thread that should have woken up is looked at.
const LOOK: Duration = Duration::from_micros(50);

/// `None`: this machine's.
#[derive(Clone)]
pub(crate) struct Clock(Option<Arc<World>>);

impl Clock {
    /// That of this machine.
    pub(crate) fn real() -> Clock {
        Clock(None)
    }

    /// That of a world in memory, which stays for as long as somebody goes by its clock.
    pub(crate) fn of(world: &Arc<World>) -> Clock {
        Clock(Some(world.clone()))
    }

    fn ahead(&self) -> Duration {
        match &self.0 {
            Some(world) => world.time.ahead(),
            None => Duration::ZERO,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.ahead()
    }

    pub(crate) fn moment(&self) -> Moment {
        let ahead = self.ahead();
        Moment::new(Instant::now() + ahead, SystemTime::now() + ahead)
    }

    /// What this clock shows when that of the machine shows `at`, unless it is moved before. `None`: what no clock can hold.
    pub(crate) fn at_machine_time(&self, at: Instant) -> Option<Instant> {
        at.checked_add(self.ahead())
    }

    /// Something goes on until what this returns is dropped. A clock that is moved waits for it.
    pub(crate) fn busy(&self) -> Busy {
        Busy(Bell::awake(self))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.ahead()).finish()
    }
}

/// It counts as awake for as long as it lives.
pub(crate) struct Busy(#[allow(dead_code, reason = "it is there to be dropped")] Bell);

/// What a thread with nothing to do sleeps at, until it is rung or a time of its clock has come.
pub(crate) struct Bell {
    clock: Clock,
    sleeper: Arc<Sleeper>,
}

impl Bell {
    /// Of a thread that has nothing to do.
    pub(crate) fn new(clock: &Clock) -> Bell {
        Bell::of(clock, Sleep::default())
    }

    /// Of a thread that has something to do before it sleeps.
    pub(crate) fn awake(clock: &Clock) -> Bell {
        let sleep = Sleep {
            awake: true,
            ..Sleep::default()
        };
        Bell::of(clock, sleep)
    }

    fn of(clock: &Clock, sleep: Sleep) -> Bell {
        let sleeper = Arc::new(Sleeper {
            condvar: Condvar::new(),
            sleep: Mutex::new(sleep),
        });
        if let Some(world) = &clock.0 {
            world.time.add(&sleeper);
        }
        Bell {
            clock: clock.clone(),
            sleeper,
        }
    }

    /// Wakes who sleeps for the news behind this lock, which is the one that he sleeps with. He counts as awake before it is
    /// free, so that nobody sees him asleep who has news; and it is free before he wakes: he would wait for it at once.
    pub(crate) fn ring<T>(&self, news: MutexGuard<'_, T>) {
        lock(&self.sleeper.sleep).awake = true;
        drop(news);
        self.sleeper.condvar.notify_one();
    }

    /// Sleeps until it is rung, or the clock shows `until`, or for no reason.
    pub(crate) fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let mut sleep = lock(&self.sleeper.sleep);
        let times = sleep.times + 1;
        *sleep = Sleep {
            awake: false,
            until,
            times,
        };
        drop(sleep);
        // Only now is the clock read: who moves it from here on sees until when this sleeps, and wakes it.
        match until {
            Some(until) => {
                let left = until.saturating_duration_since(self.clock.now());
                wait_for(&self.sleeper.condvar, guard, left)
            }
            None => wait(&self.sleeper.condvar, guard),
        }
    }
}

/// Who sleeps by the clock, or is about to.
struct Sleeper {
    condvar: Condvar,
    sleep: Mutex<Sleep>,
}

#[derive(Clone, Copy, Default)]
struct Sleep {
    /// It was rung, and has not gone to sleep again.
    awake: bool,
    /// What the clock shows when it wakes up by itself.
    until: Option<Instant>,
    /// How many times it went to sleep.
    times: u64,
}

impl Sleep {
    /// Whether it has something to do, though it may not know yet.
    fn is_over(&self, now: Instant) -> bool {
        self.awake || self.until.is_some_and(|until| until <= now)
    }
}

/// The time in a world: this machine's, moved ahead; and who sleeps by it.
pub(crate) struct Time {
    started: Instant,
    /// The wall clock then.
    born: SystemTime,
    /// In ns.
    ahead: AtomicU64,
    sleepers: Mutex<Vec<Weak<Sleeper>>>,
}

impl Time {
    pub(crate) fn new() -> Time {
        Time {
            started: Instant::now(),
            born: SystemTime::now(),
            ahead: AtomicU64::new(0),
            sleepers: Mutex::default(),
        }
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.ahead()
    }

    /// The date. It never goes back, whatever becomes of the wall clock.
    pub(crate) fn date(&self) -> SystemTime {
        self.born + self.started.elapsed() + self.ahead()
    }

    /// Moves the clock by so much at once; returns by how much, which is less at the end of what it can be moved.
    pub(crate) fn jump(&self, by: Duration) -> Duration {
        let ahead = self.ahead();
        let by = by.min(FARTHEST.saturating_sub(ahead));
        let nanos = u64::try_from((ahead + by).as_nanos()).unwrap_or(u64::MAX);
        self.ahead.store(nanos, Ordering::SeqCst);
        by
    }

    /// Once nobody has anything to do, moves the clock to when somebody has, by `by` at most; returns by how much.
    /// `None` when somebody came to no end with it before `end`, by the clock of the machine.
    pub(crate) fn step(&self, by: Duration, end: Instant) -> Option<Duration> {
        for _ in 0..ROUNDS {
            let sleepers = alive(&lock(&self.sleepers));
            self.let_work(&sleepers, end);
            // Nobody begins anything while this is locked.
            let known = lock(&self.sleepers);
            if let Some(moved) = self.step_if_quiet(&alive(&known), by) {
                return Some(moved);
            }
        }
        // Somebody begins something all the time: they have to wait for once.
        let known = lock(&self.sleepers);
        loop {
            let sleepers = alive(&known);
            self.let_work(&sleepers, end);
            match self.step_if_quiet(&sleepers, by) {
                None if Instant::now() < end => {}
                moved => return moved,
            }
        }
    }

    fn step_if_quiet(&self, sleepers: &[Arc<Sleeper>], by: Duration) -> Option<Duration> {
        let now = self.now();
        let mut next = by;
        for sleeper in sleepers {
            let sleep = *lock(&sleeper.sleep);
            if sleep.is_over(now) {
                return None;
            }
            let left = sleep
                .until
                .map(|until| until.saturating_duration_since(now));
            next = left.map_or(next, |left| left.min(next));
        }
        Some(self.jump(next))
    }

    fn add(&self, sleeper: &Arc<Sleeper>) {
        let mut sleepers = lock(&self.sleepers);
        if sleepers.len() == sleepers.capacity() {
            sleepers.retain(|sleeper| sleeper.strong_count() > 0); // those that are gone, before the list grows
        }
        sleepers.push(Arc::downgrade(sleeper));
    }

    /// Waits until everybody who has something to do has done it: sleeps again, or is gone.
    fn let_work(&self, sleepers: &[Arc<Sleeper>], end: Instant) {
        for sleeper in sleepers {
            let before = *lock(&sleeper.sleep);
            loop {
                let sleep = *lock(&sleeper.sleep);
                let is_over = sleep.is_over(self.now());
                let is_gone = Arc::strong_count(sleeper) == 1;
                if !is_over || sleep.times != before.times || is_gone || Instant::now() >= end {
                    break;
                }
                sleeper.condvar.notify_one(); // again: it may have been about to sleep the first time
                std::thread::sleep(LOOK);
            }
        }
    }
}

fn alive(sleepers: &[Weak<Sleeper>]) -> Vec<Arc<Sleeper>> {
    sleepers.iter().filter_map(Weak::upgrade).collect()
}
