//! Other waiters: a possible reason for a refusal in addition to the permits in use.

use super::planned::MS;
use super::{Call, Micros, Op, Outcome, Rules};

/// The calls in line. An unanswered call may stay in line until the release that the library sends for it.
pub struct Waits {
    /// From the start of each call.
    by_start: Ends,
    /// From the earliest time that the ticket of each call can contain.
    by_ticket: Option<Ends>,
}

/// Sorted by their starts: the start of a span, the latest end of all spans up to there, and the second
/// latest end.
struct Ends(Vec<(Micros, Micros, Micros)>);

impl Ends {
    fn of(mut spans: Vec<(Micros, Micros)>) -> Ends {
        spans.sort_unstable();
        let (mut first, mut second) = (0, 0);
        let latest = spans.into_iter().map(|(start, end)| {
            (first, second) = match end {
                end if end >= first => (end, first),
                end => (first, end.max(second)),
            };
            (start, first, second)
        });
        Ends(latest.collect())
    }

    /// The latest and the second latest end of the spans that start by this time.
    fn of_starts_by(&self, time: Micros) -> Option<(Micros, Micros)> {
        let until = self.0.partition_point(|(start, ..)| *start <= time);
        let (_, first, second) = self.0[until.checked_sub(1)?];
        Some((first, second))
    }
}

impl Waits {
    pub fn of(calls: &[&Call], rules: &Rules) -> Waits {
        let spans = |start: fn(&Call) -> Micros| {
            let in_line = calls.iter().filter(|call| matches!(call.op, Op::Acquire { waits: true, .. }));
            let span = in_line.map(|call| {
                let end = match &call.outcome {
                    Outcome::Unknown => call.latest().saturating_add(rules.late),
                    Outcome::TimedOut(full) if !full.answered => call.latest().saturating_add(rules.late),
                    _ => call.latest(),
                };
                (start(call), end)
            });
            Ends::of(span.collect())
        };
        Waits {
            by_start: spans(|call| call.start),
            // With another clock a ticket does not show when its call came.
            by_ticket: rules
                .same_clock
                .then(|| spans(|call| call.start.saturating_sub(call.head_start() + MS))),
        }
    }

    /// Whether another call may have been in line before this call, while it was under way.
    pub fn others(&self, call: &Call) -> bool {
        let ends = match &self.by_ticket {
            Some(by_ticket) if call.head_start() > 0 => {
                by_ticket.of_starts_by(call.latest().saturating_add(MS).saturating_sub(call.head_start()))
            }
            _ => self.by_start.of_starts_by(call.latest()),
        };
        let Some((first, second)) = ends else { return false };
        // If this call waits, its own span is one of them.
        if matches!(call.op, Op::Acquire { waits: true, .. }) {
            second >= call.start
        } else {
            first >= call.start
        }
    }
}
