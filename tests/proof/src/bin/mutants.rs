//! Makes every small change of the Lua code, one at a time, and lists the changes that no fast test detected:
//! neither a conformance case nor a simulated world. Changes without effect are listed in
//! `equivalent_scripts.txt`, with the reason.
//!
//! `mutants inspect` tries only the mutants whose text contains that word. `WORLDS` sets how many worlds are
//! tried (default: 700).

use luagate_memory::Server;
use luagate_proof::conformance::{Case, cases, run_all, signed};
use luagate_proof::mutants::report::{Fate, Listed, Progress};
use luagate_proof::mutants::{self, Mutant};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::run;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn fate(mutant: &Mutant, scripts: &Scripts, cases: &[Case], worlds: u64) -> Fate {
    let changed = mutant.apply(scripts);
    let Ok(mut server) = Server::new() else {
        return Fate::Invalid;
    };
    if changed.load(&mut server).is_err() {
        return Fate::Invalid;
    }
    // A test that panics has detected the change too.
    let noticed = |test: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(test)).unwrap_or(true);
    if noticed(&|| run_all(&changed, cases).is_err()) {
        Fate::ByCase
    } else if noticed(&|| (0..worlds).any(|seed| run(&changed, seed).is_err())) {
        Fate::ByWorld
    } else {
        Fate::Undetected
    }
}

fn main() -> ExitCode {
    let scripts = Scripts::read();
    let only = std::env::args().nth(1).unwrap_or_default();
    let worlds = std::env::var("WORLDS").map_or(700, |n| n.parse().expect("WORLDS takes a number"));
    let mut mutants = mutants::all(&scripts);
    mutants.retain(|mutant| mutant.to_string().contains(&only));
    // Listed mutants take longest, because no test detects them, and matter least: they come last.
    let listed = Listed::read(include_str!("../../equivalent_scripts.txt"));
    mutants.sort_by_key(|mutant| listed.contains(&mutant.key()));
    let mut cases = cases();
    cases.extend(signed(&cases));
    run_all(&scripts, &cases).unwrap_or_else(|broken| panic!("the unchanged scripts fail: {broken:?}"));
    std::panic::set_hook(Box::new(|_| {}));

    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::new(), Progress::new(mutants.len())));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fate = fate(mutant, &scripts, &cases, worlds);
            if fate == Fate::Undetected && !listed.contains(&mutant.key()) {
                println!("not detected: {mutant}");
            }
            let (fates, progress) = &mut *done.lock().unwrap();
            fates.push((mutant.key(), mutant.line, fate));
            progress.done(fates.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    listed.report(done.into_inner().unwrap().0, only.is_empty())
}
