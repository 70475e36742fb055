//! Two threads and a task call at the same time.

use super::{Scenario, scenario};
use crate::case::{Caller, Case, LONG, SHORT, STUCK, Setup};
use crate::mailboxes::How;
use crate::tasks::{Ending, Tasks};
use crate::wire::Death;
use crate::world::sleep;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("calls", || ends(Ending::Done)),
    scenario("calls, replies in pieces", || {
        calls(Setup { has_pieces: true, ..Setup::default() }, Ending::Done, |_| {})
    }),
    scenario("calls, the clock steps", || {
        calls(Setup { steps: 2, ..Setup::default() }, Ending::Done, |_| {})
    }),
    scenario("calls with a pause", pause),
    scenario("a thread times out", || timeouts(SHORT, LONG)),
    scenario("two threads time out", || timeouts(SHORT, SHORT)),
    scenario("a thread times out, the reader is stuck", || timeouts(STUCK, LONG)),
    scenario("a task is dropped at once", || ends(Ending::Dropped(1))),
    scenario("a task is dropped after two polls", || ends(Ending::Dropped(2))),
    scenario("a task is dropped when it is woken", || ends(Ending::DroppedWoken(1))),
    scenario("a task is not polled again", || ends(Ending::Forgotten(1))),
    scenario("the server closes", || dies(Death::Closes)),
    scenario("the server closes within a reply", || dies(Death::ClosesWithinReply)),
    scenario("a read fails", || dies(Death::ReadError)),
    scenario("a write fails", || dies(Death::WriteError)),
    scenario("nonsense arrives", || dies(Death::Nonsense)),
    scenario("the owner closes", || happens(Case::closes)),
    scenario("a read is interrupted", || {
        happens(|case| case.event("signal", |common| common.wire.interrupt()))
    }),
    scenario("the server is silent", || silence(false)),
    scenario("the server is silent for some time", || silence(true)),
    scenario("the server is silent, the time of a task ends", task_times_out),
    scenario("the server is silent, a task is dropped when it is woken", given_up),
    scenario("two tasks of one thread", || two_tasks(Ending::Done, |_| {})),
    scenario("two tasks of one thread, one is dropped", || two_tasks(Ending::DroppedWoken(1), |_| {})),
    scenario("two tasks of one thread, one is not polled again", || two_tasks(Ending::Forgotten(1), |_| {})),
    scenario("two tasks of one thread, one is polled without a reason", polls),
    scenario("two tasks of one thread, the server closes", || {
        two_tasks(Ending::Done, |case| case.dies(Death::Closes))
    }),
    scenario("two tasks of one thread, and a thread that reads on", reads_on),
    scenario("the last reader gets its outcome from the end", last_reader),
];

fn ends(ending: Ending) {
    calls(Setup::default(), ending, |_| {});
}

fn dies(death: Death) {
    happens(|case| case.dies(death));
}

fn happens(event: impl FnOnce(&Case)) {
    calls(Setup::default(), Ending::Done, event);
}

fn calls(setup: Setup, ending: Ending, event: impl FnOnce(&Case)) {
    let mut case = Case::new(setup);
    event(&case);
    case.thread("A", |caller| caller.exchange(1, LONG));
    case.thread("B", |caller| caller.exchange(2, LONG));
    one_task(&mut case, ending);
    case.finish();
}

fn one_task(case: &mut Case, ending: Ending) {
    let mut tasks = Tasks::new();
    tasks.add(case, ending, |caller| async move { caller.ask(1).await });
    tasks.start(case, "K");
}

fn timeouts(a: Duration, b: Duration) {
    let mut case = Case::new(Setup { steps: 2, may_be_stuck: a == STUCK, ..Setup::default() });
    case.thread("A", move |caller| {
        caller.exchange(1, a);
        caller.exchange(1, LONG);
    });
    case.thread("B", move |caller| caller.exchange(1, b));
    one_task(&mut case, Ending::Done);
    case.finish();
}

/// What is posted behind the packet that is not answered comes after it.
fn silence(ends: bool) {
    let mut case = Case::new(Setup { looks: true, ..Setup::default() });
    case.event("silence", |common| common.wire.fall_silent());
    if ends {
        case.event("end", |common| common.wire.answer_again());
    }
    for name in ["A", "B"] {
        case.thread(name, |caller| {
            if !caller.is_answered(1, LONG) {
                caller.post(1);
            }
        });
    }
    one_task(&mut case, Ending::Done);
    case.finish();
}

/// Nothing but its reader ends the wait of a task.
fn task_times_out() {
    let mut case = Case::new(Setup { looks: true, ..Setup::default() });
    case.event("silence", |common| common.wire.fall_silent());
    case.thread("A", |caller| {
        caller.is_answered(1, LONG);
    });
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask_for(1, SHORT).await });
    tasks.start(&mut case, "K");
    case.finish();
}

/// Its own reply is missing, and it must still wake a task.
fn last_reader() {
    let mut case = Case::new(Setup { may_be_late: true, ..Setup::default() });
    case.closes();
    case.thread("A", |caller| caller.exchange(1, LONG));
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.add(&mut case, Ending::Forgotten(1), |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.thread("B", |caller| caller.exchange(1, LONG));
    case.finish();
}

/// The packets of the tasks are not sent, since those of the threads are unanswered.
fn given_up() {
    let mut case = Case::new(Setup { looks: true, ..Setup::default() });
    case.event("silence", |common| common.wire.fall_silent());
    for (name, posts) in [("A", 1), ("B", 2)] {
        case.thread(name, move |caller| {
            (1..posts).for_each(|_| caller.post(1));
            if !caller.is_answered(1, LONG) {
                caller.post(1);
            }
        });
    }
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.add(&mut case, Ending::DroppedWoken(1), |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.finish();
}

fn pause() {
    let mut case = Case::new(Setup { may_be_late: true, ..Setup::default() });
    case.thread("A", |caller| {
        caller.exchange(1, LONG);
        sleep(Duration::from_secs(1));
        caller.exchange(1, LONG);
    });
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move {
        caller.ask(1).await;
        for _ in 0..2 {
            sleep(Duration::from_secs(1));
            caller.ask(1).await;
        }
    });
    tasks.start(&mut case, "K");
    case.finish();
}

/// The thread gets its message only when both tasks are done.
fn reads_on() {
    let mut case = Case::new(Setup { channels: 1, ..Setup::default() });
    case.thread("A", |caller| {
        caller.common.wait(0, How::Reads, LONG);
    });
    let mut tasks = Tasks::new();
    let done = Arc::new(AtomicUsize::new(0));
    let asks = |caller: Caller| {
        let done = done.clone();
        async move {
            caller.ask(1).await;
            if done.fetch_add(1, Ordering::Relaxed) > 0 {
                caller.common.wire.publish(0, 7);
            }
        }
    };
    tasks.add(&mut case, Ending::Done, asks);
    let waker = tasks.add(&mut case, Ending::Done, asks);
    tasks.start(&mut case, "K");
    case.event("poll", move |_| Waker::from(waker).wake());
    case.finish();
}

fn two_tasks(second: Ending, event: impl FnOnce(&Case)) {
    let may_be_late = matches!(second, Ending::Forgotten(_)); // it should wake the other one
    let mut case = Case::new(Setup { may_be_late, ..Setup::default() });
    event(&case);
    case.thread("A", |caller| caller.exchange(1, LONG));
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.add(&mut case, second, |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.finish();
}

fn polls() {
    let mut case = Case::new(Setup::default());
    case.thread("A", |caller| caller.exchange(1, LONG));
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    let waker = tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.event("poll", move |_| Waker::from(waker).wake());
    case.finish();
}
