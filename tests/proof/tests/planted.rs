//! Promise: the simulation finds each fault of `planted.txt` in the machines of `src/protocol`.
#![cfg(feature = "mutants")]

use luagate_proof::mutation::{activate, mutants};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{STEPS, revoke_before_it_is_read, run_worlds};

/// How many worlds may run before a fault is found.
const WORLDS: usize = 600;

#[test]
fn faults_in_the_machines_are_found() {
    let (scripts, cores) = (Scripts::read(), std::thread::available_parallelism().map_or(1, usize::from));
    let listed = include_str!("../planted.txt").lines();
    let listed = listed.filter(|line| line.contains("  ->  "));
    let planted = (1..).zip(mutants()).filter(|(_, mutant)| mutant.is_planted);
    let planted: Vec<_> = planted.collect();
    assert!(planted.len() >= listed.count(), "a planted fault matches no code");
    let mut missed = Vec::new();
    for (number, mutant) in planted {
        activate(number);
        let given = revoke_before_it_is_read(&scripts).err();
        let found = given.or_else(|| {
            let worlds = run_worlds(&scripts, 0, |steps| steps < WORLDS * STEPS / cores);
            worlds.err().map(|failure| failure.violation)
        });
        activate(0);
        match found {
            Some(violation) => println!("{mutant}: {} is broken", violation.rule),
            None => missed.push(mutant.to_string()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
