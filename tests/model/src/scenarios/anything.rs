//! Three threads and two tasks use a gate, and do anything.

use super::work::again;
use crate::changes::Changes;
use crate::gate::Gate;
use crate::tasks::{Ending, Tasks};
use crate::timed_job::Task;
use crate::world::{allow, choose, sleep};
use std::sync::Arc;
use std::time::Duration;

const THREADS: [&str; 3] = ["A", "B", "C"];

const JOBS: usize = 2;

const CHANGES: usize = 2;

#[derive(Clone, Copy)]
enum Op {
    Call(usize),
    CallAndWait(usize),
    CallAfter(usize, Duration),
    Renew(usize),
    Change,
    WorkWaits(usize),
    WorkWakesItself,
    WorkSleeps(Duration),
    WorkDropsTimer(Duration),
    Wait(usize),
    WaitUntil(usize, Duration),
    Pause(Duration),
}

fn time() -> Duration {
    Duration::from_millis(10 * choose(4) as u64)
}

fn op() -> Op {
    let (job, count) = (choose(JOBS), 1 + choose(CHANGES));
    match choose(14) {
        0 => Op::Call(job),
        1 => Op::CallAndWait(job),
        2..=4 => Op::CallAfter(job, time()),
        5 => Op::Renew(job),
        6 => Op::Change,
        7 => Op::WorkWaits(count),
        8 => Op::WorkWakesItself,
        9 => Op::WorkSleeps(time()),
        10 => Op::WorkDropsTimer(time()),
        11 => Op::Wait(count),
        12 => Op::WaitUntil(count, time()),
        _ => Op::Pause(time()),
    }
}

fn perform(gate: &Arc<Gate>, changes: &Arc<Changes>, op: Op) {
    let changed = changes.clone();
    match op {
        Op::Call(job) => gate.call(job),
        Op::CallAndWait(job) => gate.call_and_wait(job),
        Op::CallAfter(job, time) => gate.call_after(job, time),
        Op::Renew(job) => {
            gate.send(job, Task::Renew(changed));
        }
        Op::Change => changes.change(),
        Op::WorkWaits(count) => gate.spawn(async move { changed.changed_for_worker(count).await }),
        Op::WorkWakesItself => gate.spawn(again()),
        Op::WorkSleeps(time) => gate.spawn(gate.work_timer(time)),
        Op::WorkDropsTimer(time) => {
            let timer = gate.work_timer(time);
            gate.spawn(async move { drop(timer.begin()) });
        }
        Op::Wait(count) => changes.wait(count, None),
        Op::WaitUntil(count, time) => changes.wait(count, Some(time)),
        Op::Pause(time) => sleep(time),
    }
}

fn ending() -> Ending {
    match choose(6) {
        0 => Ending::Dropped(1 + choose(2)),
        1 => Ending::DroppedWoken(1 + choose(2)),
        _ => Ending::Done,
    }
}

pub(super) fn anything() {
    allow(choose(5), true, 0);
    let (gate, changes) = (Gate::unopened(JOBS), Changes::new());
    changes.changes(CHANGES);
    if choose(2) == 0 {
        drop(gate.timer(time()).begin()); // while the gate is opened
    }
    gate.open();
    for name in THREADS {
        let (changes, ops) = (changes.clone(), (0..1 + choose(3)).map(|_| op()).collect::<Vec<_>>());
        gate.thread(name, move |gate| ops.iter().for_each(|op| perform(gate, &changes, *op)));
    }
    let mut tasks = Tasks::new();
    for name in ["K", "L"] {
        let (changes, timer, count) = (changes.clone(), gate.timer(time()), 1 + choose(CHANGES));
        let (waits, is_moved) = (choose(2) == 0, choose(3) == 0);
        tasks.add_work(ending(), async move {
            if is_moved {
                timer.begin().await
            } else {
                timer.await
            }
            match (waits, is_moved) {
                (true, true) => changes.changed_elsewhere(count).await,
                (true, false) => changes.changed(count).await,
                (false, _) => {}
            }
        });
        if name == "K" && choose(2) == 0 {
            gate.tasks(name, std::mem::replace(&mut tasks, Tasks::new()));
        }
    }
    gate.tasks("L", tasks);
    drop(changes);
    gate.finish();
}
