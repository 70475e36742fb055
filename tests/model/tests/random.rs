//! Promise: the connection, and the thread of a gate, work when three threads and two tasks do anything, in
//! random orders.
//!
//! `LUAGATE_SEED=17` runs only the execution of that seed and prints its story. `LUAGATE_PROVE=long` runs ten
//! million, from a seed by the clock.

use luagate_model::{ANYTHING, ANYTHING_WITH_FUTURE, ANYTHING_WITH_GATE, Scenario, sample, story};
use std::time::{Instant, SystemTime};

/// The executions of the short form. In the long form, the progress is printed after so many of them.
const PART: u64 = 60_000;

/// The executions of the long form, in parts.
const LONG: u64 = 170;

#[test]
fn three_threads_and_two_tasks_can_do_anything() {
    random_executions_keep_the_promises(&ANYTHING);
}

#[test]
fn three_threads_and_two_tasks_can_do_anything_with_a_gate() {
    random_executions_keep_the_promises(&ANYTHING_WITH_GATE);
}

#[test]
fn a_future_can_be_polled_in_any_way() {
    random_executions_keep_the_promises(&ANYTHING_WITH_FUTURE);
}

fn random_executions_keep_the_promises(scenario: &Scenario) {
    if let Ok(seed) = std::env::var("LUAGATE_SEED") {
        let (story, broken) = story(scenario, seed.parse().expect("LUAGATE_SEED takes a number"));
        println!("{}", story.join("\n"));
        assert_eq!(broken, None);
        return;
    }
    let (mut seed, parts) = match std::env::var_os("LUAGATE_PROVE") {
        Some(_) => (SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() << 24, LONG),
        None => (0, 1),
    };
    let begun = Instant::now();
    for part in 1..=parts {
        if let Some(failure) = sample(scenario, seed..seed + PART).failure {
            panic!("{failure}");
        }
        println!(
            "{}: {} random executions, the last from seed {}, in {:.1?}",
            scenario.name,
            part * PART,
            seed + PART - 1,
            begun.elapsed()
        );
        seed += PART;
    }
}
