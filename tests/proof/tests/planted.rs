//! Promise: the simulation finds each fault that is planted at a point `fault!` of `crates/core`.
//! `LUAGATE_PLANTED=outbox` plants only those whose name contains this.
#![cfg(feature = "mutants")]

use luagate_proof::mutation::plant;
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{Failure, STEPS, revoke_before_it_is_read, run, run_worlds};

/// The number of worlds in a round. A fault is found in at most ten rounds.
const WORLDS: usize = 600;
const ROUNDS: u64 = 10;

/// The faults. With a seed, the world of this seed shows it.
const FAULTS: [(&str, Option<u64>); 30] = [
    ("the ticket is forgotten", None),
    ("a lease counts from the reply to its call", None),
    ("a lease counts from its message", None),
    ("a new lease counts from its reply", None),
    ("a permit is renewed after its release", None),
    ("a waiter stays in line after its time", None),
    ("only the beginning of a signature is checked", None),
    ("all waits have the same secret", None),
    ("a call that may have run counts as failed", None),
    ("a hint to ask sooner is ignored", None),
    ("a permanent permit is one before it is confirmed", None),
    ("a shorter lease counts only after its reply", None),
    ("a grant that was taken away is accepted", None),
    ("a wait takes its own grant for another one", None),
    ("the bound on the line is ignored", None),
    ("the minimum hold is ignored", None),
    ("the minimum hold of several is ignored", None),
    ("a full line is a timeout", None),
    ("a redirection leads back", None),
    ("ASKING is not sent", None),
    ("a redirection is followed after the end", None),
    ("a call is repeated for as long as connections break", None),
    ("an earlier attempt that may have run is forgotten", None),
    ("a permit that has ended is returned", None),
    ("rule 1: a call does not wait for what is due", Some(14)),
    ("rule 2: an answer counts that came before a release", Some(3_145_838)),
    ("rule 2: a release elsewhere is not late", Some(30_131_833_597_331_975)),
    ("rule 3: a release does not follow its lost call", Some(3)),
    ("rule 4: an id is used again while its release is sent", Some(9)),
    ("rule 5: a copy of a release shows a loss", Some(3)),
];

#[test]
fn faults_in_the_machines_are_found() {
    let (scripts, cores) = (Scripts::read(), std::thread::available_parallelism().map_or(1, usize::from));
    let only = std::env::var("LUAGATE_PLANTED").unwrap_or_default();
    let mut missed = Vec::new();
    for (name, seed) in FAULTS.into_iter().filter(|(name, _)| name.contains(&only)) {
        plant(Some(name));
        let given = revoke_before_it_is_read(&scripts).err().map(|violation| violation.rule.to_string());
        let of_seed = seed.map(|seed| run(&scripts, seed).err());
        let search = || {
            (0..ROUNDS).find_map(|round| {
                plant(Some(name)); // the limit on endless loops counts from here
                run_worlds(&scripts, round << 20, |steps| steps < WORLDS * STEPS / cores).err()
            })
        };
        let told =
            |failure: Box<Failure>| format!("{} is broken by seed {}", failure.violation.rule, failure.seed);
        let found = match of_seed {
            Some(failure) => failure.map(told),
            None => given.or_else(|| search().map(told)),
        };
        match found {
            Some(found) => println!("{name}: {found}"),
            None => {
                println!("{name}: not found");
                let other = seed.and_then(|_| search().map(told)).unwrap_or_default();
                missed.push(format!("{name} {other}"));
            }
        }
        plant(None);
    }
    assert_eq!(missed, [""; 0], "not found");
}
