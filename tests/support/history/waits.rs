//! Who else may have been in line: what a refusal may be due to, beside that all is in use.

use super::{Call, Micros, Op, Outcome, Rules};

/// The spans of the calls in line. One without an answer may stay there until the release that is made up for it.
pub struct Waits {
    /// By start, with the latest end of all up to there and whose it is, and the second latest.
    latest: Vec<(Micros, Micros, Micros)>,
}

impl Waits {
    pub fn of(calls: &[&Call], rules: &Rules) -> Waits {
        let (mut first, mut second) = (0, 0);
        let mut latest = Vec::new();
        for call in calls {
            if matches!(call.op, Op::Acquire { waits: true, .. }) {
                let end = match &call.outcome {
                    Outcome::Unknown => call.latest().saturating_add(rules.late),
                    Outcome::TimedOut(full) if !full.answered => call.latest().saturating_add(rules.late),
                    _ => call.latest(),
                };
                (first, second) = match end {
                    end if end >= first => (end, first),
                    end => (first, end.max(second)),
                };
                latest.push((call.start, first, second));
            }
        }
        Waits { latest }
    }

    /// Whether another call than this was in line in its span.
    pub fn others(&self, call: &Call) -> bool {
        let until = self.latest.partition_point(|(start, ..)| *start <= call.latest());
        let Some((_, first, second)) = until.checked_sub(1).map(|last| self.latest[last]) else {
            return false;
        };
        // Its own is one of these, if it waits.
        match matches!(call.op, Op::Acquire { waits: true, .. }) {
            true => second >= call.start,
            false => first >= call.start,
        }
    }
}
