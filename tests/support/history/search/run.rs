//! The search from the first span to the last, in the order of time.

use super::state::{Effort, MOST_MORE_TRIED, Search};
use crate::support::history::Micros;
use crate::support::history::back::{Back, Place};
use crate::support::history::planned::{Doubt, NEVER};
use crate::support::history::rule::Why;
use crate::support::history::step::Step;
use crate::support::history::way::{Stuck, UnderWay, Way};
use std::collections::HashSet;

impl Search<'_> {
    pub fn run(mut self) -> Result<usize, Box<Stuck>> {
        let mut events: Vec<(Micros, bool, usize)> = Vec::new();
        for (step, planned) in self.plan.steps.iter().enumerate() {
            events.push((planned.from, false, step)); // at the same instant, steps begin before others end
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
            let ended = if is_end {
                self.end(step)
            } else {
                self.begin(step);
                Ok(())
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

    /// Goes back to an earlier place, to try more ways from there. Returns the number of past events. `None`
    /// if that cannot help.
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

    /// The list of a step while it is under way.
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

    /// The end of a span: every way must have taken the step, unless the step is optional.
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

    /// Keeps the ways with the fewest unseen grants. Of several that differ only in these, one is kept.
    fn thin(&mut self, kept_at_most: usize) {
        let is_unseen = |step: &usize| {
            let step = &self.plan.steps[*step].step;
            matches!(step, Step::Unseen { .. } | Step::UnseenEnd { .. })
        };
        let mut ways: Vec<(usize, Way)> = self
            .ways
            .drain()
            .map(|way| (way.taken.iter().filter(|step| is_unseen(step)).count(), way))
            .collect();
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

    /// No way passes the end of this step. The report shows a way in which the step fails for another reason
    /// than its number's turn. Of these it shows one with the most permits in use.
    fn stuck(&mut self, step: usize) -> Stuck {
        let rank = |way: &&Way| {
            let is_its_turn = !matches!(self.allows(way, step), Err(Why::NotNext));
            (is_its_turn, way.semaphore.in_use())
        };
        let best = self.ways.iter().max_by_key(rank);
        let way = best.cloned().unwrap_or_default();
        // If the step waits for a smaller number under way, the report shows the step with that number.
        let is_next =
            |other: &&usize| self.plan.steps[**other].step.number() == Some(way.semaphore.numbers());
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
