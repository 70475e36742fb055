//! Converts calls into steps, each with the span in which it took effect. A wait in line has two steps: its
//! ticket and its grant. A lease adds another step: its end.

mod acquires;
mod builder;
mod leases;
mod numbers;

use super::planned::{Must, Plan, Wrong};
use super::shut::Shut;
use super::step::Step;
use super::two_masters::TwoMasters;
use super::waits::Waits;
use super::{Call, Op, Outcome, Rules};
use builder::Builder;
use numbers::Numbers;
use std::collections::HashMap;

/// The calls are sorted by their start.
pub fn plan(calls: &[&Call], rules: &Rules) -> Result<Plan, Wrong> {
    let mut builder = Builder {
        calls,
        rules,
        plan: Plan::default(),
        numbers: Numbers::of(calls, rules)?,
        whos: HashMap::new(),
        ends: Vec::new(),
        early: Vec::new(),
        waits: Waits::of(calls, rules),
        shut: Shut::of(calls),
        two_masters: TwoMasters::of(calls),
        strangers: false,
    };
    for (at, call) in calls.iter().enumerate() {
        if let Outcome::Granted(granted) = &call.outcome {
            let who = builder.who(at);
            builder.whos.insert(&granted.id, who);
        }
    }
    builder.strangers = calls.iter().any(|call| match &call.op {
        Op::Release { id, .. } | Op::Refresh { id, .. } => !builder.whos.contains_key(id.as_str()),
        _ => false,
    });
    for at in 0..calls.len() {
        builder.call(at)?;
    }
    builder.bound_releases();
    Ok(builder.plan)
}

impl Builder<'_> {
    fn call(&mut self, at: usize) -> Result<(), Wrong> {
        let calls = self.calls;
        let call = calls[at];
        match &call.op {
            Op::Acquire { permits, lease, .. } => self.acquire(at, *permits, *lease),
            Op::Release { id, keep } => {
                if let Some(who) = self.whos.get(id.as_str()) {
                    self.release(at, *who, *keep);
                }
                Ok(())
            }
            Op::Refresh { id, lease } => match self.whos.get(id.as_str()) {
                Some(who) => self.refresh(at, *who, *lease),
                None => Ok(()),
            },
            Op::Look { id } => {
                if let Some(who) = self.whos.get(id.as_str()).copied() {
                    match call.outcome {
                        Outcome::Held => self.during(at, Step::Held { who }),
                        Outcome::Lost => self.lost(at, who),
                        _ => {}
                    }
                }
                Ok(())
            }
            Op::Forget(what) => {
                self.during(at, Step::Forget(*what));
                Ok(())
            }
            Op::TwoMasters => Ok(()),
        }
    }

    /// A release that may run late takes effect before the end of the permit's last lease, or has no effect.
    fn bound_releases(&mut self) {
        for planned in &mut self.plan.steps {
            if let Step::Release { who, .. } = planned.step
                && planned.must == Must::Not
            {
                let ends = self.ends[who as usize].max(planned.from);
                planned.to = planned.to.min(ends);
            }
        }
    }
}
