//! Work that the gate's own thread polls, and tasks that it wakes at a time.

use super::{Scenario, scenario};
use crate::changes::Changes;
use crate::gate::Gate;
use crate::tasks::{Ending, Tasks};
use crate::timed_job::Task;
use crate::world::{allow, foreign, sleep};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("work waits for a change", waits),
    scenario("work wakes itself", wakes_itself),
    scenario("work sleeps", || work_sleeps(0)),
    scenario("work sleeps, the clock steps", || work_sleeps(2)),
    scenario("work drops the gate", drops_gate),
    scenario("a job starts work", starts_work),
    scenario("tasks sleep", || tasks_sleep(0, LONG, [Ending::Done; 2])),
    scenario("tasks sleep until the same time", || tasks_sleep(0, SHORT, [Ending::Done; 2])),
    scenario("tasks sleep, the clock steps", || tasks_sleep(2, LONG, [Ending::Done; 2])),
    scenario("tasks sleep, one is dropped", || tasks_sleep(0, LONG, [Ending::Dropped(1), Ending::Done])),
    scenario("tasks sleep, one is dropped, the clock steps", || {
        tasks_sleep(1, LONG, [Ending::Done, Ending::Dropped(1)])
    }),
    scenario("a task that sleeps has another waker", || another_waker(0)),
    scenario("a task that sleeps has another waker, the clock steps", || another_waker(1)),
    scenario("a task sleeps, and a job is called", sleep_and_call),
    scenario("the thread ends and is started again", starts_again),
    scenario("the thread of the work cannot be started", no_thread),
];

const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_millis(20);
const LONGER: Duration = Duration::from_millis(30);

/// Returns `Pending` once, and wakes its task at once.
pub(super) async fn again() {
    let mut has_woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        foreign("goes on after it woke itself");
        Poll::Pending
    })
    .await;
}

fn waits() {
    let (gate, changes) = (Gate::new(1), Changes::new());
    changes.changes(2);
    let first = changes.clone();
    gate.thread("A", |gate| {
        gate.spawn(async move { first.changed_for_worker(1).await });
        gate.call(0);
    });
    gate.thread("B", |gate| gate.spawn(async move { changes.changed_for_worker(2).await }));
    gate.finish();
}

fn wakes_itself() {
    let (gate, changes) = (Gate::new(0), Changes::new());
    changes.changes(1);
    gate.thread("A", |gate| {
        gate.spawn(async move {
            again().await;
            changes.changed_for_worker(1).await;
            again().await;
        });
    });
    gate.thread("B", |gate| gate.spawn(again()));
    gate.finish();
}

fn work_sleeps(steps: usize) {
    allow(steps, true, 0);
    let gate = Gate::new(1);
    gate.thread("A", |gate| {
        let (short, long) = (gate.work_timer(SHORT), gate.work_timer(LONG));
        gate.spawn(async move {
            short.await;
            long.await;
        });
    });
    gate.thread("B", |gate| {
        let timer = gate.work_timer(SHORT);
        gate.spawn(async move { drop(timer.begin()) });
        gate.call_after(0, LONGER);
    });
    gate.finish();
}

/// The gate's last user is its own thread.
fn drops_gate() {
    let (gate, changes) = (Gate::new(1), Changes::new());
    changes.changes(1);
    let user = gate.clone();
    gate.spawn(async move {
        changes.changed_for_worker(1).await;
        user.call_after(0, SHORT);
    });
    gate.finish();
}

fn starts_work() {
    let (gate, changes) = (Gate::new(1), Changes::new());
    changes.changes(1);
    gate.thread("A", |gate| {
        gate.send(0, Task::Renew(changes));
    });
    gate.thread("B", |gate| gate.call(0));
    gate.finish();
}

fn tasks_sleep(steps: usize, second: Duration, endings: [Ending; 2]) {
    allow(steps, true, 0);
    let gate = Gate::new(0);
    for (name, ending, time) in [("K", endings[0], SHORT), ("L", endings[1], second)] {
        let mut tasks = Tasks::new();
        tasks.add_work(ending, gate.timer(time));
        gate.tasks(name, tasks);
    }
    gate.finish();
}

fn another_waker(steps: usize) {
    allow(steps, true, 0);
    let gate = Gate::new(0);
    let mut tasks = Tasks::new();
    let timer = gate.timer(SHORT);
    tasks.add_work(Ending::Done, async move { timer.begin().await });
    gate.tasks("K", tasks);
    let mut tasks = Tasks::new();
    tasks.add_work(Ending::Done, gate.timer(LONG));
    gate.tasks("L", tasks);
    gate.finish();
}

fn sleep_and_call() {
    let gate = Gate::new(1);
    let mut tasks = Tasks::new();
    tasks.add_work(Ending::Done, gate.timer(LONG));
    tasks.add_work(Ending::Dropped(1), gate.timer(SHORT));
    gate.tasks("K", tasks);
    gate.thread("A", |gate| {
        gate.call_after(0, LONGER);
        gate.call_and_wait(0);
    });
    gate.finish();
}

/// A gate without jobs: its thread ends after each of these.
fn starts_again() {
    let (gate, changes) = (Gate::new(0), Changes::new());
    changes.changes(1);
    gate.thread("A", |gate| {
        gate.spawn(async {});
        gate.spawn(async move { changes.changed_for_worker(1).await });
    });
    let mut tasks = Tasks::new();
    let (short, long) = (gate.timer(SHORT), gate.timer(LONGER));
    tasks.add_work(Ending::Done, async move {
        short.await;
        sleep(SHORT);
        long.await;
    });
    gate.tasks("K", tasks);
    gate.finish();
}

fn no_thread() {
    allow(0, true, 1);
    let (gate, changes) = (Gate::new(0), Changes::new());
    changes.changes(1);
    gate.thread("A", |gate| {
        gate.spawn(async move { changes.changed_for_worker(1).await });
        gate.spawn(again());
    });
    gate.finish();
}
