//! Times with two servers that act as master: either may have answered.

use super::{Call, Micros, Op};

/// Start and end times.
pub struct TwoMasters(Vec<(Micros, Micros)>);

impl TwoMasters {
    pub fn of(calls: &[&Call]) -> TwoMasters {
        let two = calls.iter().filter(|call| call.op == Op::TwoMasters);
        TwoMasters(two.map(|call| (call.start, call.latest())).collect())
    }

    /// Whether there may have been two masters in this span.
    pub fn at(&self, (from, to): (Micros, Micros)) -> bool {
        let mut spans = self.0.iter();
        spans.any(|(start, end)| *start <= to && from <= *end)
    }

    pub fn during(&self, call: &Call) -> bool {
        self.at((call.start, call.latest()))
    }
}
