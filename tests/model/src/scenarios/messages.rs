//! Callers wait in line on a connection that is subscribed.

use super::{Scenario, scenario};
use crate::case::{Case, LONG, SHORT, Setup};
use crate::mailboxes::{Found, How};
use crate::tasks::{Ending, Tasks, message};
use crate::wire::Death;
use std::time::Duration;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("messages", || lines(0, LONG, Some(How::Reads), publish_all)),
    scenario("messages, the clock steps", || lines(2, LONG, Some(How::Reads), publish_all)),
    scenario("messages, a waiter does not read", || lines(0, LONG, Some(How::Listens), publish_all)),
    scenario("messages, no waiter reads", nobody_reads),
    scenario("messages, read for some time", || {
        lines(0, LONG, Some(How::ListensFor(Duration::from_secs(1))), publish_all)
    }),
    scenario("messages in pieces", || {
        lines_of(Setup { has_pieces: true, ..Setup::default() }, LONG, Some(How::Reads), publish_all)
    }),
    scenario("messages, a waiter times out", || lines(2, SHORT, Some(How::Reads), publish_all)),
    scenario("messages, a waiter is cancelled", || {
        // A reader looks for a hint only after its read.
        lines_of(Setup { may_be_late: true, ..Setup::default() }, LONG, Some(How::Reads), |case| {
            case.event("hint", |common| common.mailboxes.as_ref().unwrap().hint(0));
            [1, 2].iter().for_each(|channel| publish(case, *channel));
        });
    }),
    scenario("messages and a task", || lines(0, LONG, None, publish_all)),
    scenario("messages and a task, the clock steps", || lines(2, SHORT, None, publish_all)),
    scenario("messages, the server closes", || lines(0, LONG, None, |case| case.dies(Death::Closes))),
    scenario("messages, the owner closes", || lines(0, LONG, Some(How::Listens), Case::closes)),
    scenario("messages, a reply without a call", || {
        lines(0, LONG, Some(How::Reads), |case| case.dies(Death::ReplyWithoutCall))
    }),
    scenario("messages and calls", calls),
    scenario("a connection for messages is tested", tested),
    scenario("a silent connection for messages", silent),
];

fn publish(case: &Case, channel: u8) {
    case.event("message", move |common| common.wire.publish(channel, 7));
}

fn publish_all(case: &Case) {
    (0..3).for_each(|channel| publish(case, channel));
}

/// A and B wait as threads. C waits as a thread, or as a task.
fn lines(steps: usize, limit: Duration, third: Option<How>, event: impl FnOnce(&Case)) {
    lines_of(Setup { steps, ..Setup::default() }, limit, third, event);
}

fn lines_of(setup: Setup, limit: Duration, third: Option<How>, event: impl FnOnce(&Case)) {
    let mut case = Case::new(Setup { channels: 3, ..setup });
    event(&case);
    case.thread("A", move |caller| {
        caller.common.wait(0, How::Reads, limit);
    });
    match third {
        Some(how) => case.thread("C", move |caller| {
            caller.common.wait(2, how, LONG);
        }),
        None => {
            let mut tasks = Tasks::new();
            tasks.add(&mut case, Ending::Done, |caller| async move { message(&caller, 2).await });
            tasks.start(&mut case, "C");
        }
    }
    case.thread("B", |caller| {
        caller.common.wait(1, How::Reads, LONG);
    });
    case.finish();
}

fn nobody_reads() {
    let mut case = Case::new(Setup { channels: 2, ..Setup::default() });
    publish(&case, 0);
    publish(&case, 1);
    case.thread("A", |caller| {
        caller.common.wait(0, How::Listens, LONG);
    });
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { message(&caller, 1).await });
    tasks.start(&mut case, "C");
    case.finish();
}

fn calls() {
    let mut case = Case::new(Setup { channels: 1, ..Setup::default() });
    publish(&case, 0);
    case.thread("A", |caller| {
        let found = caller.common.wait(0, How::Reads, LONG);
        assert_eq!(found, Some(Found::Message(7)));
        caller.exchange(1, LONG);
    });
    case.thread("B", |caller| caller.exchange(1, LONG));
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.finish();
}

fn tested() {
    let mut case = Case::new(Setup { channels: 3, steps: 1, ..Setup::default() });
    case.thread("A", |caller| {
        caller.common.wait(0, How::Reads, Duration::from_secs(3));
    });
    case.thread("B", |caller| {
        caller.common.wait(1, How::Listens, LONG);
    });
    case.thread("late", |caller| {
        caller.common.wait(2, How::Reads, Duration::from_secs(1));
        caller.common.wire.publish(1, 3);
    });
    case.finish();
}

fn silent() {
    let mut case = Case::new(Setup { channels: 2, may_be_late: true, ..Setup::default() });
    case.event("silence", |common| common.wire.fall_silent());
    case.thread("A", |caller| {
        caller.common.wait(0, How::Reads, LONG);
    });
    case.thread("B", |caller| {
        caller.common.wait(1, How::Listens, LONG);
    });
    case.finish();
}
