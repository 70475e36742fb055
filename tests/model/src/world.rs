//! One execution: its threads, its clock, and the points at which another thread can run or time can pass.
//!
//! All threads are coroutines of `shuttle` on one thread of the system, and run one at a time. So everything
//! between two points is one step. A point is before each lock, notification, atomic access and use of the
//! stream.
//!
//! Time stands still while a thread can run. There are two exceptions. If no thread can run, time passes to
//! the end of the next *tick*: a read of the stream, a look of the connection's own thread, a sleep of the
//! gate's own thread, or the deadline of a value. And a scenario allows some steps of the clock at any point:
//! to the end of a tick or of another limit. A wait without a tick never ends by itself. So if a notification
//! is missing, the execution is a deadlock, or somebody is woken only after time has passed.

use crate::plan::Plan;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An execution with more points does not end.
const MOST_POINTS: usize = 20_000;

/// The most lines of a story.
const MOST_LINES: usize = 400;

/// A wait that would end later never ends by itself.
const FAR: Duration = Duration::from_secs(60);

/// Something on which threads wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(usize);

/// The end of a thread.
const END: Id = Id(0);

/// Nothing: only the clock wakes.
const NOTHING: Id = Id(usize::MAX);

/// When a wait ends without being woken.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Also if no thread can run.
    Tick(Instant),
    /// Only if the clock steps.
    Deadline(Instant),
}

impl Limit {
    fn end(self) -> Instant {
        let (Limit::Tick(end) | Limit::Deadline(end)) = self;
        end
    }
}

enum ThreadState {
    Ready,
    /// Does something to the others: runs if nothing else can, or at any point.
    Event,
    Waits(Id, Option<Limit>),
    Over,
}

struct Thread {
    name: &'static str,
    state: ThreadState,
    /// How many locks it holds.
    locks: isize,
    at: &'static Location<'static>,
}

/// What can happen next.
#[derive(Clone, Copy)]
enum Next {
    Thread(usize),
    /// No thread can run: time passes to the end of the next tick.
    Tick(usize),
    /// The clock steps to the limit of this thread.
    Step(usize),
}

struct World {
    plan: Option<Box<dyn Plan>>,
    threads: Vec<Thread>,
    current: usize,
    /// Chosen, but does not run yet.
    chosen: Option<usize>,
    options: Vec<Next>,
    now: Instant,
    /// Time has passed up to here because no thread could run.
    idle_until: Instant,
    /// How often the clock may step although a thread can run.
    steps: usize,
    /// Whether a limit ends if no thread can run: the connection's own thread looks again, a caller waits no
    /// longer.
    looks: bool,
    /// How often the system cannot start a thread.
    lacks_threads: usize,
    points: usize,
    ids: usize,
    executions: usize,
    failure: Option<String>,
    story: Option<Vec<String>>,
}

thread_local!(static WORLD: RefCell<World> = RefCell::new(World::new()));

/// The time at the beginning of each execution.
pub(crate) fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(|| Instant::now() + Duration::from_secs(3600))
}

fn with<R>(look: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with(|world| look(&mut world.borrow_mut()))
}

/// Another thread may run here.
#[track_caller]
pub(crate) fn point(what: &str) {
    if has_failed() {
        return; // only destructors run
    }
    let at = Location::caller();
    let goes_on = with(|world| {
        world.threads[world.current].at = at;
        world.goes_on()
    });
    if !goes_on {
        switch();
    }
    with(|world| world.tell(what));
}

/// Waits until something wakes the threads that wait on `id`, or until the limit.
#[track_caller]
pub(crate) fn wait_on(id: Id, limit: Option<Limit>) {
    let at = Location::caller();
    let goes_on = with(|world| {
        world.threads[world.current].at = at;
        world.tell("waits");
        let current = world.current;
        world.threads[current].state = ThreadState::Waits(id, limit);
        world.goes_on()
    });
    if !goes_on {
        switch();
    }
}

pub(crate) fn wake(id: Id) {
    with(|world| world.wake(id));
}

/// Wakes the only thread that waits on `id`.
pub(crate) fn wake_one(id: Id) {
    if with(|world| world.wake(id)) > 1 {
        fail("two threads wait on one condition variable".into());
    }
}

fn switch() {
    shuttle::thread::sleep(Duration::ZERO); // only switches
}

pub(crate) fn new_id() -> Id {
    with(|world| {
        world.ids += 1;
        Id(world.ids)
    })
}

pub(crate) fn now() -> Instant {
    with(|world| world.now)
}

/// Whether time has passed beyond this moment because no thread could run.
pub(crate) fn is_missed(at: Instant) -> bool {
    with(|world| world.idle_until > at)
}

/// The current thread has locked something.
pub(crate) fn locks() {
    with(|world| world.locks(1));
}

/// The current thread has unlocked something.
pub(crate) fn unlocks() {
    with(|world| world.locks(-1));
}

/// Code that is not of the library runs here. Fails if the current thread holds a lock.
#[track_caller]
pub(crate) fn foreign(what: &str) {
    if !has_failed() && with(|world| world.threads[world.current].locks > 0) {
        fail(format!("{what} while a lock is held"));
    }
    point(what);
}

/// As `foreign`, and no other thread runs here.
pub(crate) fn foreign_at_once(what: &str) {
    if !has_failed() && with(|world| world.threads[world.current].locks > 0) {
        fail(format!("{what} while a lock is held"));
    }
}

/// Allows `steps` of the clock. `looks`: the connection's own thread looks again after some time.
pub(crate) fn allow(steps: usize, looks: bool, lacks_threads: usize) {
    with(|world| (world.steps, world.looks, world.lacks_threads) = (steps, looks, lacks_threads));
}

/// Whether the clock may still step.
pub(crate) fn has_steps() -> bool {
    with(|world| world.steps > 0)
}

/// Whether the system can start a thread now.
pub(crate) fn has_thread() -> bool {
    with(|world| {
        let lacks = world.lacks_threads > 0;
        world.lacks_threads -= usize::from(lacks);
        !lacks
    })
}

pub(crate) fn looks() -> bool {
    with(|world| world.looks)
}

/// Blocks the current thread for so long.
#[track_caller]
pub(crate) fn sleep(time: Duration) {
    let end = now() + time;
    while now() < end {
        wait_on(NOTHING, Some(Limit::Tick(end)));
    }
}

/// One of the numbers below `count`, by default zero.
pub(crate) fn choose(count: usize) -> usize {
    with(|world| world.plan.as_mut().unwrap().value(count))
}

/// Adds a line to the story of an execution that is repeated after it failed.
pub(crate) fn tell(what: impl FnOnce() -> String) {
    with(|world| {
        if world.story.is_some() {
            world.tell(&what());
        }
    });
}

/// Whether the execution has broken a promise.
pub(crate) fn has_failed() -> bool {
    std::thread::panicking() || with(|world| world.failure.is_some())
}

/// Ends the execution, which has broken a promise.
pub(crate) fn fail(text: String) -> ! {
    with(|world| {
        let name = world.threads[world.current].name;
        world.failure.get_or_insert(format!("{name}: {text}"));
        world.chosen = None;
    });
    loop {
        switch();
    }
}

/// Starts a thread. `is_event`: it does something to the others, at any point.
pub(crate) fn spawn(name: &'static str, is_event: bool, work: impl FnOnce() + Send + 'static) {
    with(|world| world.chosen = Some(world.current)); // `shuttle` switches before it makes the thread
    shuttle::thread::spawn(move || {
        work();
        with(|world| {
            world.tell("is over");
            let current = world.current;
            world.threads[current].state = ThreadState::Over;
            world.wake(END);
        });
    });
    let state = if is_event { ThreadState::Event } else { ThreadState::Ready };
    with(|world| world.threads.push(Thread { name, state, locks: 0, at: Location::caller() }));
}

/// Waits until all other threads are over.
pub(crate) fn join_all() {
    while with(|world| world.threads.iter().skip(1).any(|thread| !matches!(thread.state, ThreadState::Over)))
    {
        wait_on(END, None);
    }
}

impl World {
    fn new() -> World {
        World {
            plan: None,
            threads: Vec::new(),
            current: 0,
            chosen: None,
            options: Vec::new(),
            now: beginning(),
            idle_until: beginning(),
            steps: 0,
            looks: false,
            lacks_threads: 0,
            points: 0,
            ids: 0,
            executions: 0,
            failure: None,
            story: None,
        }
    }

    fn begin(&mut self) -> bool {
        if self.failure.is_some() || !self.plan.as_mut().unwrap().begin() {
            return false;
        }
        self.executions += 1;
        self.threads.clear();
        self.threads.push(Thread {
            name: "main",
            state: ThreadState::Ready,
            locks: 0,
            at: Location::caller(),
        });
        (self.current, self.chosen) = (0, None);
        (self.now, self.idle_until) = (beginning(), beginning());
        (self.steps, self.looks, self.lacks_threads) = (0, false, 0);
        (self.points, self.ids) = (0, 0);
        true
    }

    /// Nothing is counted after a failure: the destructors run in any thread.
    fn locks(&mut self, more: isize) {
        if self.failure.is_none()
            && let Some(thread) = self.threads.get_mut(self.current)
        {
            thread.locks += more;
        }
    }

    fn wake(&mut self, id: Id) -> usize {
        let waiting = self
            .threads
            .iter_mut()
            .filter(|thread| matches!(thread.state, ThreadState::Waits(on, _) if on == id));
        waiting.map(|thread| thread.state = ThreadState::Ready).count()
    }

    /// Decides what happens next. Returns whether the current thread goes on.
    fn goes_on(&mut self) -> bool {
        self.chosen = self.decide();
        if self.chosen == Some(self.current) {
            self.chosen = None;
            return true;
        }
        false
    }

    fn decide(&mut self) -> Option<usize> {
        self.points += 1;
        if self.points > MOST_POINTS {
            self.failure.get_or_insert(format!("no end after {MOST_POINTS} points: {}", self.describe()));
        }
        if self.failure.is_some() {
            return None;
        }
        self.find_options();
        let next = match self.options.len() {
            0 => {
                self.failure = Some(format!("deadlock: {}", self.describe()));
                return None;
            }
            1 => self.options[0],
            count => self.options[self.plan.as_mut().unwrap().next(count)],
        };
        let thread = match next {
            Next::Thread(thread) => thread,
            Next::Tick(thread) => {
                let before = self.now;
                self.pass_to_limit(thread);
                if self.now > before {
                    self.idle_until = self.now;
                }
                thread
            }
            Next::Step(thread) => {
                self.steps -= 1;
                self.pass_to_limit(thread)
            }
        };
        self.threads[thread].state = ThreadState::Ready;
        Some(thread)
    }

    /// Finds what can happen next. The first is the default: the current thread, or the next one in order, or
    /// an event.
    fn find_options(&mut self) {
        self.options.clear();
        let count = self.threads.len();
        let order = (0..count).map(|distance| (self.current + distance) % count);
        let ready = order.filter(|&thread| matches!(self.threads[thread].state, ThreadState::Ready));
        self.options.extend(ready.map(Next::Thread));
        let events = (0..count).filter(|&thread| matches!(self.threads[thread].state, ThreadState::Event));
        self.options.extend(events.map(Next::Thread));
        let limits = (0..count).filter_map(|thread| match self.threads[thread].state {
            ThreadState::Waits(_, Some(limit)) if limit.end() < self.now + FAR => Some((thread, limit)),
            _ => None,
        });
        if self.options.is_empty() {
            let ticks = limits.clone().filter(|(_, limit)| matches!(limit, Limit::Tick(_)));
            let next = ticks.min_by_key(|(_, limit)| limit.end());
            self.options.extend(next.map(|(thread, _)| Next::Tick(thread)));
        }
        if self.steps > 0 && !self.options.is_empty() {
            self.options.extend(limits.map(|(thread, _)| Next::Step(thread)));
        }
    }

    /// Lets time pass to the limit of this thread. All whose limits are over wake.
    fn pass_to_limit(&mut self, thread: usize) -> usize {
        if let ThreadState::Waits(_, Some(limit)) = self.threads[thread].state {
            self.now = self.now.max(limit.end());
        }
        for thread in &mut self.threads {
            if matches!(thread.state, ThreadState::Waits(_, Some(limit)) if limit.end() <= self.now) {
                thread.state = ThreadState::Ready;
            }
        }
        thread
    }

    fn describe(&self) -> String {
        let others = self.threads.iter().filter(|thread| !matches!(thread.state, ThreadState::Over));
        let others: Vec<_> = others.map(|thread| format!("{} at {}", thread.name, line(thread.at))).collect();
        others.join(", ")
    }

    fn tell(&mut self, what: &str) {
        let Some(story) = &mut self.story else { return };
        let thread = &self.threads[self.current];
        let (time, at) = (self.now - beginning(), line(thread.at));
        story.push(format!("{:>6} ms  {:<10} {at:<20} {what}", time.as_millis(), thread.name));
        if story.len() > MOST_LINES {
            story.remove(MOST_LINES / 2); // the beginning and the end tell most
        }
    }
}

fn line(at: &Location) -> String {
    let file = at.file().rsplit('/').next().unwrap_or_default();
    format!("{file}:{}", at.line())
}

/// Lets `shuttle` run the thread that the plan has chosen.
struct Turns;

impl Scheduler for Turns {
    fn new_execution(&mut self) -> Option<Schedule> {
        with(World::begin).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, _: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        with(|world| {
            let next = world.chosen.take().or_else(|| world.decide())?;
            world.current = next;
            Some(TaskId::from(next))
        })
    }

    fn next_u64(&mut self) -> u64 {
        0 // nobody asks
    }
}

/// What some executions have shown.
pub(crate) struct PacketOutcome {
    pub(crate) executions: usize,
    /// The promise that the last one has broken.
    pub(crate) failure: Option<String>,
    pub(crate) story: Vec<String>,
    pub(crate) plan: Box<dyn Plan>,
}

/// Runs `work` in all executions of a plan, until one fails.
pub(crate) fn run(
    work: impl Fn() + Send + Sync + 'static,
    plan: Box<dyn Plan>,
    has_story: bool,
) -> PacketOutcome {
    with(|world| {
        *world = World::new();
        (world.plan, world.story) = (Some(plan), has_story.then(Vec::new));
    });
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None; // the plan repeats a failure
    config.max_steps = MaxSteps::None;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let run = AssertUnwindSafe(|| Runner::new(Turns, config).run(work));
    let panic = catch_unwind(run).err().map(|panic| match panic.downcast::<String>() {
        Ok(text) => format!("panic: {text}"),
        Err(panic) => format!("panic: {}", panic.downcast_ref::<&str>().unwrap_or(&"unknown")),
    });
    let world = with(|world| std::mem::replace(world, World::new()));
    PacketOutcome {
        executions: world.executions,
        failure: world.failure.or(panic),
        story: world.story.unwrap_or_default(),
        plan: world.plan.unwrap(),
    }
}
