//! Promise: the connection works in every order of its threads and tasks, up to a bound. See the documentation of the
//! crate.
//!
//! `LUAGATE_PROVE=long` allows one deviation more.

use luagate_model::{CALLS, IDLE, MESSAGES, POSTS, Scenario, explore};
use std::time::Instant;

fn all_executions_keep_the_promises(scenarios: &[Scenario]) {
    let most = if std::env::var_os("LUAGATE_PROVE").is_some() { 3 } else { 2 };
    for scenario in scenarios {
        let begun = Instant::now();
        let report = explore(scenario, most, None);
        let (name, executions) = (scenario.name, report.executions);
        println!("{name}: {executions} executions with at most {most} deviations, in {:.1?}", begun.elapsed());
        if let Some(failure) = report.failure {
            panic!("{failure}");
        }
    }
}

#[test]
fn calls_of_threads_and_tasks_get_their_replies() {
    all_executions_keep_the_promises(CALLS);
}

#[test]
fn posted_packets_get_their_replies() {
    all_executions_keep_the_promises(POSTS);
}

#[test]
fn waiters_get_their_messages() {
    all_executions_keep_the_promises(MESSAGES);
}

#[test]
fn a_look_after_a_pause_disturbs_nobody() {
    all_executions_keep_the_promises(IDLE);
}
