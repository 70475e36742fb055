//! The consequences of a data loss on the server.

use super::planned::NEVER;
use super::{Call, Forgotten, Lease, Micros, Op};

/// The maximum time that a waiter stays in line, and may be granted, after the server lost its grant.
const PATIENCE: Micros = 15_000_000;

/// The times of data losses, from their recorded calls.
pub struct Shut {
    /// The times in which a loss can cause a refusal.
    refusing: Vec<(Micros, Micros)>,
    /// The start and end times of losses of all data.
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
                Op::Forget(Forgotten::OneKey) => lease / 8 + 1_000, // the excess of the upper bound on leases
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

    /// Whether a loss can explain this refusal.
    pub fn may_refuse(&self, call: &Call) -> bool {
        let mut refusing = self.refusing.iter();
        refusing.any(|(from, to)| *from <= call.latest() && call.start <= *to)
    }

    /// The time by which the server has lost all effects of this call.
    pub fn forgets(&self, call: &Call) -> Micros {
        let by = self.empty.iter().map(|(_, by)| *by);
        by.filter(|by| *by >= call.latest()).min().unwrap_or(NEVER)
    }

    /// The first loss of all data while this call was under way.
    pub fn empty_in(&self, call: &Call) -> Micros {
        let from = self.empty.iter().map(|(from, _)| *from);
        let in_call = from.filter(|from| (call.start..call.latest()).contains(from));
        in_call.min().unwrap_or(NEVER)
    }
}
