//! Extends one way to all ways that pass the end of a step.

use super::state::{
    Effort, FEW, FEW_TRIED, MORE_TRIED, MOST_MORE_TRIED, MOST_TRIED, MOST_TRIED_A_STEP, Search,
};
use crate::support::history::planned::{Doubt, Must, Planned};
use crate::support::history::step::{Step, Takes};
use crate::support::history::way::Way;
use std::collections::{HashMap, HashSet, VecDeque};

impl Search<'_> {
    /// The changes under way that may take effect before this step.
    fn others(&mut self, way: &Way, step: usize, doubt: Doubt) -> Vec<usize> {
        let mut others = self.under_way.changes.clone();
        if way.semaphore.has_unseen() {
            others.extend(&self.under_way.unseen_ends);
        }
        let mut alike = HashSet::new();
        for unseen in &self.under_way.unseen {
            let begin = &self.plan.steps[*unseen];
            // Of the unseen grants of equal size that may already end, usually one is as good as another. Of
            // those that cannot end yet, the one that may end first is tried.
            let may_end = self.plan.steps[*unseen + 1].from <= self.now;
            let is_tried = begin.doubt <= doubt
                && (self.few().is_none()
                    || begin.doubt < Doubt::AfterCall
                    || way.has_taken(*unseen)
                    || alike.insert((begin.step.unseen_permits(), may_end)));
            if is_tried { others.push(*unseen) } else { self.complete = false }
        }
        others.retain(|other| *other != step && !way.has_taken(*other));
        others
    }

    /// Adds all extensions of this way that pass the end of a step.
    pub fn go_past(&mut self, from: &Way, step: usize, doubt: Doubt, next: &mut HashSet<Way>) {
        let planned = &self.plan.steps[step];
        let mut seen: HashMap<Way, bool> = HashMap::new();
        // With each way: whether to take the step from there. If false, an earlier position is as good.
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
                if planned.doubt <= doubt {
                    past.unmark(step);
                    next.insert(past);
                } else {
                    self.complete = false
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
            // If the step can be taken, other steps before it matter only if they explain read-only steps or
            // conflict with it.
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
            if self.is_enough(doubt, seen.len(), next.len()) {
                self.complete = false;
                return;
            }
        }
    }

    /// Whether enough ways were tried, or enough pass the step.
    fn is_enough(&mut self, doubt: Doubt, tried: usize, past: usize) -> bool {
        match self.effort {
            Effort::Few if self.more_to.is_some() => {
                self.more_tried += 1;
                tried > MORE_TRIED || self.more_tried > MOST_MORE_TRIED
            }
            Effort::Few => tried > FEW_TRIED || (doubt > Doubt::None && past > FEW),
            _ => self.tried > MOST_TRIED + MOST_TRIED_A_STEP * self.plan.steps.len(),
        }
    }
}

/// Whether the first step, if it comes before the second, may make the second impossible or change its
/// result.
fn conflict(first: &Planned, second: &Planned) -> bool {
    let permit = first.step.permit();
    let (a, b) = (first.step.takes(), second.step.takes());
    (permit.is_some() && permit == second.step.permit())
        || [a, b].contains(&Takes::WhateverIsFree)
        || (a == Takes::Some && b == Takes::Unseen)
        || [first, second].iter().any(|p| matches!(p.step, Step::Forget(_)))
}
