//! A gate with its own thread: the threads and tasks that use it, and the promises that each execution must
//! keep.

use crate::clock::Clock;
use crate::engine::mode::Mode;
use crate::engine::worker::Worker;
use crate::foreign;
use crate::tasks::Tasks;
use crate::timed_job::{Task, TimedJob};
use crate::timer::Timer;
use crate::world::{self, fail, foreign, has_failed, now};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) struct Gate {
    worker: Worker,
    jobs: Vec<Arc<TimedJob>>,
}

impl Gate {
    /// A gate with this number of jobs.
    pub(crate) fn new(jobs: usize) -> Arc<Gate> {
        let gate = Gate::unopened(jobs);
        gate.open();
        gate
    }

    /// A gate that does not have its jobs yet.
    pub(crate) fn unopened(jobs: usize) -> Arc<Gate> {
        let worker = Worker::new(&foreign::new(), &Clock::real());
        let jobs = (0..jobs).map(|_| TimedJob::new(worker.clone())).collect();
        Arc::new(Gate { worker, jobs })
    }

    pub(crate) fn open(&self) {
        for job in &self.jobs {
            self.worker.add_job(Arc::<TimedJob>::downgrade(job));
        }
    }

    /// Starts a thread that uses the gate. It is dropped when its last user is over.
    pub(crate) fn thread(
        self: &Arc<Gate>,
        name: &'static str,
        work: impl FnOnce(&Arc<Gate>) + Send + 'static,
    ) {
        let gate = self.clone();
        world::spawn(name, false, move || work(&gate));
    }

    /// Starts a thread that polls these tasks.
    pub(crate) fn tasks(self: &Arc<Gate>, name: &'static str, tasks: Tasks) {
        self.thread(name, |_| tasks.run(drop));
    }

    /// Drops the gate, and waits until all threads are over.
    pub(crate) fn finish(self: Arc<Gate>) {
        let jobs: Vec<Weak<TimedJob>> = self.jobs.iter().map(Arc::downgrade).collect();
        drop(self);
        world::join_all();
        if jobs.iter().any(|timed_job| timed_job.strong_count() > 0) {
            fail("a job was not dropped".into());
        }
    }

    /// A job has work now.
    pub(crate) fn call(&self, job: usize) {
        self.send(job, Task::Nothing);
    }

    /// A job has work now. Waits until it is done.
    pub(crate) fn call_and_wait(&self, job: usize) {
        let is_done = self.send(job, Task::Nothing);
        self.jobs[job].wait(&is_done);
    }

    /// A job has work now.
    pub(crate) fn send(&self, job: usize, task: Task) -> Arc<AtomicBool> {
        let is_done = self.jobs[job].add(now(), task);
        self.worker.call();
        is_done
    }

    /// A job has work after this time.
    pub(crate) fn call_after(&self, job: usize, time: Duration) {
        let at = now() + time;
        self.jobs[job].add(at, Task::Nothing);
        self.worker.call_at(at);
    }

    /// Runs this in the gate's own thread, to its end.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let end = End { is_over: false };
        self.worker.spawn(async move {
            let (mut end, mut work) = (end, pin!(work));
            poll_fn(|cx| {
                foreign("polls work");
                work.as_mut().poll(cx)
            })
            .await;
            end.is_over = true;
        });
    }

    /// Sleeps in a task.
    pub(crate) fn timer(&self, time: Duration) -> Timer {
        Timer::new(self.worker.clone(), now() + time, Mode::Async)
    }

    /// Sleeps in work of the gate's own thread.
    pub(crate) fn work_timer(&self, time: Duration) -> Timer {
        Timer::new(self.worker.clone(), now() + time, Mode::Worker)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if has_failed() {
            return;
        }
        self.jobs.iter().for_each(|timed_job| timed_job.close());
        self.worker.call();
    }
}

/// The end of spawned work.
struct End {
    is_over: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        foreign("drops work");
        if !self.is_over && !has_failed() {
            fail("work was dropped before its end".into());
        }
    }
}
