//! Other waiters: a possible reason for a refusal in addition to the permits in use.

use super::{Call, Micros, Op, Outcome, Rules};

/// The spans of the calls in line. An unanswered call may stay in line until the release that the library sends for it.
pub struct Waits {
    /// Sorted by start: the start, the latest end of all calls up to there, and the second latest end.
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

    /// Whether another call was in line during this call.
    pub fn others(&self, call: &Call) -> bool {
        let until = self.latest.partition_point(|(start, ..)| *start <= call.latest());
        let Some((_, first, second)) = until.checked_sub(1).map(|last| self.latest[last]) else {
            return false;
        };
        // If this call waits, its own span is one of them.
        if matches!(call.op, Op::Acquire { waits: true, .. }) { second >= call.start } else { first >= call.start }
    }
}
