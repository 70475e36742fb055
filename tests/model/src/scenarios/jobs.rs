//! The jobs of the gate's own thread.

use super::{Scenario, scenario};
use crate::gate::Gate;
use crate::tasks::{Ending, Tasks};
use crate::world::{allow, sleep};
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("jobs are called", calls),
    scenario("jobs are called again", again),
    scenario("jobs are called at a time", || times(0)),
    scenario("jobs are called at a time, the clock steps", || times(2)),
    scenario("a job is called at an earlier time", earlier),
    scenario("a job is called at a time while the thread is awake", awake),
    scenario("the gate is dropped at once", dropped),
    scenario("the jobs are set late, a task sleeps", || late(Ending::Done)),
    scenario("the jobs are set late, a task is dropped", || late(Ending::Dropped(1))),
    scenario("the jobs are set late, a job is called at a time", || opens(false)),
    scenario("the jobs are set late, the thread has ended", || opens(true)),
    scenario("the thread of the jobs cannot be started", no_thread),
    scenario("the thread of the jobs cannot be started, calls at a time", no_thread_at_a_time),
];

const TEN: Duration = Duration::from_millis(10);

fn calls() {
    let gate = Gate::new(2);
    gate.thread("A", |gate| {
        gate.call(0);
        gate.call_and_wait(1);
    });
    gate.thread("B", |gate| gate.call_and_wait(0));
    gate.finish();
}

fn again() {
    let gate = Gate::new(1);
    gate.thread("A", |gate| (0..2).for_each(|_| gate.call_and_wait(0)));
    gate.thread("B", |gate| {
        sleep(TEN);
        gate.call(0);
        gate.call_and_wait(0);
    });
    gate.finish();
}

fn times(steps: usize) {
    allow(steps, true, 0);
    let gate = Gate::new(2);
    gate.thread("A", |gate| {
        gate.call_after(0, 2 * TEN);
        gate.call_after(1, TEN);
    });
    gate.thread("B", |gate| {
        gate.call_after(0, 4 * TEN);
        gate.call(1);
        gate.call_after(1, 3 * TEN);
    });
    gate.finish();
}

fn earlier() {
    let gate = Gate::new(1);
    for (name, time) in [("A", 2 * TEN), ("B", TEN)] {
        gate.thread(name, move |gate| {
            gate.call_after(0, time);
            sleep(3 * TEN);
        });
    }
    gate.finish();
}

/// The second call comes when the thread wakes for the first one.
fn awake() {
    let gate = Gate::new(1);
    gate.call_after(0, TEN);
    gate.thread("A", |gate| {
        sleep(TEN);
        gate.call_after(0, TEN);
        sleep(2 * TEN);
    });
    gate.finish();
}

/// Nobody uses the gate after the calls.
fn dropped() {
    let gate = Gate::new(1);
    gate.call_after(0, TEN);
    gate.thread("A", |gate| gate.call_after(0, 2 * TEN));
    gate.finish();
}

/// A task sleeps before the jobs are set.
fn late(ending: Ending) {
    let gate = Gate::unopened(1);
    let mut tasks = Tasks::new();
    tasks.add_work(ending, gate.timer(TEN));
    gate.tasks("K", tasks);
    gate.thread("A", |gate| {
        gate.open();
        gate.call_after(0, 2 * TEN);
        gate.call_and_wait(0);
    });
    gate.finish();
}

/// A task sleeps while it opens the gate. After that, or after the end of the thread, a job has work.
fn opens(has_ended: bool) {
    let gate = Gate::unopened(1);
    gate.thread("A", move |gate| {
        drop(gate.timer(TEN).begin());
        if has_ended {
            sleep(2 * TEN);
        }
        gate.open();
        gate.call_after(0, 2 * TEN);
        sleep(3 * TEN);
    });
    gate.finish();
}

fn no_thread() {
    allow(0, true, 1);
    let gate = Gate::new(1);
    gate.thread("A", |gate| {
        gate.call(0);
        gate.call_and_wait(0);
    });
    gate.thread("B", |gate| gate.call(0));
    gate.finish();
}

fn no_thread_at_a_time() {
    allow(0, true, 1);
    let gate = Gate::new(1);
    gate.thread("A", |gate| {
        gate.call_after(0, TEN);
        gate.call_after(0, 2 * TEN);
        sleep(3 * TEN);
    });
    gate.finish();
}
