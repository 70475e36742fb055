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
//! soon as the model allows it, since it can never do so with more right later.

use super::model::{Rule, Semaphore, Step, Takes, Why};
use super::plan::{Must, NEVER, Plan, Planned, Wrong, plan};
use super::{Call, Micros, Rules};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write};

/// So many ways at once are given up.
const MOST_WAYS: usize = 100_000;

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

/// How hard to search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Grants that nobody heard of are tried only where nothing else goes on. They explain a lot, at a price, and most
    /// histories need none.
    Usual,
    /// They are tried everywhere.
    Unseen,
    /// Everything is tried everywhere.
    Every,
}

/// With one effort after the other, until one finds an order.
pub fn check(calls: &[Call], rules: &Rules, efforts: &[Effort]) -> Result<Report, Violation> {
    let mut semaphores: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        semaphores.entry(&call.semaphore).or_default().push(call);
    }
    let mut report = Report {
        calls: calls.len(),
        semaphores: semaphores.len(),
        ..Report::default()
    };
    for (name, mut calls) in semaphores {
        calls.sort_by_key(|call| call.start);
        let excerpt = Excerpt { calls: &calls };
        let violation = |rule, at, text| Violation {
            rule,
            semaphore: name.to_owned(),
            at,
            text,
        };
        let plan = plan(&calls, rules).map_err(|wrong| {
            let at = wrong.calls.iter().map(|call| calls[*call].start).max();
            violation(wrong.rule, at.unwrap_or(0), excerpt.of_wrong(&wrong))
        })?;
        report.steps += plan.steps.len();
        let has_unseen = (plan.steps.iter()).any(|p| matches!(p.step, Step::Unseen { .. }));
        let efforts = efforts
            .iter()
            .filter(|effort| has_unseen || **effort != Effort::Unseen);
        let mut outcome = Ok(0);
        for effort in efforts {
            outcome = Search::new(&plan, rules, *effort).run();
            if outcome.is_ok() {
                break;
            }
        }
        match outcome {
            Ok(most) => report.ways = report.ways.max(most),
            Err(stuck) => {
                let text = excerpt.of_stuck(&plan, rules, &stuck);
                return Err(violation(stuck.rule, plan.steps[stuck.step].to, text));
            }
        }
    }
    Ok(report)
}

/// One way in which all that is past may have come about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Way {
    semaphore: Semaphore,
    /// Which of the steps under way it has taken, sorted.
    taken: Vec<usize>,
}

impl Way {
    fn has_taken(&self, step: usize) -> bool {
        self.taken.binary_search(&step).is_ok()
    }

    fn mark(&mut self, step: usize) {
        if let Err(at) = self.taken.binary_search(&step) {
            self.taken.insert(at, step);
        }
    }

    fn unmark(&mut self, step: usize) {
        self.taken.retain(|taken| *taken != step);
    }
}

struct Search<'a> {
    plan: &'a Plan,
    rules: &'a Rules,
    under_way: Vec<usize>,
    ways: HashSet<Way>,
    most: usize,
    effort: Effort,
}

/// No way goes past the end of this step.
struct Stuck {
    rule: Rule,
    step: usize,
    /// One of the ways up to there.
    way: Way,
    under_way: Vec<usize>,
}

impl Search<'_> {
    fn new<'a>(plan: &'a Plan, rules: &'a Rules, effort: Effort) -> Search<'a> {
        Search {
            plan,
            rules,
            under_way: Vec::new(),
            ways: HashSet::from([Way::default()]),
            most: 1,
            effort,
        }
    }

    /// Whether a step is taken as soon as it can be.
    fn is_look(&self, step: usize) -> bool {
        self.effort != Effort::Every && self.plan.steps[step].step.is_look()
    }

    fn run(mut self) -> Result<usize, Stuck> {
        let mut events: Vec<(Micros, bool, usize)> = Vec::new();
        for (step, planned) in self.plan.steps.iter().enumerate() {
            events.push((planned.from, false, step)); // at the same instant what begins is under way with what ends
            if planned.to != NEVER {
                events.push((planned.to, true, step));
            }
        }
        events.sort_unstable();
        for (_, is_end, step) in events {
            match is_end {
                false => self.begin(step),
                true => self.end(step)?,
            }
            self.most = self.most.max(self.ways.len());
        }
        Ok(self.most)
    }

    fn begin(&mut self, step: usize) {
        self.under_way.push(step);
        if self.is_look(step) {
            let ways = std::mem::take(&mut self.ways);
            self.ways = ways
                .into_iter()
                .map(|mut way| {
                    self.look(&mut way, step);
                    way
                })
                .collect();
        }
    }

    /// Takes a step that changes nothing, if it can be taken.
    fn look(&self, way: &mut Way, step: usize) -> bool {
        let planned = &self.plan.steps[step];
        let fits = !way.has_taken(step)
            && way
                .semaphore
                .take(&planned.step, self.rules, |lease| self.early(lease))
                .is_ok();
        if fits {
            way.mark(step);
        }
        fits
    }

    fn early(&self, lease: u32) -> Micros {
        self.plan.early.get(lease as usize).copied().unwrap_or(0)
    }

    /// The way on through one step, and whether that explains a look; or why it cannot be taken.
    fn taking(&self, way: &Way, step: usize) -> Result<(Way, bool), Why> {
        let mut next = way.clone();
        let planned = &self.plan.steps[step];
        next.semaphore
            .take(&planned.step, self.rules, |lease| self.early(lease))?;
        next.mark(step);
        let mut explains = false;
        for other in &self.under_way {
            if self.is_look(*other) {
                explains |= self.look(&mut next, *other);
            }
        }
        Ok((next, explains))
    }

    /// The end of a span: the step is taken by now, or it does not have to be.
    fn end(&mut self, step: usize) -> Result<(), Stuck> {
        let mut next = HashSet::new();
        let mut complete = true;
        for unseen in [self.effort != Effort::Usual, true] {
            for way in &self.ways {
                complete &= self.go_past(way, step, unseen, &mut next);
            }
            if !next.is_empty() || unseen {
                break;
            }
        }
        if next.is_empty() || !complete {
            return Err(self.stuck(step, complete));
        }
        self.under_way.retain(|other| *other != step);
        self.ways = next;
        Ok(())
    }

    /// Adds all ways from this one past the end of a step. False when they are too many.
    fn go_past(&self, from: &Way, step: usize, unseen: bool, next: &mut HashSet<Way>) -> bool {
        let planned = &self.plan.steps[step];
        let mut seen: HashMap<Way, bool> = HashMap::new();
        // With each: whether it is worth to take the step from there, or another place before it is as good.
        let mut open = vec![(from.clone(), true)];
        while let Some((way, worth)) = open.pop() {
            if way.has_taken(step) {
                let mut past = way;
                past.unmark(step);
                next.insert(past);
                continue;
            }
            let taking = self.taking(&way, step);
            let is_unseen = matches!(planned.step, Step::Unseen { .. });
            if planned.must == Must::Not || (planned.must == Must::HappenIfThere && taking.is_err())
            {
                if let Ok((mut past, _)) = taking
                    && (unseen || !is_unseen)
                {
                    past.unmark(step);
                    next.insert(past);
                }
                next.insert(way);
                continue;
            }
            let can = taking.is_ok();
            if let Ok((mut past, _)) = taking
                && worth
            {
                past.unmark(step);
                next.insert(past);
            }
            // Where it can be taken, others before it only matter for looks that they explain, or if it is in their way.
            let looks = self.under_way.iter().any(|other| {
                *other != step && self.plan.steps[*other].step.is_look() && !way.has_taken(*other)
            });
            for other in &self.under_way {
                let candidate = &self.plan.steps[*other];
                let conflicts = self.effort == Effort::Every || conflict(planned, candidate);
                if *other == step
                    || self.is_look(*other)
                    || way.has_taken(*other)
                    || (matches!(candidate.step, Step::Unseen { .. }) && !unseen)
                    || (can && !looks && !conflicts)
                {
                    continue;
                }
                if let Ok((on, explains)) = self.taking(&way, *other) {
                    let worth = !can || explains || conflicts;
                    if seen.get(&on).is_none_or(|was_worth| worth && !was_worth) {
                        seen.insert(on.clone(), worth);
                        open.push((on, worth));
                    }
                }
            }
            if seen.len() > MOST_WAYS || next.len() > MOST_WAYS {
                return false;
            }
        }
        true
    }

    /// No way goes past the end of this step. The way that is shown is one in which it fails for another reason than that
    /// it is not its turn and, of these, one in which as many as possible hold.
    fn stuck(&mut self, step: usize, complete: bool) -> Stuck {
        let rank = |way: &&Way| {
            let is_its_turn = !matches!(self.taking(way, step), Err(Why::NotNext));
            (is_its_turn, way.semaphore.in_use())
        };
        let best = self.ways.iter().max_by_key(rank);
        let way = best.cloned().unwrap_or_default();
        // Where it waits for a smaller number that is under way, that one is to blame.
        let is_next = |other: &&usize| {
            self.plan.steps[**other].step.number() == Some(way.semaphore.numbers())
        };
        let step = match self.taking(&way, step) {
            Err(Why::NotNext) => *self.under_way.iter().find(is_next).unwrap_or(&step),
            _ => step,
        };
        let rule = match self.taking(&way, step) {
            Err(why) if complete => why.rule(),
            _ => Rule::Undecided,
        };
        Stuck {
            rule,
            step,
            way,
            under_way: std::mem::take(&mut self.under_way),
        }
    }
}

/// Whether the first may make the second impossible, or tell it another thing, that could come before it.
fn conflict(first: &Planned, second: &Planned) -> bool {
    let permit = first.step.permit();
    let (a, b) = (first.step.takes(), second.step.takes());
    (permit.is_some() && permit == second.step.permit())
        || [a, b].contains(&Takes::WhateverIsFree)
        || (a == Takes::Some && b == Takes::Unseen)
        || [first, second]
            .iter()
            .any(|p| matches!(p.step, Step::Forget(_)))
}

/// Calls as a failure shows them.
struct Excerpt<'a> {
    calls: &'a [&'a Call],
}

impl Excerpt<'_> {
    fn line(&self, at: usize) -> String {
        let call = self.calls[at];
        let zero = self.calls[0].start;
        let ms = |at: Micros| (at as f64 - zero as f64) / 1_000.0;
        let end = call
            .end
            .map_or("       ...".to_owned(), |end| format!("{:10.3}", ms(end)));
        format!(
            "{:10.3} {end} ms  {:<14} {} -> {}",
            ms(call.start),
            call.who,
            call.op,
            call.outcome
        )
    }

    /// The calls around one, in the order of their starts.
    fn around(&self, text: &mut String, at: usize) {
        let _ = writeln!(text, "  calls around it:");
        for near in at.saturating_sub(20)..(at + 6).min(self.calls.len()) {
            let mark = if near == at { '>' } else { ' ' };
            let _ = writeln!(text, "  {mark} {}", self.line(near));
        }
    }

    fn of_wrong(&self, wrong: &Wrong) -> String {
        let mut text = format!("{}\n", wrong.text);
        for at in &wrong.calls {
            let _ = writeln!(text, "    {}", self.line(*at));
        }
        self.around(&mut text, wrong.calls[0]);
        text
    }

    fn of_stuck(&self, plan: &Plan, rules: &Rules, stuck: &Stuck) -> String {
        let early = |lease: u32| plan.early.get(lease as usize).copied().unwrap_or(0);
        let why = |step: &Step| match stuck.way.semaphore.clone().take(step, rules, early) {
            Ok(()) => "possible, but does not help".to_owned(),
            Err(why) => why.to_string(),
        };
        let planned = &plan.steps[stuck.step];
        let mut text = match stuck.rule {
            Rule::Undecided => "too many orders to try them all\n".to_owned(),
            _ => format!(
                "no order of the calls explains this: {}\n",
                why(&planned.step)
            ),
        };
        let show = |planned: &Planned| match planned.step {
            Step::LeaseEnd { .. } => format!("(the end of a lease of) {}", self.line(planned.call)),
            Step::Unseen { .. } => format!("(granted unheard) {}", self.line(planned.call)),
            _ => self.line(planned.call),
        };
        let _ = writeln!(text, "    {}", show(planned));
        let _ = writeln!(
            text,
            "  at that point {} of {} are in use, held by",
            stuck.way.semaphore.in_use(),
            rules.limit
        );
        for (who, permits) in stuck.way.semaphore.holders() {
            let _ = writeln!(
                text,
                "    {permits}: {}",
                self.line(plan.holder_calls[who as usize])
            );
        }
        let _ = writeln!(
            text,
            "  what else was under way and could have come before it:"
        );
        for other in &stuck.under_way {
            let candidate = &plan.steps[*other];
            if *other != stuck.step && !stuck.way.has_taken(*other) {
                let _ = writeln!(text, "    {}: {}", show(candidate), why(&candidate.step));
            }
        }
        self.around(&mut text, planned.call);
        text
    }
}
