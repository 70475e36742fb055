//! Promise: the simulation finds each fault of `planted.txt` in the machines of `src/protocol`.
#![cfg(feature = "mutants")]

use luagate_proof::mutation::{activate, mutants};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{STEPS, revoke_before_it_is_read, run_worlds};

/// The number of worlds in a round. A fault is found in at most ten rounds.
const WORLDS: usize = 600;
const ROUNDS: u64 = 10;

#[test]
fn faults_in_the_machines_are_found() {
    let (scripts, cores) = (Scripts::read(), std::thread::available_parallelism().map_or(1, usize::from));
    let planted = (1..).zip(mutants()).filter(|(_, mutant)| mutant.is_planted);
    let planted: Vec<_> = planted.collect();
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let unmatched = include_str!("../planted.txt").lines().filter(|line| {
        let parts = line.split_once("  ->  ").and_then(|(right, _)| right.split_once(": "));
        let is_fault = !line.starts_with('#');
        parts.filter(|_| is_fault).is_some_and(|(file, right)| {
            !planted.iter().any(|(_, mutant)| mutant.file == file && squeezed(mutant.before) == squeezed(right))
        })
    });
    assert_eq!(unmatched.collect::<Vec<_>>(), [""; 0], "matches no code");
    let mut missed = Vec::new();
    for (number, mutant) in planted {
        activate(number);
        let given = revoke_before_it_is_read(&scripts).err();
        let found = given.or_else(|| {
            (0..ROUNDS).find_map(|round| {
                activate(number); // the limit on endless loops counts from here
                let worlds = run_worlds(&scripts, round << 20, |steps| steps < WORLDS * STEPS / cores);
                worlds.err().map(|failure| failure.violation)
            })
        });
        activate(0);
        match found {
            Some(violation) => println!("{mutant}: {} is broken", violation.rule),
            None => missed.push(mutant.to_string()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
