//! What follows from something that the server forgot.

use super::planned::NEVER;
use super::{Call, Forgotten, Lease, Micros, Op};

/// How long who waits stays in line, and may yet be granted, when the server forgot that it was served.
const PATIENCE: Micros = 15_000_000;

/// When something was forgotten, with the calls that tell it.
pub struct Shut {
    /// From when, and until when, a refusal may come of it.
    refusing: Vec<(Micros, Micros)>,
    /// From when, and by when, everything was forgotten.
    empty: Vec<(Micros, Micros)>,
}

impl Shut {
    pub fn of(calls: &[&Call]) -> Shut {
        let lease = |call: &&Call| match call.op {
            Op::Acquire { lease: Lease::Ms(ms), .. } => ms * 1_000,
            _ => 0,
        };
        let lease = calls.iter().map(lease).max().unwrap_or(0);
        let refusing = |call: &&Call| {
            let more = match call.op {
                Op::Forget(Forgotten::OneKey) => lease / 8 + 1_000, // how far the bound on leases runs ahead
                Op::Forget(Forgotten::TheLast) => PATIENCE,
                _ => return None,
            };
            Some((call.start, call.latest().saturating_add(lease + more)))
        };
        let is_empty = |call: &&&Call| call.op == Op::Forget(Forgotten::Everything);
        Shut {
            refusing: calls.iter().filter_map(refusing).collect(),
            empty: calls.iter().filter(is_empty).map(|call| (call.start, call.latest())).collect(),
        }
    }

    /// Whether this refusal may come of what was forgotten.
    pub fn may_refuse(&self, call: &Call) -> bool {
        let mut refusing = self.refusing.iter();
        refusing.any(|(from, to)| *from <= call.latest() && call.start <= *to)
    }

    /// When whatever this call left behind is forgotten.
    pub fn forgets(&self, call: &Call) -> Micros {
        let by = self.empty.iter().map(|(_, by)| *by);
        by.filter(|by| *by >= call.latest()).min().unwrap_or(NEVER)
    }

    /// When everything was forgotten first while this call was under way.
    pub fn empty_in(&self, call: &Call) -> Micros {
        let from = self.empty.iter().map(|(from, _)| *from);
        let in_call = from.filter(|from| (call.start..call.latest()).contains(from));
        in_call.min().unwrap_or(NEVER)
    }
}
