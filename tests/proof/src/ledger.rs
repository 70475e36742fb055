//! The invariants of one semaphore, checked only by the replies and messages to its clients.

use crate::model::{End, Model, Waiter};
use std::collections::{BTreeMap, BTreeSet};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, in a word or two.
    pub rule: &'static str,
    pub text: String,
}

pub type Check = Result<(), Violation>;

pub fn broken<T>(rule: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    let text = text.into();
    Err(Violation { rule, text })
}

/// A permit, by the reply or message to its holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub permits: u32,
    pub fence: u64,
    pub ends: End,
    /// The minimum hold that was asked for.
    pub at_least_ms: u64,
}

/// A grant whose permits are in use at least until then, even if they are released before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Start {
    permits: u32,
    until: u64,
}

/// The holders, and the promises to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub holders: BTreeMap<String, Entry>,
    /// Grants with a minimum hold, by their fence.
    starts: BTreeMap<u64, Start>,
    /// The fences of permits that were forgotten, and may still be in a key: permanent ones that were lost
    /// with their key, and those that had ended when the clock stepped in doubt.
    forgotten: BTreeSet<u64>,
    /// The minimum hold that each waiter asked for last.
    asked: BTreeMap<String, u64>,
    highest_fence: u64,
    /// The server lost the number of its last fence.
    is_forgotten: bool,
    /// The latest lease end in any reply or message.
    pub latest_end: u64,
    /// The latest end that any call asked for, of a lease or a place in line.
    pub latest: u64,
    /// The keys may expire before a waiter's deadline; the waiter must ask again before.
    pub is_brief: bool,
}

impl Ledger {
    /// Holders whose lease has not ended.
    pub fn live(&self, now: u64) -> impl Iterator<Item = (&String, &Entry)> {
        let lives = move |entry: &Entry| entry.ends.is_none_or(|end| end > now);
        self.holders.iter().filter(move |(_, entry)| lives(entry))
    }

    /// Grants whose minimum hold has not ended.
    fn lasting(&self, now: u64) -> impl Iterator<Item = (&u64, &Start)> {
        self.starts.iter().filter(move |(_, start)| start.until > now)
    }

    /// Whether the minimum hold of the grant with this fence has not ended.
    pub fn is_lasting(&self, now: u64, fence: u64) -> bool {
        self.starts.get(&fence).is_some_and(|start| start.until > now)
    }

    /// The number of permits in use: those granted within their minimum hold, and those still held of the
    /// other grants.
    pub fn in_use(&self, now: u64) -> u32 {
        let others = self.live(now).filter(|(_, entry)| !self.is_lasting(now, entry.fence));
        let others = others.map(|(_, entry)| entry.permits);
        self.lasting(now).map(|(_, start)| start.permits).chain(others).sum()
    }

    /// A grant whose minimum hold has not ended although its fence is not known, if there is one.
    pub fn minimum_hold(&self, now: u64, is_known: impl Fn(u64) -> bool) -> Option<String> {
        let unknown = self.lasting(now).find(|(fence, _)| !is_known(**fence));
        unknown.map(|(fence, start)| format!("the grant with fence {fence}: {start:?}"))
    }

    /// A waiter joined the line.
    pub fn wait(&mut self, id: &str, at_least_ms: u64) {
        self.asked.insert(id.to_owned(), at_least_ms);
    }

    /// Removes a waiter that is granted now, and returns the minimum hold that it asked for.
    pub fn served(&mut self, id: &str) -> u64 {
        self.asked.remove(id).unwrap_or(0)
    }

    /// The minimum hold of this grant is no longer known.
    fn forget_start(&mut self, id: &str) {
        if let Some(entry) = self.holders.get(id) {
            self.starts.remove(&entry.fence);
        }
    }

    /// Forgets what the model does not have. The model has what the server has.
    pub fn forget_others(&mut self, model: &Model) {
        self.holders.retain(|id, _| model.holders.contains_key(id));
        self.starts.retain(|fence, _| model.knows(*fence));
    }

    /// Whether the fence of this current holder belongs to a grant that no reply or message contained before.
    pub fn is_new(&self, micros: u64, id: &str, fence: u64) -> bool {
        let is_known = self.holders.get(id).is_some_and(|entry| entry.fence == fence);
        !is_known && fence >= micros && (fence > self.highest_fence || self.is_forgotten)
    }

    /// A permanent lease whose key is lost has no end to wait for.
    pub fn forget_permanent(&mut self) {
        let permanent = self.holders.iter().filter(|(_, entry)| entry.ends.is_none());
        let permanent: Vec<(String, u64)> = permanent.map(|(id, entry)| (id.clone(), entry.fence)).collect();
        for (id, fence) in permanent {
            self.forget_start(&id);
            self.holders.remove(&id);
            self.forgotten.insert(fence);
        }
    }

    /// Forgets the holders whose lease has ended, except those that `is_known`. `doubt`: a key may still
    /// contain them.
    pub fn forget_ended(&mut self, now: u64, doubt: bool, is_known: impl Fn(&str) -> bool) {
        let forgotten = &mut self.forgotten;
        self.holders.retain(|id, entry| {
            let stays = entry.ends.is_none_or(|end| end > now) || is_known(id);
            if !stays && doubt {
                forgotten.insert(entry.fence);
            }
            stays
        });
    }

    /// A minimum hold that is over does not begin again when the clock steps back.
    pub fn forget_past(&mut self, now: u64) {
        self.starts.retain(|_, start| start.until > now);
    }

    /// Invariants 1 and 3: a grant under this limit. Fences may repeat in one case: the server forgot them
    /// and its clock is behind them.
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
            let text =
                format!("{id} was granted {} while {held} of {limit} are held: {holders:?}", entry.permits);
            return broken("limit", text);
        }
        // All grants within one minimum hold have together at most as many permits as the limit.
        let in_use = self.in_use(now);
        if in_use.saturating_add(entry.permits) > limit {
            let starts: Vec<_> = self.lasting(now).collect();
            let text = format!(
                "{id} was granted {} while {in_use} of {limit} are in use: {starts:?}",
                entry.permits
            );
            return broken("minimum hold", text);
        }
        self.forget_past(now);
        if entry.at_least_ms > 0 {
            let start = Start { permits: entry.permits, until: now + entry.at_least_ms };
            self.starts.insert(entry.fence, start);
        }
        // A permanent permit that is released early stays in use until the end of its minimum hold.
        let end = entry.ends.unwrap_or(if entry.at_least_ms > 0 { now + entry.at_least_ms } else { 0 });
        self.latest_end = self.latest_end.max(end);
        self.latest = self.latest.max(self.latest_end);
        self.holders.insert(id.to_owned(), entry);
        Ok(())
    }

    /// A confirmed refresh. Invariants 4 and 11: a lost permit does not come back. Exception: a restored key
    /// (`doubt`) may contain an older lease of the same id.
    pub fn refresh(&mut self, now: u64, id: &str, fence: u64, ends: End, doubt: bool) -> Check {
        match self.holders.get_mut(id) {
            Some(entry) if entry.fence == fence && (doubt || entry.ends.is_none_or(|end| end > now)) => {
                entry.ends = ends;
                self.latest_end = self.latest_end.max(ends.unwrap_or(0));
                Ok(())
            }
            // The client sees a fence that differs from the fence of its permit, and reports the permit as
            // lost.
            Some(entry) if doubt && fence < entry.fence => {
                self.holders.remove(id);
                Ok(())
            }
            None if doubt && self.forgotten.contains(&fence) => Ok(()), // the restored key contains it
            entry => broken("lease", format!("{id} was refreshed with fence {fence}, but holds {entry:?}")),
        }
    }

    /// A release. After a loss of keys (`doubt`) the minimum hold of the released permit is not known.
    pub fn keep(&mut self, id: &str, keep: u32, fence: u64, doubt: bool) {
        let is_other = |entry: &Entry| fence > 0 && entry.fence != fence;
        if self.holders.get(id).is_some_and(is_other) {
            return;
        }
        if doubt {
            self.forget_start(id);
        }
        if keep == 0 {
            self.holders.remove(id);
        } else if let Some(entry) = self.holders.get_mut(id) {
            entry.permits = keep;
        }
    }

    /// The fences continue after those of another ledger, although the server forgot some.
    pub fn take_fences(&mut self, other: &Ledger) {
        self.highest_fence = self.highest_fence.max(other.highest_fence);
        self.is_forgotten = true;
    }

    /// The server lost the number of its last fence.
    pub fn forget_fences(&mut self) {
        self.is_forgotten = true;
    }
}

/// Invariant 2: none of these grants overtook a live waiter. Each has its ticket; `None` if the caller was
/// not in line. `queue` contains the waiters that were in line before and still are.
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
