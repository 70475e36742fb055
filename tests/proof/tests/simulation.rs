//! Promise: the scripts keep the invariants and reply like a readable model. Anything may happen to clients,
//! messages, the server, its keys and its clock, in any order.
//!
//! `LUAGATE_SEED=17` runs only the world of that seed and prints its story. `LUAGATE_PROVE=long` runs new
//! worlds for ten minutes.

use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{revoke_before_it_is_read, run_worlds, story};
use std::time::{Duration, Instant, SystemTime};

/// The minimum number of steps of all worlds together, in the short form.
const STEPS: usize = 500_000;

const LONG: Duration = Duration::from_secs(600);

#[test]
fn every_world_keeps_the_invariants() {
    let scripts = Scripts::read();
    if let Ok(seed) = std::env::var("LUAGATE_SEED") {
        println!("{}", story(&scripts, seed.parse().expect("LUAGATE_SEED takes a number")));
        return;
    }
    let begun = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worlds = if std::env::var_os("LUAGATE_PROVE").is_some() {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        run_worlds(&scripts, since_1970.as_secs() << 24, |_| begun.elapsed() < LONG)
    } else {
        run_worlds(&scripts, 0, |steps| steps < STEPS / cores)
    };
    match worlds {
        Ok((steps, count)) => {
            println!(
                "{steps} steps, {} scripts, {} grants, {} losses of state, {} redirects, {} failovers in {:.1?}",
                count.scripts,
                count.grants,
                count.losses,
                count.redirects,
                count.failovers,
                begun.elapsed()
            );
            let steps = steps as u64;
            assert!(count.grants > steps / 100, "too few grants happened: {count:?}");
            assert!(count.redirects > steps / 1_000, "too few redirects happened: {count:?}");
            assert!(
                count.asked > steps / 20_000 && count.failovers > steps / 100_000,
                "too little happened: {count:?}"
            );
        }
        Err(mut failure) => {
            failure.shrink(&scripts);
            panic!("{}", failure.story(&scripts));
        }
    }
}

#[test]
fn a_grant_revoked_before_its_message_is_read_is_not_used() {
    if let Err(violation) = revoke_before_it_is_read(&Scripts::read()) {
        panic!("{} is broken: {}", violation.rule, violation.text);
    }
}
