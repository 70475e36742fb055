//! The report of a failed check: the calls around the event that no order can pass, and the reason why each
//! possible next step fails.

use super::planned::{Plan, Planned, Wrong};
use super::step::Step;
use super::way::Stuck;
use super::{Call, Micros, Rules};
use std::fmt::Write;

/// The calls of one semaphore, sorted by their start.
pub struct Excerpt<'a> {
    pub calls: &'a [&'a Call],
}

impl Excerpt<'_> {
    fn line(&self, at: usize) -> String {
        let call = self.calls[at];
        let zero = self.calls[0].start;
        let ms = |at: Micros| (at as f64 - zero as f64) / 1_000.0;
        let end = call.end.map_or("       ...".to_owned(), |end| format!("{:10.3}", ms(end)));
        format!("{:10.3} {end} ms  {:<14} {} -> {}", ms(call.start), call.who, call.op, call.outcome)
    }

    /// The calls around one call, sorted by their start.
    fn around(&self, text: &mut String, at: usize) {
        let _ = writeln!(text, "  calls around it:");
        for near in at.saturating_sub(20)..(at + 6).min(self.calls.len()) {
            let mark = if near == at { '>' } else { ' ' };
            let _ = writeln!(text, "  {mark} {}", self.line(near));
        }
    }

    pub fn of_wrong(&self, wrong: &Wrong) -> String {
        let mut text = format!("{}\n", wrong.text);
        for at in &wrong.calls {
            let _ = writeln!(text, "    {}", self.line(*at));
        }
        self.around(&mut text, wrong.calls[0]);
        text
    }

    pub fn of_stuck(&self, plan: &Plan, rules: &Rules, stuck: &Stuck) -> String {
        let early = |lease: u32| plan.early.get(lease as usize).copied().unwrap_or(0);
        let why = |step: &Step| match stuck.way.semaphore.allows(step, rules, early) {
            Ok(()) => "possible, but without effect on the failure".to_owned(),
            Err(why) => why.to_string(),
        };
        let planned = &plan.steps[stuck.step];
        let mut text = if stuck.complete {
            "no order of the calls explains this".to_owned()
        } else {
            "too many orders to try all; every tried order fails here".to_owned()
        };
        let _ = writeln!(text, ": {}", stuck.why);
        let show = |planned: &Planned| match planned.step {
            Step::LeaseEnd { .. } => format!("(the end of a lease of) {}", self.line(planned.call)),
            Step::Unseen { .. } => format!("(unseen grant) {}", self.line(planned.call)),
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
            let _ = writeln!(text, "    {permits}: {}", self.line(plan.holder_calls[who as usize]));
        }
        let _ = writeln!(text, "  other calls under way that could have taken effect before it:");
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
