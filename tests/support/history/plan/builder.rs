//! A plan that is being made, and how a step is added to it.

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
    pub numbers: HashMap<u64, u32>,
    /// Of each id that a call was granted.
    pub whos: HashMap<&'a str, Who>,
    /// When the last lease of each has ended at the latest.
    pub ends: Vec<Micros>,
    pub waits: Waits,
    pub shut: Shut,
    pub two_masters: TwoMasters,
    /// Some release or refresh is of a permit that no call is known to have been granted: by then an unseen grant may have
    /// been given back, or live on.
    pub strangers: bool,
}

impl Builder<'_> {
    /// Until when a call without an answer may still be carried out.
    pub fn late(&self, call: &Call) -> Micros {
        let last_sign = call.end.unwrap_or(call.start);
        last_sign.saturating_add(self.rules.late)
    }

    pub fn during(&mut self, at: usize, step: Step) {
        let call = self.calls[at];
        // Without an end nobody was told anything, so it may also not have happened.
        let must = call.end.map_or(Must::Not, |_| Must::Happen);
        self.add(at, step, (call.start, call.latest()), must);
    }

    pub fn add(&mut self, call: usize, step: Step, (from, to): (Micros, Micros), must: Must) {
        self.plan.steps.push(Planned { call, step, from: from.min(to), to, must, doubt: Doubt::None });
    }

    pub fn who(&mut self, at: usize) -> Who {
        self.plan.holder_calls.push(at);
        self.ends.push(0);
        (self.ends.len() - 1) as Who
    }

    pub fn wrong(&self, rule: Rule, at: usize, text: String) -> Wrong {
        Wrong { rule, calls: vec![at], text }
    }
}
