//! Promise: the connection and the gate's own thread work in every order of their threads and tasks, up to a
//! bound. See the documentation of the crate.
//!
//! `LUAGATE_PROVE=long` allows one deviation more.

/// Its tests: each execution up to the bound is run, once.
#[path = "../src/plan.rs"]
#[allow(dead_code, reason = "only its tests are for this program")]
mod plan;

use luagate_model::{CALLS, FUTURES, IDLE, JOBS, MESSAGES, POSTS, Scenario, VALUES, WORK, explore};
use std::time::Instant;

fn all_executions_keep_the_promises(scenarios: &[Scenario], most: usize) {
    let most = most + usize::from(std::env::var_os("LUAGATE_PROVE").is_some());
    for scenario in scenarios {
        let begun = Instant::now();
        let report = explore(scenario, most, None);
        let (name, executions) = (scenario.name, report.executions);
        println!(
            "{name}: {executions} executions with at most {most} deviations, in {:.1?}",
            begun.elapsed()
        );
        if let Some(failure) = report.failure {
            panic!("{failure}");
        }
    }
}

#[test]
fn calls_of_threads_and_tasks_get_their_replies() {
    all_executions_keep_the_promises(CALLS, 2);
}

#[test]
fn posted_packets_get_their_replies() {
    all_executions_keep_the_promises(POSTS, 2);
}

#[test]
fn waiters_get_their_messages() {
    all_executions_keep_the_promises(MESSAGES, 2);
}

#[test]
fn a_look_after_a_pause_disturbs_nobody() {
    all_executions_keep_the_promises(IDLE, 2);
}

#[test]
fn jobs_are_called_in_time() {
    all_executions_keep_the_promises(JOBS, 3);
}

#[test]
fn work_is_polled_to_its_end_and_tasks_are_woken_in_time() {
    all_executions_keep_the_promises(WORK, 3);
}

#[test]
fn waiters_see_each_change() {
    all_executions_keep_the_promises(VALUES, 3);
}

#[test]
fn a_future_that_is_not_polled_keeps_no_permit() {
    all_executions_keep_the_promises(FUTURES, 2);
}
