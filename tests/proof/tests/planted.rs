//! Promise: the simulation finds each fault of `planted.txt` in the machines of `crates/core`. `LUAGATE_PLANTED=outbox` plants
//! only those whose line contains this.
#![cfg(feature = "mutants")]

use luagate_proof::mutation::{activate, mutants};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{Failure, STEPS, revoke_before_it_is_read, run, run_worlds};

/// The number of worlds in a round. A fault is found in at most ten rounds.
const WORLDS: usize = 600;
const ROUNDS: u64 = 10;

#[test]
fn faults_in_the_machines_are_found() {
    let (scripts, cores) = (Scripts::read(), std::thread::available_parallelism().map_or(1, usize::from));
    let planted = (1..).zip(mutants()).filter(|(_, mutant)| mutant.is_planted);
    let all: Vec<_> = planted.collect();
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let unmatched = include_str!("../planted.txt").lines().filter(|line| {
        let parts = line.split_once("  ->  ").and_then(|(right, _)| right.split_once(": "));
        let is_fault = !line.starts_with('#');
        parts.filter(|_| is_fault).is_some_and(|(file, right)| {
            !all.iter().any(|(_, mutant)| mutant.file == file && squeezed(mutant.before) == squeezed(right))
        })
    });
    assert_eq!(unmatched.collect::<Vec<_>>(), [""; 0], "matches no code");
    let mut missed = Vec::new();
    let only = std::env::var("LUAGATE_PLANTED").unwrap_or_default();
    for (number, mutant) in all.into_iter().filter(|(_, mutant)| mutant.to_string().contains(&only)) {
        activate(number);
        let given = revoke_before_it_is_read(&scripts).err().map(|violation| violation.rule.to_string());
        let of_seed = mutant.seed.map(|seed| run(&scripts, seed).err());
        let search = || {
            (0..ROUNDS).find_map(|round| {
                activate(number); // the limit on endless loops counts from here
                run_worlds(&scripts, round << 20, |steps| steps < WORLDS * STEPS / cores).err()
            })
        };
        let told = |failure: Box<Failure>| format!("{} is broken by seed {}", failure.violation.rule, failure.seed);
        let found = match of_seed {
            Some(failure) => failure.map(told),
            None => given.or_else(|| search().map(told)),
        };
        match found {
            Some(found) => println!("{mutant}: {found}"),
            None => {
                println!("{mutant}: not found");
                let other = mutant.seed.and_then(|_| search().map(told)).unwrap_or_default();
                missed.push(format!("{mutant} {other}"));
            }
        }
        activate(0);
    }
    assert_eq!(missed, [""; 0], "not found");
}
