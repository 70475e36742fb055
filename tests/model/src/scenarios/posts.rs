//! Packets without a caller that waits.

use super::{Scenario, scenario};
use crate::case::{Case, LONG, SHORT, Setup};
use crate::tasks::{Ending, Tasks};
use crate::wire::Death;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("posts and calls", || posts(Setup::default(), Ending::Done, |_| {})),
    scenario("posts and calls, the clock steps", || {
        posts(Setup { steps: 2, ..Setup::default() }, Ending::Done, |_| {})
    }),
    scenario("posts and a task that is dropped", || posts(Setup::default(), Ending::Dropped(1), |_| {})),
    scenario("posts and a task that is not polled again", || {
        posts(Setup::default(), Ending::Forgotten(1), |_| {})
    }),
    scenario("posts, the server closes", || {
        posts(Setup::default(), Ending::Done, |case| case.dies(Death::Closes))
    }),
    scenario("posts, a write fails", || {
        posts(Setup::default(), Ending::Done, |case| case.dies(Death::WriteError))
    }),
    scenario("posts, the owner closes", || posts(Setup::default(), Ending::Done, Case::closes)),
    scenario("posts alone", alone),
    scenario("posts behind a call that times out", behind),
    scenario("more packets than may be unanswered", many),
];

fn one_task(case: &mut Case, ending: Ending) {
    let mut tasks = Tasks::new();
    tasks.add(case, ending, |caller| async move { caller.ask(1).await });
    tasks.start(case, "K");
}

fn posts(setup: Setup, ending: Ending, event: impl FnOnce(&Case)) {
    let mut case = Case::new(Setup { looks: true, ..setup });
    event(&case);
    case.thread("A", |caller| {
        caller.post(2);
        caller.exchange(1, LONG);
    });
    case.thread("B", |caller| caller.post_two());
    one_task(&mut case, ending);
    case.finish();
}

fn alone() {
    let mut case = Case::new(Setup { looks: true, steps: 1, ..Setup::default() });
    case.thread("A", |caller| {
        caller.post(1);
        caller.post_two();
    });
    case.thread("B", |caller| caller.post(1));
    case.finish();
}

fn behind() {
    let mut case = Case::new(Setup { looks: true, steps: 2, ..Setup::default() });
    case.thread("A", |caller| {
        caller.exchange(1, SHORT);
        caller.post(1);
    });
    case.thread("B", |caller| {
        caller.post(1);
        caller.exchange(1, LONG);
    });
    case.finish();
}

fn many() {
    let mut case = Case::new(Setup { looks: true, ..Setup::default() });
    case.thread("A", |caller| {
        (0..4).for_each(|_| caller.post(1));
        caller.exchange(1, LONG);
    });
    case.thread("B", |caller| {
        caller.post(1);
        caller.exchange(1, LONG);
    });
    one_task(&mut case, Ending::Done);
    case.finish();
}
