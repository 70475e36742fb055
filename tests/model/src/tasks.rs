//! A small executor: one thread that polls some tasks.

use crate::case::{Caller, Case};
use crate::waker::watched;
use crate::world::{Id, foreign, new_id, point, sleep, wait_on, wake};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a task ends.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    Done,
    /// It is dropped after so many polls.
    Dropped(usize),
    /// As `Dropped`, when it is woken again.
    DroppedWoken(usize),
    /// After so many polls it is neither polled nor dropped.
    Forgotten(usize),
    /// After so many polls its thread does something else for this time.
    Paused(usize, Duration),
    /// As `Paused`, also after the next two polls.
    Slow(usize, Duration),
}

/// A task is ready to be polled.
pub(crate) struct TaskWaker {
    is_ready: AtomicBool,
    executor: Id,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<TaskWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<TaskWaker>) {
        foreign("wakes a task");
        self.is_ready.store(true, Ordering::Relaxed);
        wake(self.executor);
    }
}

struct Task {
    work: Option<Work>,
    ending: Ending,
    polls: usize,
    waker: Arc<TaskWaker>,
    watched: Waker,
}

/// The tasks of an executor.
pub(crate) struct Tasks {
    executor: Id,
    tasks: Vec<Task>,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        Tasks { executor: new_id(), tasks: Vec::new() }
    }

    /// Adds a task. Returns its waker: the task is polled when it is woken.
    pub(crate) fn add<F>(
        &mut self,
        case: &mut Case,
        ending: Ending,
        work: impl FnOnce(Caller) -> F,
    ) -> Arc<TaskWaker>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.push(ending, work(case.caller()))
    }

    /// Adds a task that uses no connection.
    pub(crate) fn add_work(&mut self, ending: Ending, work: impl Future<Output = ()> + Send + 'static) {
        self.push(ending, work);
    }

    fn push(&mut self, ending: Ending, work: impl Future<Output = ()> + Send + 'static) -> Arc<TaskWaker> {
        let waker = Arc::new(TaskWaker { is_ready: AtomicBool::new(true), executor: self.executor });
        self.tasks.push(Task {
            work: Some(Box::pin(work)),
            ending,
            polls: 0,
            waker: waker.clone(),
            watched: watched(waker.clone().into()),
        });
        waker
    }

    /// Starts the thread that polls them.
    pub(crate) fn start(self, case: &mut Case, name: &'static str) {
        case.thread(name, move |caller| self.run(|task| caller.forget(task)));
    }

    /// Polls them. `forget` keeps a task that is neither polled nor dropped.
    pub(crate) fn run(mut self, forget: impl Fn(Option<Work>)) {
        while !self.tasks.is_empty() {
            let mut is_idle = true;
            for task in &mut self.tasks {
                if task.waker.is_ready.swap(false, Ordering::Relaxed) {
                    is_idle = false;
                    task.poll(&forget);
                }
            }
            self.tasks.retain(|task| task.work.is_some());
            if is_idle && !self.tasks.iter().any(|task| task.waker.is_ready.load(Ordering::Relaxed)) {
                wait_on(self.executor, None);
            }
        }
    }
}

impl Task {
    fn poll(&mut self, forget: impl Fn(Option<Work>)) {
        let Some(work) = &mut self.work else {
            return;
        };
        if matches!(self.ending, Ending::DroppedWoken(polls) if polls == self.polls) {
            self.work = None;
            return;
        }
        if work.as_mut().poll(&mut Context::from_waker(&self.watched)).is_ready() {
            self.work = None;
            return;
        }
        self.polls += 1;
        match self.ending {
            Ending::Dropped(polls) if polls == self.polls => {
                point("drops a task");
                self.work = None;
            }
            Ending::Forgotten(polls) if polls == self.polls => forget(self.work.take()),
            Ending::Paused(polls, time) if polls == self.polls => sleep(time),
            Ending::Slow(polls, time) if (polls..polls + 3).contains(&self.polls) => sleep(time),
            _ => {}
        }
    }
}

/// Waits for a message in a task.
pub(crate) async fn message(caller: &Caller, channel: u8) {
    let _listening = caller.common.connection.listen();
    let mailboxes = caller.common.mailboxes.clone().unwrap();
    let found = mailboxes.found(channel).await;
    caller.common.judge_wait(Some(found), false);
}
