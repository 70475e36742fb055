//! The moment of a situation, from which times are counted, and the rank of each ticket.

use std::collections::BTreeSet;

/// Later than any time; scripts and clients treat it as never.
pub(super) const NEVER: u64 = 9_000_000_000_000_000;

/// A time relative to the moment.
pub(super) fn from(moment: u64, at: u64) -> u64 {
    if at < NEVER { at.saturating_sub(moment) } else { NEVER }
}

pub(super) struct Moment {
    pub(super) mono: u64,
    pub(super) now: u64,
    /// The longest delay that has an effect.
    pub(super) most: u64,
    pub(super) tickets: BTreeSet<u64>,
}

impl Moment {
    pub(super) fn rank(&self, ticket: u64) -> u64 {
        self.tickets.range(..=ticket).count() as u64
    }
}
