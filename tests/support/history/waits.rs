//! Who else may have been in line: what a refusal may be due to, beside that all is in use.

use super::plan::MS;
use super::{Call, Forgotten, Lease, Micros, Op};

/// The spans of the calls in line.
pub struct Waits {
    /// By start, with the latest end of all up to there and whose it is, and the second latest.
    latest: Vec<(Micros, Micros, Micros)>,
    /// When something was forgotten, and by when nothing of it matters any more.
    shut: Vec<(Micros, Micros)>,
}

/// How long who waits stays in line, and may yet be granted, when the server forgot that it was served.
const PATIENCE: Micros = 15_000_000;

impl Waits {
    pub fn of(calls: &[&Call]) -> Waits {
        let (mut first, mut second) = (0, 0);
        let mut latest = Vec::new();
        for call in calls {
            if matches!(call.op, Op::Acquire { waits: true, .. }) {
                let end = call.latest();
                (first, second) = match end {
                    end if end >= first => (end, first),
                    end => (first, end.max(second)),
                };
                latest.push((call.start, first, second));
            }
        }
        let lease = |call: &&Call| match call.op {
            Op::Acquire {
                lease: Lease::Ms(ms),
                ..
            } => ms * 1_000,
            _ => 0,
        };
        let lease = calls.iter().map(lease).max().unwrap_or(0);
        let shut = |call: &&Call| {
            let more = match call.op {
                Op::Forget(Forgotten::OneKey) => lease / 8 + MS, // how far a bound on leases may run ahead
                Op::Forget(Forgotten::TheLast) => PATIENCE,
                _ => return None,
            };
            Some((call.start, call.latest().saturating_add(lease + more)))
        };
        let shut = calls.iter().filter_map(shut).collect();
        Waits { latest, shut }
    }

    /// Whether this refusal may come of what was forgotten.
    pub fn may_be_shut(&self, call: &Call) -> bool {
        let mut shut = self.shut.iter();
        shut.any(|(from, to)| *from <= call.latest() && call.start <= *to)
    }

    /// Whether another call than this was in line in its span.
    pub fn others(&self, call: &Call) -> bool {
        let until = self
            .latest
            .partition_point(|(start, ..)| *start <= call.latest());
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
