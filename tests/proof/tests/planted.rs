//! Promise: the simulation finds a fault of a machine in `src/protocol`, as `planted.txt` has them.
#![cfg(feature = "mutants")]

use luagate_proof::mutation::{activate, mutants};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{STEPS, revoke_before_it_is_read, run_worlds};

/// How many worlds may pass before a fault shows.
const WORLDS: usize = 1_000;

/// How many worlds a fault is looked for in at once.
const SHARE: usize = 200;

#[test]
fn faults_in_the_machines_are_found() {
    let (scripts, cores) = (Scripts::read(), std::thread::available_parallelism().map_or(1, usize::from));
    let listed = include_str!("../planted.txt").lines();
    let listed = listed.filter(|line| line.contains("  ->  "));
    let planted = (1..).zip(mutants()).filter(|(_, mutant)| mutant.is_planted);
    let planted: Vec<_> = planted.collect();
    assert!(planted.len() >= listed.count(), "one has no place any more");
    let mut missed = Vec::new();
    for (number, mutant) in planted {
        activate(number);
        let found = revoke_before_it_is_read(&scripts).err().map(|violation| violation.rule);
        let mut firsts = (0..WORLDS).step_by(SHARE);
        let found = found.or_else(|| {
            firsts.find_map(|first| {
                activate(number);
                let worlds = run_worlds(&scripts, first as u64, |steps| steps < SHARE * STEPS / cores);
                worlds.err().map(|failure| failure.violation.rule)
            })
        });
        activate(0);
        match found {
            Some(rule) => println!("{mutant}: {rule} is broken"),
            None => missed.push(mutant.to_string()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
