//! Activates every small change of `crates/core`, one at a time, and lists the changes that nothing detects:
//! no unit test of the protocol, no call over bytes, no simulated world, no exhaustive search. Changes
//! without effect are listed in `equivalent_core.txt`, with the reason.
//!
//! `core_mutants keeper` tries only the mutants whose text contains that word. `WORLDS` sets how many worlds
//! are tried (default: 300).

use luagate_proof::checking::{World, small};
use luagate_proof::mutants::report::{Fate, Listed, Progress};
use luagate_proof::mutation::{activate, mutants, run_unit_tests};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::{STEPS, run_worlds};
use luagate_proof::{machines, wire};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn fate(scripts: &Scripts, worlds: usize) -> Fate {
    // A test that panics has detected the mutant too.
    let detects = |test: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(test)).unwrap_or(true);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let steps = worlds * STEPS / cores;
    let small = small();
    let is_broken =
        |setting| World::new(setting, scripts).is_ok_and(|world| world.explore(cores).is_broken());
    if detects(&|| {
        run_unit_tests();
        machines::check();
        wire::check(scripts);
        false
    }) {
        Fate::ByCase
    } else if detects(&|| run_worlds(scripts, 0, |taken| taken < steps).is_err()) {
        Fate::ByWorld
    } else if detects(&|| small.iter().any(is_broken)) {
        Fate::ByModelChecking
    } else {
        Fate::Undetected
    }
}

fn main() -> ExitCode {
    let scripts = Scripts::read();
    let only = std::env::args().nth(1).unwrap_or_default();
    let worlds = std::env::var("WORLDS").map_or(300, |n| n.parse().expect("WORLDS takes a number"));
    assert_eq!(fate(&scripts, worlds), Fate::Undetected, "the unchanged protocol fails");
    std::panic::set_hook(Box::new(|_| {}));

    let listed = Listed::read(include_str!("../../equivalent_core.txt"));
    let numbered = (1..).zip(mutants()).map(|(number, mutant)| (number, mutant.to_string(), mutant));
    let mut numbered: Vec<_> = numbered.filter(|(_, key, _)| key.contains(&only)).collect();
    // Listed mutants take longest, because no test detects them, and matter least: they come last.
    numbered.sort_by_key(|(_, key, _)| listed.contains(key));
    let (mut fates, mut progress) = (Vec::new(), Progress::new(numbered.len()));
    for (number, key, mutant) in numbered {
        activate(number);
        let fate = fate(&scripts, worlds);
        if fate == Fate::Undetected && !listed.contains(&key) {
            println!("not detected: {key} (line {}): {}  ->  {}", mutant.line, mutant.before, mutant.after);
        }
        fates.push((key, mutant.line, fate));
        progress.done(fates.len());
    }
    listed.report(fates, only.is_empty())
}
