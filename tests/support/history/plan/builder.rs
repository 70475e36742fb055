//! A plan under construction.

use super::numbers::Numbers;
use crate::support::history::planned::{Doubt, Must, Plan, Planned, Wrong};
use crate::support::history::rule::Rule;
use crate::support::history::shut::Shut;
use crate::support::history::step::{Step, Who};
use crate::support::history::two_masters::TwoMasters;
use crate::support::history::waits::Waits;
use crate::support::history::{Call, Micros, Rules};
use std::collections::HashMap;

pub struct Builder<'a> {
    pub calls: &'a [&'a Call],
    pub rules: &'a Rules,
    pub plan: Plan,
    pub numbers: Numbers,
    /// The number of each id that a call was granted.
    pub whos: HashMap<&'a str, Who>,
    /// The latest possible end of the last lease of each permit.
    pub ends: Vec<Micros>,
    /// The time from which the holder's clock may regard the last lease of each permit as ended, as far as it
    /// knows.
    pub early: Vec<Micros>,
    pub waits: Waits,
    pub shut: Shut,
    pub two_masters: TwoMasters,
    /// A release or refresh concerns a permit without a known grant. An unseen grant may then have been
    /// released or prolonged.
    pub strangers: bool,
}

impl Builder<'_> {
    /// The time until which an unanswered call may still run.
    pub fn late(&self, call: &Call) -> Micros {
        let last_sign = call.end.unwrap_or(call.start);
        last_sign.saturating_add(self.rules.late)
    }

    pub fn during(&mut self, at: usize, step: Step) {
        let call = self.calls[at];
        // A call without an end has no outcome, so it may never have taken effect.
        let must = call.end.map_or(Must::Not, |_| Must::Happen);
        self.add(at, step, (call.start, call.latest()), must);
    }

    pub fn add(&mut self, call: usize, step: Step, (from, to): (Micros, Micros), must: Must) {
        self.plan.steps.push(Planned { call, step, from: from.min(to), to, must, doubt: Doubt::None });
    }

    pub fn who(&mut self, at: usize) -> Who {
        self.plan.holder_calls.push(at);
        self.ends.push(0);
        self.early.push(0);
        (self.ends.len() - 1) as Who
    }

    pub fn wrong(&self, rule: Rule, at: usize, text: String) -> Wrong {
        Wrong { rule, calls: vec![at], text }
    }
}
