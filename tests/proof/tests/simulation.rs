//! Promise: whatever happens to clients, messages, the server and its clock, in whatever order, the scripts keep the
//! invariants, and answer as a model that is written for reading.

use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::run;
use std::time::Instant;

#[test]
fn many_worlds() {
    let scripts = Scripts::read();
    let begun = Instant::now();
    let (mut steps, mut ran, mut grants, mut losses) = (0, 0, 0, 0);
    for seed in 0..std::env::var("WORLDS").map_or(400, |n| n.parse().unwrap()) {
        match run(&scripts, seed) {
            Ok((taken, count)) => {
                steps += taken;
                ran += count.scripts;
                grants += count.grants;
                losses += count.losses;
            }
            Err(mut failure) => {
                failure.shrink(&scripts);
                panic!("{}", failure.story(&scripts));
            }
        }
    }
    println!(
        "{steps} steps, {ran} scripts, {grants} grants, {losses} losses in {:?}",
        begun.elapsed()
    );
}
