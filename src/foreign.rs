//! Runs code that is not of this crate: wakers of tasks, callbacks, what a callback captures when it is
//! dropped, and subscribers of `tracing`. Such code may block, panic, or use the gate. So it runs without a
//! lock, in threads that do nothing else: no connection is read there, and no lease is renewed.
//!
//! There is one thread for wakers, one for callbacks and one for subscribers, so that a callback may wait for
//! a task. After a panic the thread goes on.

use crate::sync::{Arc, Condvar, Mutex, Process, contained, fault, lock, spawn, wait};
use std::task::Waker;

/// The threads of one gate for foreign code. They start when they are first needed. When the last clone is
/// dropped, they run what is left, and end.
#[derive(Clone)]
pub(crate) struct Foreign {
    shared: Arc<Threads>,
}

struct Threads {
    process: Process,
    wakers: Arc<Thread>,
    callbacks: Arc<Thread>,
    events: Arc<Thread>,
}

enum Code {
    Wake(Waker),
    Run(Box<dyn FnOnce() + Send>),
}

struct Thread {
    name: &'static str,
    state: Mutex<ThreadState>,
    called: Condvar,
    /// Where a panic is reported. `None`: this is the thread for that.
    events: Option<(Arc<Thread>, ReportPanic)>,
}

#[derive(Default)]
struct ThreadState {
    waiting: Vec<Code>,
    is_running: bool,
    is_asleep: bool,
    is_closed: bool,
}

/// Reports that code in the thread with this name has panicked.
pub(crate) type ReportPanic = fn(&'static str);

impl Foreign {
    pub(crate) fn new(report_panic: ReportPanic) -> Foreign {
        let thread =
            |name, events| Arc::new(Thread { name, state: Mutex::default(), called: Condvar::new(), events });
        let events = thread("luagate-events", None);
        let threads = Threads {
            process: Process::this(),
            wakers: thread("luagate-wakers", Some((events.clone(), report_panic))),
            callbacks: thread("luagate-on-lost", Some((events.clone(), report_panic))),
            events,
        };
        Foreign { shared: Arc::new(threads) }
    }

    /// Whether tasks can be woken. `false`: no thread can be started for that now.
    pub(crate) fn can_wake(&self) -> bool {
        self.shared.wakers.can_run(&mut lock(&self.shared.wakers.state))
    }

    /// Whether this process made it. `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.shared.process.is_this()
    }

    /// Wakes a task.
    pub(crate) fn wake(&self, waker: Waker) {
        self.shared.wakers.add(Code::Wake(waker));
    }

    /// Runs a callback, or drops what it captures. One runs after the other.
    pub(crate) fn call_back(&self, callback: impl FnOnce() + Send + 'static) {
        self.shared.callbacks.add(Code::Run(Box::new(callback)));
    }

    /// Reports an event to the subscriber of `tracing`.
    #[cfg(feature = "tracing")]
    pub(crate) fn report(&self, report: impl FnOnce() + Send + 'static) {
        self.shared.events.add(Code::Run(Box::new(report)));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.process.is_this() {
            [&self.wakers, &self.callbacks, &self.events].into_iter().for_each(|thread| thread.close());
        }
    }
}

impl Code {
    /// Returns whether it has panicked.
    fn run(self) -> bool {
        match self {
            Code::Wake(waker) => contained(|| waker.wake()),
            Code::Run(work) => contained(work),
        }
    }
}

impl Thread {
    /// Starts it, unless it runs.
    fn can_run(self: &Arc<Thread>, state: &mut ThreadState) -> bool {
        if !state.is_running {
            let thread = self.clone();
            state.is_running = spawn(self.name, move || thread.run());
        }
        state.is_running
    }

    /// If it cannot be started, the code waits until it can.
    fn add(self: &Arc<Thread>, code: Code) {
        let mut state = lock(&self.state);
        self.can_run(&mut state);
        state.waiting.push(code);
        let wakes = std::mem::take(&mut state.is_asleep) && !fault!("foreign code does not wake its thread");
        drop(state);
        if wakes {
            self.called.notify_one();
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.is_asleep = false;
        drop(state);
        self.called.notify_one();
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.waiting.is_empty() || !state.is_closed {
            if state.waiting.is_empty() {
                state.is_asleep = true;
                state = wait(&self.called, state, None);
                state.is_asleep = false;
                continue;
            }
            let codes = std::mem::take(&mut state.waiting);
            drop(state);
            let _locked = fault!("tasks are woken with a lock held").then(|| lock(&self.state));
            for code in codes {
                if code.run() {
                    self.report_panic();
                }
            }
            state = lock(&self.state);
        }
        state.is_running = false;
    }

    fn report_panic(&self) {
        let name = self.name;
        if let Some((events, report)) = self.events.clone().filter(|_| cfg!(feature = "tracing")) {
            events.add(Code::Run(Box::new(move || report(name))));
        }
    }
}
