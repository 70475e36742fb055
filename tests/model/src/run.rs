//! Runs a scenario in many executions.

use crate::plan::{Deviations, Plan, Random};
use crate::planted;
use crate::scenarios::Scenario;
use crate::world::{PacketOutcome, run};
use std::fmt;
use std::ops::Range;

/// What the executions of a scenario have shown.
pub struct Report {
    pub executions: usize,
    /// The failure of the last one.
    pub failure: Option<Failure>,
}

/// An execution that broke a promise.
#[derive(Debug)]
pub struct Failure {
    pub promise: String,
    /// What happened, line by line.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.story.join("\n"), self.promise)
    }
}

/// Runs all executions with at most `most` deviations, those with few of them first. `fault`: the name of a
/// planted one.
pub fn explore(scenario: &Scenario, most: usize, fault: Option<&'static str>) -> Report {
    let mut executions = 0;
    for most in 0..=most {
        let report = check(scenario, Box::new(Deviations::new(most)), fault);
        executions += report.executions;
        if report.failure.is_some() {
            return Report { executions, ..report };
        }
    }
    Report { executions, failure: None }
}

/// Runs a random execution from each of these seeds.
pub fn sample(scenario: &Scenario, seeds: Range<u64>) -> Report {
    let first = seeds.start;
    let mut report = check(scenario, Box::new(Random::new(seeds)), None);
    if let Some(failure) = &mut report.failure {
        let seed = first + report.executions as u64 - 1;
        failure.promise.push_str(&format!("\nLUAGATE_SEED={seed} repeats it"));
    }
    report
}

/// The random execution from this seed, line by line, and the promise that it breaks.
pub fn story(scenario: &Scenario, seed: u64) -> (Vec<String>, Option<String>) {
    let PacketOutcome { story, failure, .. } = run(scenario.run, Box::new(Random::new(seed..seed + 1)), true);
    (story, failure)
}

fn check(scenario: &Scenario, plan: Box<dyn Plan>, fault: Option<&'static str>) -> Report {
    planted::activate(fault);
    let PacketOutcome { executions, failure, plan, .. } = run(scenario.run, plan, false);
    let failure = failure.map(|failure| {
        let again = run(scenario.run, plan.repeat(), true);
        assert_eq!(
            again.failure.as_ref(),
            Some(&failure),
            "an execution with the same choices was different"
        );
        Failure { promise: format!("{}: {failure}", scenario.name), story: again.story }
    });
    planted::activate(None);
    Report { executions, failure }
}
