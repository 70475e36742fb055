//! Threads and tasks wait for a change of a value.

use super::{Scenario, scenario};
use crate::changes::Changes;
use crate::engine::mode::{Mode, block};
use crate::engine::slot::run_in_thread;
use crate::foreign;
use crate::tasks::{Ending, Tasks};
use crate::world::{allow, fail, join_all, now, spawn};
use std::sync::Arc;
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("threads wait for changes", || threads(0, None)),
    scenario("threads wait for changes until a time", || threads(0, Some(SHORT))),
    scenario("threads wait for changes until a time, the clock steps", || threads(2, Some(SHORT))),
    scenario("a thread waits for nothing until a time", nothing),
    scenario("tasks wait for changes", || tasks([Ending::Done; 2])),
    scenario("tasks wait for changes, one is dropped", || tasks([Ending::Dropped(1), Ending::Done])),
    scenario("tasks wait for changes, one is dropped when it is woken", || {
        tasks([Ending::DroppedWoken(1), Ending::Done])
    }),
    scenario("a task that waits has another waker", another_waker),
    scenario("two tasks of one thread wait for changes", one_thread),
    scenario("a thread and a task wait for changes", mixed),
    scenario("a task runs work that blocks", || blocking(0, Ending::Done)),
    scenario("a task that runs work that blocks is dropped", || blocking(0, Ending::Dropped(1))),
    scenario("a task runs work that blocks, no thread can be started", || blocking(1, Ending::Done)),
];

const SHORT: Duration = Duration::from_millis(20);

fn waits(changes: &Arc<Changes>, name: &'static str, count: usize, limit: Option<Duration>) {
    let changes = changes.clone();
    spawn(name, false, move || changes.wait(count, limit));
}

fn task(changes: &Arc<Changes>, name: &'static str, count: usize, ending: Ending) {
    let (mut tasks, changes) = (Tasks::new(), changes.clone());
    tasks.add_work(ending, async move { changes.changed(count).await });
    spawn(name, false, || tasks.run(drop));
}

fn threads(steps: usize, limit: Option<Duration>) {
    allow(steps, true, 0);
    let changes = Changes::new();
    waits(&changes, "A", 1, limit);
    waits(&changes, "B", 2, limit);
    changes.changes(2);
    drop(changes);
    join_all();
}

/// One change is missing.
fn nothing() {
    allow(1, true, 0);
    let changes = Changes::new();
    waits(&changes, "A", 2, Some(SHORT));
    waits(&changes, "B", 1, Some(2 * SHORT));
    waits(&changes, "C", 1, None);
    changes.changes(1);
    drop(changes);
    join_all();
}

fn tasks(endings: [Ending; 2]) {
    let changes = Changes::new();
    task(&changes, "K", 1, endings[0]);
    task(&changes, "L", 2, endings[1]);
    changes.changes(2);
    drop(changes);
    join_all();
}

fn another_waker() {
    let changes = Changes::new();
    let (mut tasks, moved) = (Tasks::new(), changes.clone());
    tasks.add_work(Ending::Done, async move { moved.changed_elsewhere(1).await });
    spawn("K", false, || tasks.run(drop));
    task(&changes, "L", 1, Ending::Done);
    changes.changes(1);
    drop(changes);
    join_all();
}

fn one_thread() {
    let changes = Changes::new();
    let mut tasks = Tasks::new();
    for count in [2, 1] {
        let changes = changes.clone();
        tasks.add_work(Ending::Done, async move { changes.changed(count).await });
    }
    spawn("K", false, || tasks.run(drop));
    changes.changes(2);
    drop(changes);
    join_all();
}

fn mixed() {
    let changes = Changes::new();
    waits(&changes, "A", 1, None);
    waits(&changes, "B", 1, None);
    task(&changes, "K", 2, Ending::Done);
    changes.changes(2);
    drop(changes);
    join_all();
}

/// A thread and a task wait for the result of work that blocks.
fn blocking(lacks_threads: usize, ending: Ending) {
    allow(0, true, lacks_threads);
    let changes = Changes::new();
    let (for_thread, for_task) = (changes.clone(), changes.clone());
    spawn("A", false, move || judge(block(|mode| work(for_thread, mode)), lacks_threads));
    let mut tasks = Tasks::new();
    tasks.add_work(ending, async move { judge(work(for_task, Mode::Async).await, lacks_threads) });
    spawn("K", false, || tasks.run(drop));
    changes.changes(1);
    drop(changes);
    join_all();
}

async fn work(changes: Arc<Changes>, mode: Mode) -> Option<u8> {
    let work = move |_| {
        changes.wait(1, None);
        7
    };
    let (foreign, until) = (foreign::new(), now() + Duration::from_secs(600));
    foreign.can_wake();
    run_in_thread(&foreign, "work", until, mode, work).await
}

fn judge(result: Option<u8>, lacks_threads: usize) {
    let is_explained = result == Some(7) || result.is_none() && lacks_threads > 0;
    if !is_explained {
        fail(format!("work that blocks returned {result:?}"));
    }
}
