//! Searches for an order of the calls that the model allows, with each call at one moment of its span.
//!
//! The method goes back to J. M. Wing and C. Gong, "Testing and verifying concurrent objects" (Journal of
//! Parallel and Distributed Computing 17, 1993). It has the form of just-in-time linearization by G. Lowe,
//! "Testing for linearizability" (Concurrency and Computation: Practice and Experience 29, 2017). The search
//! processes the spans in the order of time. It keeps all *ways*: the possible explanations of the calls so
//! far. A way is the state of the model and the steps under way that it has already taken. A step is taken
//! only when it must be, at the end of its span, after any selection of the other steps under way. Equal ways
//! are merged, so their number is bounded by the steps under way, not by the past ones. As in Lowe's paper
//! and in Porcupine, each semaphore is searched separately.
//!
//! These rules keep the search small. Fences and tickets are given in ascending order, if each head start is
//! added to its ticket again. A step that changes nothing is taken as soon as the model allows it: taking it
//! later cannot help. An *unseen grant* is one without a reply to its caller. An unanswered call may have one
//! at any later time, which explains nearly everything in a nearly unlimited number of ways. So at first the
//! search keeps only few ways, those with the fewest unseen grants. An order found in this way is valid. If
//! all of them fail, the search goes
//! [back](super::back) and tries more. If that fails too, it keeps all ways, up to a bound. Beyond that the
//! result is `undecided`, which proves nothing, and the report shows where the few ways failed.

mod past;
mod run;
mod state;

pub use state::Effort;

use super::excerpt::Excerpt;
use super::plan::plan;
use super::rule::Rule;
use super::way::Stuck;
use super::{Call, Micros, Rules};
use state::Search;
use std::collections::BTreeMap;
use std::fmt;

/// What a successful check has covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub calls: usize,
    pub semaphores: usize,
    pub steps: usize,
    /// The maximum number of ways kept at once.
    pub ways: usize,
}

/// A part of the history that no order explains.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub semaphore: String,
    /// The end of the span that no order passes, or the start of the last of the calls that are wrong by
    /// themselves.
    pub at: Micros,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.rule, self.semaphore, self.text)
    }
}

/// The same as `Display`, since a failed check shows this.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Tries one effort after another, until one finds an order.
pub fn check(calls: &[Call], rules: &Rules, efforts: &[Effort]) -> Result<Report, Violation> {
    let mut semaphores: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        semaphores.entry(&call.semaphore).or_default().push(call);
    }
    let mut report = Report { calls: calls.len(), semaphores: semaphores.len(), ..Report::default() };
    for (name, mut calls) in semaphores {
        calls.sort_by_key(|call| call.start);
        let excerpt = Excerpt { calls: &calls };
        let violation = |rule, at, text| Violation { rule, semaphore: name.to_owned(), at, text };
        let plan = plan(&calls, rules).map_err(|wrong| {
            let at = wrong.calls.iter().map(|call| calls[*call].start).max();
            violation(wrong.rule, at.unwrap_or(0), excerpt.of_wrong(&wrong))
        })?;
        report.steps += plan.steps.len();
        let mut failed: Option<Box<Stuck>> = None;
        for effort in efforts {
            match Search::new(&plan, rules, *effort).run() {
                Ok(most) => {
                    report.ways = report.ways.max(most);
                    failed = None;
                    break;
                }
                Err(stuck) if stuck.complete => {
                    failed = Some(stuck);
                    break;
                }
                Err(stuck) => failed = failed.or(Some(stuck)),
            }
        }
        if let Some(stuck) = failed {
            let at = plan.steps[stuck.step].to;
            let rule = if stuck.complete { stuck.why.rule() } else { Rule::Undecided };
            return Err(violation(rule, at, excerpt.of_stuck(&plan, rules, &stuck)));
        }
    }
    Ok(report)
}
