//! An exploration of everything that can happen, and its result.

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a long exploration is checked: whether it is done, and for a progress line.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_secs(30);

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored {
    pub unique: usize,
    pub generated: usize,
    pub depth: usize,
    /// The most fault-free ticks until every waiter was served.
    pub longest_wait: u64,
    pub took: Duration,
    /// Situations that must be possible, but were not found.
    pub missing: Vec<&'static str>,
    pub failure: Option<Failure>,
}

#[derive(Debug)]
pub struct Failure {
    pub rule: &'static str,
    pub story: String,
}

/// Explores everything that can happen. Stops at the first broken promise, which `story` describes.
pub fn explore<M>(
    model: &M,
    threads: usize,
    story: impl Fn(&'static str, Vec<M::Action>) -> String,
) -> Explored
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Clone + PartialEq,
{
    let begun = Instant::now();
    let checker = model.clone().checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs();
    let mut reported = begun;
    while !checker.is_done() {
        sleep((begun.elapsed() / 20).clamp(SHORTEST_LOOK, LONGEST_LOOK));
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let (unique, deep, time) = (checker.unique_state_count(), checker.max_depth(), begun.elapsed());
            println!(
                "... {unique} situations, depth {deep}, after {time:.0?}; the total is not known in advance"
            );
        }
    }
    let checker = checker.join();
    let found = checker.discoveries();
    let failed = model
        .properties()
        .into_iter()
        .find(|property| property.expectation == Expectation::Always && found.contains_key(property.name));
    let failure = failed.map(|property| Failure {
        rule: property.name,
        story: story(property.name, found[property.name].clone().into_actions()),
    });
    let sometimes = model.properties().into_iter();
    let missing = sometimes
        .filter(|property| property.expectation == Expectation::Sometimes)
        .map(|property| property.name)
        .filter(|name| !found.contains_key(name));
    Explored {
        unique: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        longest_wait: 0,
        took: begun.elapsed(),
        missing: missing.collect(),
        failure,
    }
}

impl Explored {
    pub fn is_broken(&self) -> bool {
        self.failure.is_some() || !self.missing.is_empty()
    }
}
