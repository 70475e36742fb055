//! Changes the Lua in every small way it knows, one at a time, and tells which changes no fast test noticed: neither a
//! conformance case nor a simulated world. Those that mean the same are listed in `equivalent.txt`, with the reason.
//!
//! `mutants inspect` tries those whose text has that word; `WORLDS` says how many worlds are tried, 700 unless set.

use luagate_memory::Server;
use luagate_proof::conformance::{Case, cases, run_all, signed};
use luagate_proof::mutants::{self, Mutant};
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::run;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It is no Lua any more.
    NoLua,
    ByCase,
    ByWorld,
    Unnoticed,
}

/// The changes that mean the same, and why. A line that begins with `#` is the reason for those that follow.
fn equivalent() -> BTreeMap<String, String> {
    let mut why = "";
    let mut listed = BTreeMap::new();
    for line in include_str!("../../equivalent.txt").lines() {
        match line.strip_prefix("# ") {
            Some(reason) => why = reason,
            None if line.is_empty() => {}
            None => drop(listed.insert(line.to_owned(), why.to_owned())),
        }
    }
    listed
}

fn fate(mutant: &Mutant, scripts: &Scripts, cases: &[Case], worlds: u64) -> Fate {
    let changed = mutant.apply(scripts);
    let Ok(mut server) = Server::new() else {
        return Fate::NoLua;
    };
    if changed.load(&mut server).is_err() {
        return Fate::NoLua;
    }
    // Whatever upsets a test notices the change.
    let noticed = |test: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(test)).unwrap_or(true);
    if noticed(&|| run_all(&changed, cases).is_err()) {
        Fate::ByCase
    } else if noticed(&|| (0..worlds).any(|seed| run(&changed, seed).is_err())) {
        Fate::ByWorld
    } else {
        Fate::Unnoticed
    }
}

fn main() -> ExitCode {
    let scripts = Scripts::read();
    let only = std::env::args().nth(1).unwrap_or_default();
    let worlds = std::env::var("WORLDS").map_or(700, |n| n.parse().expect("WORLDS takes a number"));
    let mut mutants = mutants::all(&scripts);
    mutants.retain(|mutant| mutant.to_string().contains(&only));
    // Those that are listed take longest, since nothing notices them, and tell the least: they come last.
    let listed = equivalent();
    mutants.sort_by_key(|mutant| listed.contains_key(&mutant.key()));
    let mut cases = cases();
    cases.extend(signed(&cases));
    run_all(&scripts, &cases).unwrap_or_else(|broken| panic!("unchanged: {broken:?}"));
    std::panic::set_hook(Box::new(|_| {}));

    let (next, fates) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fate = fate(mutant, &scripts, &cases, worlds);
            if fate == Fate::Unnoticed && !listed.contains_key(&mutant.key()) {
                println!("nothing noticed: {mutant}");
            }
            fates.lock().unwrap().push((mutant, fate));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });

    let mut fates = fates.into_inner().unwrap();
    fates.sort_by_key(|(mutant, fate)| (*fate, mutant.file.clone(), mutant.line));
    let mut bad = 0;
    let unnoticed = fates.iter().filter(|(_, fate)| *fate == Fate::Unnoticed);
    let unnoticed: BTreeSet<String> = unnoticed.map(|(mutant, _)| mutant.key()).collect();
    for (mutant, fate) in &fates {
        let key = mutant.key();
        let is_listed = listed.contains_key(&key);
        match fate {
            Fate::Unnoticed if !is_listed => {} // said before
            // A file may have the same line twice.
            Fate::ByCase | Fate::ByWorld if is_listed && !unnoticed.contains(&key) => {
                println!("noticed, though listed: {mutant}")
            }
            _ => continue,
        }
        bad += 1;
    }
    for key in listed.keys() {
        if only.is_empty() && !mutants.iter().any(|mutant| mutant.key() == *key) {
            println!("listed, but there is no such change any more: {key}");
            bad += 1;
        }
    }
    let count = |of| fates.iter().filter(|(_, fate)| *fate == of).count();
    println!(
        "{} changes: {} noticed by a conformance case, {} by a simulated world, {} mean the same as listed, {} no Lua; {bad} to look at",
        fates.len(),
        count(Fate::ByCase),
        count(Fate::ByWorld),
        fates
            .iter()
            .filter(|(mutant, _)| listed.contains_key(&mutant.key()))
            .count(),
        count(Fate::NoLua),
    );
    if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
