//! The gate's own thread. It renews leases, repeats releases that are not confirmed, reports lost permits,
//! and wakes tasks at their deadlines. It never blocks for a reply: its work for the servers are futures,
//! which it polls itself. So a server that does not answer delays nothing on the others.

use super::mode::Mode;
use crate::clock::{Alarm, Clock};
use crate::foreign::Foreign;
use crate::sync::{Arc, Mutex, MutexGuard, fault, lock, spawn};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Weak;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// A part of a gate with work that becomes due.
pub(crate) trait Job: Send + Sync {
    /// Does what is due. Returns when it must be called again.
    fn work(self: Arc<Self>) -> NextWork;
}

/// When a job has work again.
pub(crate) enum NextWork {
    /// `None`: when the worker is called.
    At(Option<Instant>),
    /// The gate was dropped, and nothing is left to do.
    Never,
}

type WorkFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The gate's own thread. It starts when it is first needed. Clones are the same thread.
#[derive(Clone)]
pub(crate) struct Worker {
    shared: Arc<WorkerThread>,
}

struct WorkerThread {
    foreign: Foreign,
    clock: Clock,
    state: Mutex<WorkerState>,
    alarm: Alarm,
}

#[derive(Default)]
struct WorkerState {
    /// The work for the servers, and the part of it that must be polled.
    work: HashMap<u64, WorkFuture>,
    woken: BTreeSet<u64>,
    timers: BTreeMap<(Instant, u64), (Waker, Mode)>,
    last: u64,
    is_running: bool,
    jobs: Vec<Weak<dyn Job>>,
    /// The thread has the jobs of the gate, or will take them from here.
    has_jobs: bool,
    new_jobs: Vec<Arc<dyn Job>>,
    is_called: bool,
    /// The time until which the thread sleeps. `None`: until it is called, or it is awake.
    sleeps_until: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(foreign: &Foreign, clock: &Clock) -> Worker {
        let shared = WorkerThread {
            foreign: foreign.clone(),
            clock: clock.clone(),
            state: Mutex::default(),
            alarm: Alarm::new(clock, false),
        };
        Worker { shared: Arc::new(shared) }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn foreign(&self) -> &Foreign {
        &self.shared.foreign
    }

    /// Whether this process made it. `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.shared.foreign.is_own_process()
    }

    /// Adds a job. From its next start or call on, the thread keeps all jobs until they have ended.
    pub(crate) fn add_job(&self, job: Weak<dyn Job>) {
        let mut state = lock(&self.shared.state);
        if state.has_jobs {
            state.new_jobs.extend(job.upgrade());
        }
        state.jobs.push(job);
    }

    /// Starts the thread, unless it runs. `false`: no thread can be started now.
    pub(crate) fn can_run(&self) -> bool {
        let state = lock(&self.shared.state);
        if state.is_running {
            return true;
        }
        self.shared.wake(state)
    }

    /// There is work for a job now.
    pub(crate) fn call(&self) {
        let mut state = lock(&self.shared.state);
        if !std::mem::replace(&mut state.is_called, true) {
            self.shared.wake(state);
        }
    }

    /// There is work for a job at this time. If permits come and go, the thread is woken once for many of
    /// them: it may find less to do than it had planned for.
    pub(crate) fn call_at(&self, at: Instant) {
        let mut state = lock(&self.shared.state);
        // A thread that has no jobs yet sleeps only for the tasks.
        if !state.is_called
            && (!state.has_jobs
                || state
                    .sleeps_until
                    .is_none_or(|until| at < until && !fault!("a call at a time wakes nobody")))
        {
            state.is_called = true;
            self.shared.wake(state);
        }
    }

    /// Runs this in the gate's thread.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let busy = self.shared.clock.busy(); // a test that moves the clock waits for its end
        let work: WorkFuture = Box::pin(async move {
            let _busy = busy;
            work.await;
        });
        let mut state = lock(&self.shared.state);
        state.last += 1;
        let number = state.last;
        state.work.insert(number, work);
        state.woken.insert(number);
        self.shared.wake(state);
    }

    /// Waits until the gate's clock shows `until`, in a task or in work of this thread.
    pub(crate) async fn sleep(&self, until: Instant, mode: Mode) {
        let mut timer = None;
        poll_fn(|cx| {
            if self.shared.clock.now() >= until {
                return Poll::Ready(());
            }
            match &timer {
                Some(Timer { waker, .. })
                    if waker.will_wake(cx.waker()) || fault!("the task's old waker is used") => {}
                _ => timer = Some(self.set_timer(until, cx.waker(), mode)),
            }
            Poll::Pending
        })
        .await
    }

    /// The result of `work`, or `None` at `until` on the gate's clock. Blocking primitives have their own
    /// time limits.
    pub(crate) async fn limited<T>(
        &self,
        until: Option<Instant>,
        mode: Mode,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (Mode::Async | Mode::Worker, Some(until)) = (mode, until) else {
            return Some(work.await);
        };
        let (mut work, mut timer) = (pin!(work), pin!(self.sleep(until, mode)));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// WorkWaker a task at `until`.
    fn set_timer(&self, until: Instant, waker: &Waker, mode: Mode) -> Timer<'_> {
        let locked = fault!("a timer copies its waker with a lock held").then(|| lock(&self.shared.state));
        let waker = waker.clone(); // before the lock, since it can run code of an executor
        drop(locked);
        let timer = waker.clone();
        let mut state = lock(&self.shared.state);
        state.last += 1;
        let key = (until, state.last);
        state.timers.insert(key, (timer, mode));
        let is_earlier =
            |sleeps_until| until < sleeps_until && !fault!("a timer does not shorten the thread's sleep");
        if state.sleeps_until.is_none_or(is_earlier) {
            self.shared.wake(state);
        }
        Timer { shared: &self.shared, key, waker }
    }
}

/// Forgets its task when it is dropped.
struct Timer<'a> {
    shared: &'a WorkerThread,
    key: (Instant, u64),
    waker: Waker,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if self.shared.foreign.is_own_process() {
            if fault!("a task that is dropped is woken") {
                return;
            }
            let waker = lock(&self.shared.state).timers.remove(&self.key);
            drop(waker); // without the lock
        }
    }
}

/// Polls a part of the work again.
struct WorkWaker {
    shared: Weak<WorkerThread>,
    number: u64,
}

impl Wake for WorkWaker {
    fn wake(self: Arc<WorkWaker>) {
        if let Some(shared) = self.shared.upgrade() {
            let mut state = lock(&shared.state);
            state.woken.insert(self.number);
            if fault!("work that is woken does not wake the thread") {
                return;
            }
            shared.wake(state);
        }
    }
}

impl WorkerThread {
    /// WorkWaker the thread, or starts it. Returns whether it runs.
    fn wake(self: &Arc<WorkerThread>, mut state: MutexGuard<'_, WorkerState>) -> bool {
        if !state.is_running {
            let shared = self.clone();
            state.is_running = spawn("luagate", move || shared.run());
            // If no thread can be started, the next call tries again.
            state.is_called &=
                state.is_running || fault!("a thread that could not be started is not started again");
        }
        // Here, since the gate may be dropped before the thread looks.
        let gets_jobs = !fault!("a thread that has started without jobs never gets them");
        if !state.has_jobs && !state.jobs.is_empty() && gets_jobs {
            state.new_jobs = state.jobs.iter().filter_map(Weak::upgrade).collect();
            state.has_jobs = true;
        }
        let is_running = state.is_running;
        self.alarm.wake(state);
        is_running
    }

    /// The loop of the thread.
    fn run(self: &Arc<WorkerThread>) {
        let mut jobs: Vec<Arc<dyn Job>> = Vec::new();
        loop {
            {
                let mut state = lock(&self.state);
                (state.is_called, state.sleeps_until) = (false, None); // a call from now on makes it look again
                jobs.append(&mut state.new_jobs);
            }
            let mut at: Option<Instant> = None;
            jobs.retain(|job| match job.clone().work() {
                NextWork::At(next) => {
                    at = at.into_iter().chain(next).min();
                    true
                }
                NextWork::Never => {
                    at = at.filter(|_| !fault!("the time of a job is forgotten when another job ends"));
                    false
                }
            });
            self.poll_work();
            let mut state = lock(&self.state);
            let due = self.take_due(&mut state);
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(|(waker, mode)| mode.wake(&self.foreign, waker));
                continue;
            }
            let is_called = state.is_called && !fault!("a call is missed while the thread is awake");
            if is_called
                || !state.woken.is_empty()
                    && !fault!("work that is woken while the thread is awake is missed")
            {
                continue;
            }
            // While a task opens the gate, there are timers but no jobs yet.
            let has_work = !state.work.is_empty() && !fault!("the thread ends although work waits");
            let has_timers = !state.timers.is_empty() && !fault!("the thread ends although a task sleeps");
            if jobs.is_empty() && !has_work && !has_timers {
                state.is_running = fault!("the thread is not started again");
                state.has_jobs = fault!("a thread that is started again does not get the jobs");
                return;
            }
            let timer = state.timers.first_key_value().map(|((at, _), _)| *at);
            let until = at.into_iter().chain(timer).min();
            state.sleeps_until = until;
            drop(self.alarm.sleep(state, until));
        }
    }

    /// Polls the work that was woken.
    fn poll_work(self: &Arc<WorkerThread>) {
        let woken = std::mem::take(&mut lock(&self.state).woken);
        for number in woken {
            let Some(mut work) = lock(&self.state).work.remove(&number) else {
                continue;
            };
            let waker = Waker::from(Arc::new(WorkWaker { shared: Arc::downgrade(self), number }));
            let _locked = fault!("work is polled with a lock held").then(|| lock(&self.state));
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                lock(&self.state).work.insert(number, work);
            }
        }
    }

    /// The tasks whose time has come.
    fn take_due(&self, state: &mut WorkerState) -> Vec<(Waker, Mode)> {
        let now = self.clock.now();
        let mut due = Vec::new();
        while let Some(timer) = state.timers.first_entry()
            && timer.key().0 <= now
        {
            due.push(timer.remove());
        }
        due
    }
}
