//! A connection that nobody has used for a while: the next caller first looks whether it was closed.

use super::{Scenario, scenario};
use crate::case::{Case, LONG, Setup};
use crate::tasks::{Ending, Tasks};
use crate::wire::Death;

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("calls after a pause", || idle(|_| {})),
    scenario("calls after a pause, the server closes", || idle(|case| case.dies(Death::Closes))),
    scenario("calls after a pause, a read fails", || idle(|case| case.dies(Death::ReadError))),
    scenario("a look while others write", look),
];

fn idle(event: impl FnOnce(&Case)) {
    let mut case = Case::new(Setup { is_idle: true, looks: true, ..Setup::default() });
    event(&case);
    case.thread("A", |caller| caller.exchange(1, LONG));
    case.thread("B", |caller| {
        caller.post(1);
        caller.exchange(1, LONG);
    });
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.finish();
}

fn look() {
    let mut case = Case::new(Setup { is_idle: true, looks: true, has_pieces: true, ..Setup::default() });
    case.thread("A", |caller| caller.look_if_idle());
    case.thread("B", |caller| {
        caller.post(1);
        caller.look_if_idle();
        caller.exchange(1, LONG);
    });
    let mut tasks = Tasks::new();
    tasks.add(&mut case, Ending::Done, |caller| async move { caller.ask(1).await });
    tasks.start(&mut case, "K");
    case.finish();
}
