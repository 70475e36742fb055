//! What a search has found so far, and whether one way goes on through one step.

use crate::support::history::planned::Plan;
use crate::support::history::rule::Why;
use crate::support::history::way::{UnderWay, Way};
use crate::support::history::{Micros, Rules};
use std::collections::HashSet;

/// How many ways are kept where these are few, and how many are tried from one of them to come past one end.
pub const FEW: usize = 32;
pub const FEW_TRIED: usize = 2_048;

/// The same after going back, and how many are tried in all so.
pub const MORE: usize = 512;
pub const MORE_TRIED: usize = 256;
pub const MOST_MORE_TRIED: usize = 300_000;

/// How many are tried in all, and for each step, before it stays undecided.
pub const MOST_TRIED: usize = 50_000;
pub const MOST_TRIED_A_STEP: usize = 4;

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

pub struct Search<'a> {
    pub plan: &'a Plan,
    pub rules: &'a Rules,
    pub under_way: UnderWay,
    pub ways: HashSet<Way>,
    pub most: usize,
    pub tried: usize,
    pub now: Micros,
    pub effort: Effort,
    /// No way was left out so far.
    pub complete: bool,
    /// It went back, and tries more up to that many events.
    pub more_to: Option<usize>,
    pub more_tried: usize,
}

impl Search<'_> {
    pub fn new<'a>(plan: &'a Plan, rules: &'a Rules, effort: Effort) -> Search<'a> {
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
    pub fn is_look(&self, step: usize) -> bool {
        self.effort != Effort::Every && self.plan.steps[step].step.is_look()
    }

    pub fn allows(&self, way: &Way, step: usize) -> Result<(), Why> {
        let early = |lease| self.early(lease);
        way.semaphore.allows(&self.plan.steps[step].step, self.rules, early)
    }

    /// Takes a step that changes nothing, if it can be taken.
    pub fn look(&self, way: &mut Way, step: usize) -> bool {
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
    pub fn taking(&self, way: &Way, step: usize) -> Result<(Way, bool), Why> {
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
    pub fn few(&self) -> Option<usize> {
        match self.effort {
            Effort::Few if self.more_to.is_some() => Some(MORE),
            Effort::Few => Some(FEW),
            Effort::All | Effort::Every => None,
        }
    }
}
