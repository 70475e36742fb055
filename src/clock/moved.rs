//! A clock that a test moves: this machine's clock plus an offset. It records which threads sleep by it, and
//! until when.

use crate::sync::lock;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

/// The maximum offset. Fences and tickets begin with the time in µs. The scripts accept them below 2^53,
/// which is the year 2255.
const MAX_OFFSET: Duration = Duration::from_secs(50 * 365 * 86_400);

/// How long a step waits in real time for threads that have something to do.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The number of times that a step waits for threads while new ones may begin. After that, new threads wait
/// for the step.
const ROUNDS: u32 = 20;

/// The interval at which a step checks a thread that should wake up.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// The part of a clock that exists if a test moves it.
#[derive(Clone)]
pub(super) struct Moved {
    pub(super) time: Arc<Time>,
    pub(super) _owner: Arc<dyn Any + Send + Sync>,
}

impl Moved {
    /// Adds a thread that uses this clock. `awake`: it has something to do.
    pub(super) fn sleeper(&self, awake: bool) -> Sleeper {
        let thread = Sleeper::default();
        lock(&thread.sleep).awake = awake;
        self.time.add(&thread);
        thread
    }
}

/// A test that moves the clock waits for the thread until this is dropped.
pub(super) type Sleeper = Arc<Thread>;

/// A thread or a task that uses a moved clock. A timer of the gate's own thread wakes the task at its time.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) condvar: Condvar,
    sleep: Mutex<Sleep>,
}

impl Thread {
    /// The thread has something to do, even if it has not noticed yet.
    pub(super) fn wakes(&self) {
        lock(&self.sleep).awake = true;
    }

    /// The thread goes to sleep.
    pub(super) fn sleeps(&self, until: Option<Instant>) {
        let mut sleep = lock(&self.sleep);
        *sleep = Sleep { awake: false, until, count: sleep.count + 1 };
    }
}

#[derive(Clone, Copy, Default)]
struct Sleep {
    /// It was woken, and has not gone to sleep since.
    awake: bool,
    /// When it wakes by itself.
    until: Option<Instant>,
    /// How many times it went to sleep.
    count: u64,
}

impl Sleep {
    /// Whether the thread has something to do, even if it has not noticed yet.
    fn is_over(&self, now: Instant) -> bool {
        self.awake || self.until.is_some_and(|until| until <= now)
    }
}

/// The time that moved clocks show, and the threads that sleep by it.
pub(crate) struct Time {
    started: Instant,
    /// The date at that time.
    start_date: SystemTime,
    /// The offset in ns.
    ahead: AtomicU64,
    /// In ns. See [`Time::suspended`].
    pub(super) suspended: AtomicU64,
    threads: Mutex<Vec<Weak<Thread>>>,
    /// Locked while the time is moved.
    moving: Mutex<()>,
}

impl Time {
    pub(crate) fn new() -> Time {
        Time {
            started: Instant::now(),
            start_date: SystemTime::now(),
            ahead: AtomicU64::new(0),
            suspended: AtomicU64::new(0),
            threads: Mutex::default(),
            moving: Mutex::default(),
        }
    }

    pub(super) fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }

    /// For how long the machine was suspended: time that only the second clock of a moment counts.
    pub(super) fn suspended(&self) -> Duration {
        Duration::from_nanos(self.suspended.load(Ordering::SeqCst))
    }

    /// The date. It never goes back, even if the date of the machine is set back.
    pub(crate) fn date(&self) -> SystemTime {
        self.start_date + self.started.elapsed() + self.ahead()
    }

    /// Moves the time. Stops on the way whenever a thread has something to do, until the thread has done it.
    pub(crate) fn advance(&self, by: Duration) {
        let _moving = lock(&self.moving);
        let mut left = by;
        while let Some(moved) = self.step(left)
            && !moved.is_zero()
        {
            left -= moved;
        }
        self.jump(left); // the rest, if a thread was busy for too long
    }

    /// Moves the time at once. Before and after, waits until the threads have done what is due.
    pub(crate) fn suspend(&self, by: Duration) {
        let _moving = lock(&self.moving);
        self.step(Duration::ZERO);
        self.jump(by);
        self.step(Duration::ZERO);
    }

    /// Adds to the offset. Returns by how much, which is less at the maximum offset.
    fn jump(&self, by: Duration) -> Duration {
        let ahead = self.ahead();
        let by = by.min(MAX_OFFSET.saturating_sub(ahead));
        let nanos = u64::try_from((ahead + by).as_nanos()).unwrap_or(u64::MAX);
        self.ahead.store(nanos, Ordering::SeqCst);
        by
    }

    /// Waits until all threads sleep, then moves the time to when the first one wakes, but at most by `by`.
    /// Returns by how much it moved the time; `None` if a thread was busy for too long.
    fn step(&self, by: Duration) -> Option<Duration> {
        let end = Instant::now() + TIMEOUT;
        let mut known = lock(&self.threads); // no thread begins while this is locked
        let mut rounds = 0..ROUNDS;
        loop {
            let threads: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
            let moved = self.step_if_all_sleep(&threads, by);
            if moved.is_some() || Instant::now() >= end {
                return moved;
            }
            if rounds.next().is_some() {
                drop(known);
                self.wait_for(&threads, end);
                known = lock(&self.threads);
            } else {
                self.wait_for(&threads, end);
            }
        }
    }

    fn step_if_all_sleep(&self, threads: &[Arc<Thread>], by: Duration) -> Option<Duration> {
        let now = Instant::now() + self.ahead();
        let mut next = by;
        for thread in threads {
            let sleep = *lock(&thread.sleep);
            if sleep.is_over(now) {
                return None;
            }
            if let Some(until) = sleep.until {
                next = next.min(until.saturating_duration_since(now));
            }
        }
        Some(self.jump(next))
    }

    fn add(&self, thread: &Arc<Thread>) {
        let mut threads = lock(&self.threads);
        if threads.len() == threads.capacity() {
            threads.retain(|thread| thread.strong_count() > 0); // those that ended, before the list grows
        }
        threads.push(Arc::downgrade(thread));
    }

    /// Waits until each thread that has something to do sleeps again or has ended.
    fn wait_for(&self, threads: &[Arc<Thread>], end: Instant) {
        for thread in threads {
            let before = lock(&thread.sleep).count;
            loop {
                let sleep = *lock(&thread.sleep);
                let is_over = sleep.is_over(Instant::now() + self.ahead());
                let has_ended = Arc::strong_count(thread) == 1;
                if !is_over || sleep.count != before || has_ended || Instant::now() >= end {
                    break;
                }
                thread.condvar.notify_one(); // each time: the thread may not have waited yet the last time
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}
