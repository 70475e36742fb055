//! The search for an order of the calls, each at one point of its span, that the model can follow.
//!
//! It goes back to J. M. Wing and C. Gong, "Testing and verifying concurrent objects" (Journal of Parallel and Distributed
//! Computing 17, 1993), in the form that G. Lowe gives it in "Testing for linearizability" (Concurrency and Computation:
//! Practice and Experience 29, 2017) as just-in-time linearization: the spans are gone through in the order of time, and all
//! ways in which the calls so far may have come about are kept, each as the state of the model and the steps under way
//! that it has taken already. A step is only taken when it has to be, at the end of its span, after whichever others under
//! way. Equal ways become one, so the number of ways is bounded by what is under way and not by what is past. As in Lowe's
//! paper and in Porcupine, each semaphore is searched by itself.
//!
//! What keeps it small: fences and tickets are given in their order; and a step that changes nothing is taken as
//! soon as the model allows it, since it can never do so with more right later. Calls without an answer may have been
//! granted unheard, at any later time, which explains nearly everything in nearly endless ways. So at first only few
//! ways are kept, those with the fewest such grants: an order that is found so is one all the same. Where that ends, the
//! search goes [back](super::back) and tries more. Only where that does not help either is everything kept, up to a bound;
//! beyond that the answer is `undecided`, which is no proof of anything, and shows where the few ways ended.

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

/// What was looked at, when all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub calls: usize,
    pub semaphores: usize,
    pub steps: usize,
    /// The most ways that were kept at once.
    pub ways: usize,
}

/// What no order explains.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub semaphore: String,
    /// When the span ended that no order goes past, or when the last call began of those that are wrong by themselves.
    pub at: Micros,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.rule, self.semaphore, self.text)
    }
}

/// As it is displayed: this is what people see of a check that fails.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// With one effort after the other, until one finds an order.
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
            let rule = match stuck.complete {
                true => stuck.why.rule(),
                false => Rule::Undecided,
            };
            return Err(violation(rule, at, excerpt.of_stuck(&plan, rules, &stuck)));
        }
    }
    Ok(report)
}
