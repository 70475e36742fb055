//! The state of a search, and the extension of one way by one step.

use crate::support::history::planned::Plan;
use crate::support::history::rule::Why;
use crate::support::history::way::{UnderWay, Way};
use crate::support::history::{Micros, Rules};
use std::collections::HashSet;

/// In a search with few ways: the number of kept ways, and the number tried from one way to pass one end.
pub const FEW: usize = 32;
pub const FEW_TRIED: usize = 2_048;

/// The same after going back, and the total number tried after going back.
pub const MORE: usize = 512;
pub const MORE_TRIED: usize = 256;
pub const MOST_MORE_TRIED: usize = 300_000;

/// The total number tried, and the addition for each step, before the result is `undecided`.
pub const MOST_TRIED: usize = 50_000;
pub const MOST_TRIED_A_STEP: usize = 4;

/// How thoroughly to search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Few ways are kept, and unseen grants are tried only if nothing else continues. If one way reaches the
    /// end, there is an order. If none does, there is no result yet.
    Few,
    /// All ways are kept.
    All,
    /// No shortcuts either.
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
    /// No way was discarded so far.
    pub complete: bool,
    /// The search went back, and tries more ways up to this number of events.
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

    /// Whether a step is taken as soon as possible.
    pub fn is_look(&self, step: usize) -> bool {
        self.effort != Effort::Every && self.plan.steps[step].step.is_look()
    }

    pub fn allows(&self, way: &Way, step: usize) -> Result<(), Why> {
        let early = |lease| self.early(lease);
        way.semaphore.allows(&self.plan.steps[step].step, self.rules, early)
    }

    /// Takes a step that changes nothing, if possible.
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

    /// The way extended by one step, and whether that explains a read-only step; or the reason why it is
    /// impossible.
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

    /// The number of kept ways, in a search with few ways.
    pub fn few(&self) -> Option<usize> {
        match self.effort {
            Effort::Few if self.more_to.is_some() => Some(MORE),
            Effort::Few => Some(FEW),
            Effort::All | Effort::Every => None,
        }
    }
}
