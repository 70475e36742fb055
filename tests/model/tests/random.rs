//! Promise: the connection works when three threads and two tasks do anything, in random orders.
//!
//! `LUAGATE_SEED=17` runs only the execution of that seed and prints its story. `LUAGATE_PROVE=long` runs a million, from
//! a seed by the clock.

use luagate_model::{ANYTHING, sample, story};
use std::time::{Instant, SystemTime};

/// After so many executions the progress is printed.
const PART: u64 = 200_000;

/// The executions of the long form, in parts.
const LONG: u64 = 50;

#[test]
fn three_threads_and_two_tasks_can_do_anything() {
    if let Ok(seed) = std::env::var("LUAGATE_SEED") {
        let (story, broken) = story(&ANYTHING, seed.parse().expect("LUAGATE_SEED takes a number"));
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
        if let Some(failure) = sample(&ANYTHING, seed..seed + PART).failure {
            panic!("{failure}");
        }
        println!(
            "{} random executions, the last from seed {}, in {:.1?}",
            part * PART,
            seed + PART - 1,
            begun.elapsed()
        );
        seed += PART;
    }
}
