//! The invariants of one semaphore, by what its clients were told alone.

use crate::model::{End, Waiter};
use std::collections::BTreeMap;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, in a word or two.
    pub rule: &'static str,
    pub text: String,
}

pub type Check = Result<(), Violation>;

pub fn broken<T>(rule: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    let text = text.into();
    Err(Violation { rule, text })
}

/// A permit as its holder was told of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub permits: u32,
    pub fence: u64,
    pub ends: End,
}

/// Who holds, and what was promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub holders: BTreeMap<String, Entry>,
    highest_fence: u64,
    /// The server lost the number of its last fence.
    is_forgotten: bool,
    /// The latest end of a lease that was ever told.
    pub latest_end: u64,
    /// The latest that any call asked for, for a lease or a place in line.
    pub latest: u64,
    /// The keys may live for less than somebody waits, who has to ask again before.
    pub is_brief: bool,
}

impl Ledger {
    /// Those whose lease has not ended.
    pub fn live(&self, now: u64) -> impl Iterator<Item = (&String, &Entry)> {
        let lives = move |entry: &Entry| entry.ends.is_none_or(|end| end > now);
        self.holders.iter().filter(move |(_, entry)| lives(entry))
    }

    /// Invariants 1 and 3: a grant, under this limit. Fences may come again in one case: the server forgot them, and its clock
    /// is behind them.
    pub fn grant(&mut self, micros: u64, id: &str, entry: Entry, limit: u32) -> Check {
        let now = micros / 1_000;
        let may_repeat = self.is_forgotten && micros <= self.highest_fence;
        if entry.fence <= self.highest_fence && !may_repeat {
            let text = format!("{id} was granted fence {}, after {}", entry.fence, self.highest_fence);
            return broken("fence", text);
        }
        (self.highest_fence, self.is_forgotten) = (entry.fence, false);
        if self.live(now).any(|(other, _)| other == id) {
            return broken("same id", format!("{id} was granted while it holds"));
        }
        let held: u32 = self.live(now).map(|(_, entry)| entry.permits).sum();
        if held + entry.permits > limit {
            let holders: Vec<_> = self.live(now).collect();
            let text = format!("{id} was granted {} while {held} of {limit} are held: {holders:?}", entry.permits);
            return broken("limit", text);
        }
        self.latest_end = self.latest_end.max(entry.ends.unwrap_or(0));
        self.latest = self.latest.max(self.latest_end);
        self.holders.insert(id.to_owned(), entry);
        Ok(())
    }

    /// A refresh that was confirmed: invariant 4 and 11, what is lost does not come back; but a key that was put back (`doubt`)
    /// may know an older lease of the same id.
    pub fn refresh(&mut self, now: u64, id: &str, fence: u64, ends: End, doubt: bool) -> Check {
        match self.holders.get_mut(id) {
            Some(entry) if entry.fence == fence && (doubt || entry.ends.is_none_or(|end| end > now)) => {
                entry.ends = ends;
                self.latest_end = self.latest_end.max(ends.unwrap_or(0));
                Ok(())
            }
            // Its client sees a fence that is not its own, and has lost the permit.
            Some(entry) if doubt && fence < entry.fence => {
                self.holders.remove(id);
                Ok(())
            }
            entry => broken("lease", format!("{id} was refreshed with fence {fence}, but holds {entry:?}")),
        }
    }

    pub fn keep(&mut self, id: &str, keep: u32, fence: u64) {
        let is_other = |entry: &Entry| fence > 0 && entry.fence != fence;
        if self.holders.get(id).is_some_and(is_other) {
            return;
        }
        if keep == 0 {
            self.holders.remove(id);
        } else if let Some(entry) = self.holders.get_mut(id) {
            entry.permits = keep;
        }
    }

    /// Fences go on from those that another ledger knows, though the server forgot some.
    pub fn take_fences(&mut self, other: &Ledger) {
        self.highest_fence = self.highest_fence.max(other.highest_fence);
        self.is_forgotten = true;
    }

    /// The server lost the number of its last fence.
    pub fn forget_fences(&mut self) {
        self.is_forgotten = true;
    }
}

/// Invariant 2: of these grants by ticket (`None`: to a caller that did not stand in line) none overtook a live waiter.
/// `queue` is who stood in line before, and still does.
pub fn check_order(granted: &[(String, Option<u64>)], queue: &[&Waiter]) -> Check {
    for (id, ticket) in granted {
        for waiter in queue {
            if ticket.is_none_or(|ticket| waiter.ticket < ticket) {
                let text = format!("{id} was granted before {} with ticket {}", waiter.id, waiter.ticket);
                return broken("order", text);
            }
        }
    }
    Ok(())
}
