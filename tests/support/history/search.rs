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
//! ways are kept, those with the fewest such grants: an order that is found so is one all the same. Where that ends, the search
//! goes [back](super::back) and tries more. Only where that does not help either is everything kept, up to a bound; beyond that the answer is `undecided`, which is no proof of anything, and shows where
//! the few ways ended.

use super::back::{Back, Place};
use super::excerpt::Excerpt;
use super::model::{Rule, Semaphore, Step, Takes, Why};
use super::plan::{Doubt, Must, NEVER, Plan, Planned, Wrong, plan};
use super::{Call, Micros, Rules};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;

/// How many ways are kept where these are few, and how many are tried from one of them to come past one end.
const FEW: usize = 32;
const FEW_TRIED: usize = 2_048;

/// The same after going back, and how many are tried in all so.
const MORE: usize = 512;
const MORE_TRIED: usize = 256;
const MOST_MORE_TRIED: usize = 300_000;

/// How many are tried in all, and for each step, before it stays undecided.
const MOST_TRIED: usize = 50_000;
const MOST_TRIED_A_STEP: usize = 4;

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
    /// Grants that nobody heard of are tried only where nothing else goes on, and few ways are kept. Where one of these
    /// comes to the end, there is an order; that none does says nothing yet.
    Few,
    /// All ways are kept.
    All,
    /// No shortcut either.
    Every,
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

/// One way in which all that is past may have come about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    pub semaphore: Semaphore,
    /// Which of the steps under way it has taken, sorted.
    taken: Vec<usize>,
}

impl Way {
    pub fn has_taken(&self, step: usize) -> bool {
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
    under_way: UnderWay,
    ways: HashSet<Way>,
    most: usize,
    tried: usize,
    now: Micros,
    effort: Effort,
    /// No way was left out so far.
    complete: bool,
    /// It went back, and tries more up to that many events.
    more_to: Option<usize>,
    more_tried: usize,
}

/// The steps under way, by when they matter.
#[derive(Clone, Default)]
pub struct UnderWay {
    looks: Vec<usize>,
    changes: Vec<usize>,
    /// Grants that nobody heard of.
    unseen: Vec<usize>,
    unseen_ends: Vec<usize>,
}

impl UnderWay {
    fn all(&self) -> impl Iterator<Item = usize> {
        let changes = self.changes.iter().chain(&self.unseen);
        let all = changes.chain(&self.unseen_ends).chain(&self.looks);
        all.copied()
    }
}

/// No way goes past the end of this step.
pub struct Stuck {
    pub step: usize,
    pub why: Why,
    /// Nothing was left out.
    pub complete: bool,
    /// One of the ways up to there.
    pub way: Way,
    pub under_way: Vec<usize>,
}

impl Search<'_> {
    fn new<'a>(plan: &'a Plan, rules: &'a Rules, effort: Effort) -> Search<'a> {
        Search {
            plan,
            rules,
            under_way: UnderWay::default(),
            ways: HashSet::from([Way::default()]),
            most: 1,
            tried: 0,
            now: 0,
            effort,
            complete: true,
            more_to: None,
            more_tried: 0,
        }
    }

    /// Whether a step is taken as soon as it can be.
    fn is_look(&self, step: usize) -> bool {
        self.effort != Effort::Every && self.plan.steps[step].step.is_look()
    }

    fn run(mut self) -> Result<usize, Box<Stuck>> {
        let mut events: Vec<(Micros, bool, usize)> = Vec::new();
        for (step, planned) in self.plan.steps.iter().enumerate() {
            events.push((planned.from, false, step)); // at the same instant what begins is under way with what ends
            if planned.to != NEVER {
                events.push((planned.to, true, step));
            }
        }
        events.sort_unstable();
        let mut back = Back::default();
        let mut past = 0;
        while let Some((now, is_end, step)) = events.get(past).copied() {
            if self.effort == Effort::Few && back.keeps(past) {
                back.keep(Place { past, under_way: self.under_way.clone(), ways: self.ways.clone() });
            }
            self.now = now;
            self.more_to = self.more_to.filter(|to| *to >= past);
            let ended = match is_end {
                true => self.end(step),
                false => {
                    self.begin(step);
                    Ok(())
                }
            };
            past = match ended {
                Ok(()) => past + 1,
                Err(stuck) => {
                    let is_begin = |event: &(Micros, bool, usize)| !event.1 && event.2 == step;
                    let begin = events[..past].iter().rposition(is_begin).unwrap_or(0);
                    self.go_back(&mut back, past, past - begin).ok_or(stuck)?
                }
            };
            self.most = self.most.max(self.ways.len());
        }
        Ok(self.most)
    }

    /// To an earlier place, to try more from there: how many events are past then. Nothing where that is of no use.
    fn go_back(&mut self, back: &mut Back, past: usize, span: usize) -> Option<usize> {
        if self.complete || self.effort != Effort::Few || self.more_tried > MOST_MORE_TRIED {
            return None;
        }
        let (place, to) = back.from(past, span)?;
        self.under_way = place.under_way.clone();
        self.ways = place.ways.clone();
        self.more_to = Some(to);
        Some(place.past)
    }

    /// Where a step is kept while it is under way.
    fn list(&mut self, step: usize) -> &mut Vec<usize> {
        let is_look = self.is_look(step);
        match self.plan.steps[step].step {
            _ if is_look => &mut self.under_way.looks,
            Step::Unseen { .. } => &mut self.under_way.unseen,
            Step::UnseenEnd { .. } => &mut self.under_way.unseen_ends,
            _ => &mut self.under_way.changes,
        }
    }

    fn begin(&mut self, step: usize) {
        self.list(step).push(step);
        if matches!(self.plan.steps[step].step, Step::Unseen { .. }) {
            let ends = |unseen: &usize| self.plan.steps[*unseen + 1].from;
            self.under_way.unseen.sort_by_key(ends);
        }
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

    fn allows(&self, way: &Way, step: usize) -> Result<(), Why> {
        let early = |lease| self.early(lease);
        way.semaphore.allows(&self.plan.steps[step].step, self.rules, early)
    }

    /// Takes a step that changes nothing, if it can be taken.
    fn look(&self, way: &mut Way, step: usize) -> bool {
        let fits = !way.has_taken(step) && self.allows(way, step).is_ok();
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
        self.allows(way, step)?;
        let mut next = way.clone();
        let planned = &self.plan.steps[step];
        next.semaphore.take(&planned.step, self.rules);
        next.mark(step);
        let mut explains = false;
        for other in &self.under_way.looks {
            explains |= self.look(&mut next, *other);
        }
        Ok((next, explains))
    }

    /// How many ways are kept, where these are few.
    fn few(&self) -> Option<usize> {
        match self.effort {
            Effort::Few if self.more_to.is_some() => Some(MORE),
            Effort::Few => Some(FEW),
            Effort::All | Effort::Every => None,
        }
    }

    /// The end of a span: the step is taken by now, or it does not have to be.
    fn end(&mut self, step: usize) -> Result<(), Box<Stuck>> {
        let doubts: &[Doubt] = match self.effort {
            Effort::Few if self.more_to.is_none() => &[Doubt::None, Doubt::InCall, Doubt::AfterCall],
            _ => &[Doubt::AfterCall],
        };
        let ways = std::mem::take(&mut self.ways);
        let mut next = HashSet::new();
        for doubt in doubts {
            for way in &ways {
                self.go_past(way, step, *doubt, &mut next);
            }
            if !next.is_empty() {
                break;
            }
        }
        let is_given_up = self.few().is_none() && !self.complete;
        if next.is_empty() || is_given_up {
            self.ways = ways;
            return Err(Box::new(self.stuck(step)));
        }
        self.list(step).retain(|other| *other != step);
        self.ways = next;
        if let Some(kept) = self.few()
            && self.ways.len() > kept
        {
            self.thin(kept);
        }
        Ok(())
    }

    /// Keeps those with the fewest grants that nobody heard of and, of several that differ by these alone, one.
    fn thin(&mut self, kept_at_most: usize) {
        let is_unseen = |step: &usize| {
            let step = &self.plan.steps[*step].step;
            matches!(step, Step::Unseen { .. } | Step::UnseenEnd { .. })
        };
        let mut ways: Vec<(usize, Way)> =
            self.ways.drain().map(|way| (way.taken.iter().filter(|step| is_unseen(step)).count(), way)).collect();
        ways.sort_by(|(a, first), (b, second)| (a, &first.taken).cmp(&(b, &second.taken)));
        let all = ways.len();
        let mut kept = HashSet::new();
        for (_, way) in ways {
            let mut seen = way.taken.clone();
            seen.retain(|step| !is_unseen(step));
            if self.ways.len() < kept_at_most && kept.insert((way.semaphore.clone(), seen)) {
                self.ways.insert(way);
            }
        }
        self.complete &= self.ways.len() == all;
    }

    /// The changes under way that may come before this step.
    fn others(&mut self, way: &Way, step: usize, doubt: Doubt) -> Vec<usize> {
        let mut others = self.under_way.changes.clone();
        if way.semaphore.has_unseen() {
            others.extend(&self.under_way.unseen_ends);
        }
        let mut alike = HashSet::new();
        for unseen in &self.under_way.unseen {
            let begin = &self.plan.steps[*unseen];
            // Of those that weigh the same and may end, one is as good as another, most often; and of those that last, the one
            // that may end first.
            let may_end = self.plan.steps[*unseen + 1].from <= self.now;
            let is_tried = begin.doubt <= doubt
                && (self.few().is_none()
                    || begin.doubt < Doubt::AfterCall
                    || way.has_taken(*unseen)
                    || alike.insert((begin.step.unseen_permits(), may_end)));
            match is_tried {
                true => others.push(*unseen),
                false => self.complete = false,
            }
        }
        others.retain(|other| *other != step && !way.has_taken(*other));
        others
    }

    /// Adds all ways from this one past the end of a step.
    fn go_past(&mut self, from: &Way, step: usize, doubt: Doubt, next: &mut HashSet<Way>) {
        let planned = &self.plan.steps[step];
        let mut seen: HashMap<Way, bool> = HashMap::new();
        // With each: whether it is worth to take the step from there, or another place before it is as good.
        let mut open = VecDeque::from([(from.clone(), true)]);
        while let Some((way, worth)) = open.pop_front() {
            self.tried += 1;
            if way.has_taken(step) {
                let mut past = way;
                past.unmark(step);
                next.insert(past);
                continue;
            }
            let taking = self.taking(&way, step);
            let can = taking.is_ok();
            if let Ok((mut past, _)) = taking
                && worth
            {
                match planned.doubt <= doubt {
                    true => {
                        past.unmark(step);
                        next.insert(past);
                    }
                    false => self.complete = false,
                }
            }
            match planned.must {
                Must::Happen => {}
                Must::HappenIfThere if can => {}
                Must::HappenIfThere | Must::Not => {
                    next.insert(way);
                    continue;
                }
            }
            // Where it can be taken, others before it only matter for looks that they explain, or if it is in their way.
            let looks = &self.under_way.looks;
            let looks = (looks.iter()).any(|other| *other != step && !way.has_taken(*other));
            for other in self.others(&way, step, doubt) {
                let candidate = &self.plan.steps[other];
                let conflicts = self.effort == Effort::Every || conflict(planned, candidate);
                if can && !looks && !conflicts {
                    continue;
                }
                if let Ok((on, explains)) = self.taking(&way, other) {
                    let worth = !can || explains || conflicts;
                    if seen.get(&on).is_none_or(|was| worth && !was) {
                        seen.insert(on.clone(), worth);
                        open.push_back((on, worth));
                    }
                }
            }
            let is_enough = match self.effort {
                Effort::Few if self.more_to.is_some() => {
                    self.more_tried += 1;
                    seen.len() > MORE_TRIED || self.more_tried > MOST_MORE_TRIED
                }
                Effort::Few => seen.len() > FEW_TRIED || (doubt > Doubt::None && next.len() > FEW),
                _ => self.tried > MOST_TRIED + MOST_TRIED_A_STEP * self.plan.steps.len(),
            };
            if is_enough {
                self.complete = false;
                return;
            }
        }
    }

    /// No way goes past the end of this step. The way that is shown is one in which it fails for another reason than that
    /// it is not its turn and, of these, one in which as many as possible hold.
    fn stuck(&mut self, step: usize) -> Stuck {
        let rank = |way: &&Way| {
            let is_its_turn = !matches!(self.allows(way, step), Err(Why::NotNext));
            (is_its_turn, way.semaphore.in_use())
        };
        let best = self.ways.iter().max_by_key(rank);
        let way = best.cloned().unwrap_or_default();
        // Where it waits for a smaller number that is under way, that one is to blame.
        let is_next = |other: &&usize| self.plan.steps[**other].step.number() == Some(way.semaphore.numbers());
        let step = match self.allows(&way, step) {
            Err(Why::NotNext) => *self.under_way.changes.iter().find(is_next).unwrap_or(&step),
            _ => step,
        };
        Stuck {
            step,
            why: self.allows(&way, step).err().unwrap_or(Why::Void),
            complete: self.complete,
            way,
            under_way: self.under_way.all().collect(),
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
        || [first, second].iter().any(|p| matches!(p.step, Step::Forget(_)))
}
