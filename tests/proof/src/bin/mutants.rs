//! Changes the Lua in every small way it knows, one at a time, and tells which changes neither a conformance case nor a
//! simulated world noticed. `mutants inspect` tries those whose text has that word; WORLDS says how many worlds.

use luagate::memory::Server;
use luagate_proof::conformance::{cases, run_all};
use luagate_proof::mutants;
use luagate_proof::scripts::Scripts;
use luagate_proof::simulation::run;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() {
    let scripts = Scripts::read();
    let only = std::env::args().nth(1).unwrap_or_default();
    let mutants: Vec<_> = mutants::all(&scripts)
        .into_iter()
        .filter(|m| m.to_string().contains(&only))
        .collect();
    let cases = cases();
    run_all(&scripts, &cases).unwrap_or_else(|broken| panic!("{broken:?}"));
    std::panic::set_hook(Box::new(|_| {}));
    let worlds: u64 = std::env::var("WORLDS").map_or(60, |n| n.parse().unwrap());
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let broken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let changed = mutant.apply(&scripts);
                    if changed.load(&mut Server::new().unwrap()).is_err() {
                        broken.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        run_all(&changed, &cases).is_err()
                            || (0..worlds).any(|seed| run(&changed, seed).is_err())
                    }));
                    if !caught.unwrap_or(true) {
                        println!("{mutant}");
                        survivors.lock().unwrap().push(mutant.to_string());
                    }
                }
            });
        }
    });
    println!(
        "{} of {} survived, {} no Lua",
        survivors.lock().unwrap().len(),
        mutants.len(),
        broken.into_inner()
    );
}
