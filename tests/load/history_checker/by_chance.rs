//! Promise: for random histories the checker accepts all that a correct semaphore shows, and no shortcut misses an
//! order.

use super::judge;
use crate::support::history::{Call, Full, Granted, History, Lease, Op, Outcome, Rules};
use crate::support::random::Random;

/// A simulated correct semaphore. It makes random calls with overlapping time spans; each takes effect at one moment
/// between its start and end.
struct Paper {
    random: Random,
    limit: u32,
    now: u64,
    calls: Vec<Call>,
    /// Holder, permits, end of the lease.
    holders: Vec<(String, u32, u64)>,
}

const LEASE: u64 = 30;

impl Paper {
    fn in_use(&self) -> u32 {
        self.holders.iter().map(|(_, permits, _)| permits).sum()
    }

    fn record(&mut self, op: Op, outcome: Outcome) {
        let start = self.now - self.random.below(8_000);
        let end = self.now + self.random.below(8_000);
        let unanswered = self.random.below(12) == 0 && !matches!(outcome, Outcome::Denied(_));
        self.calls.push(Call {
            who: self.calls.len().to_string(),
            semaphore: "s".to_owned(),
            op,
            start,
            end: (!unanswered).then_some(end),
            outcome: if unanswered { Outcome::NeverReturned } else { outcome },
        });
    }

    fn ask(&mut self) {
        let permits = 1 + self.random.below(2) as u32;
        let op = Op::Acquire { permits: Some(permits), lease: Lease::Ms(LEASE), waits: false, head_start_ms: 0 };
        let in_use = self.in_use();
        if in_use + permits > self.limit {
            let full = Full { in_use, limit: self.limit, waiting: 0, answered: true };
            return self.record(op, Outcome::Denied(full));
        }
        let id = format!("id{}", self.calls.len());
        let ends = (self.now / 1_000 + LEASE) * 1_000;
        self.holders.push((id.clone(), permits, ends));
        let granted = Granted { id, permits, fence: self.now, ticket: None, expires_at: None };
        self.record(op, Outcome::Granted(granted));
    }

    fn give_back(&mut self) {
        if !self.holders.is_empty() {
            let which = self.random.below(self.holders.len() as u64) as usize;
            let (id, ..) = self.holders.remove(which);
            self.record(Op::Release { id, keep: 0 }, Outcome::Released);
        }
    }

    fn refresh(&mut self) {
        let now = self.now;
        if let Some((id, _, ends)) = self.holders.first_mut() {
            *ends = (now / 1_000 + LEASE) * 1_000;
            let id = id.clone();
            let lease = Lease::Ms(LEASE);
            self.record(Op::Refresh { id, lease }, Outcome::Refreshed(None));
        }
    }

    fn history(seed: u64, calls: usize) -> History {
        let mut paper =
            Paper { random: Random::new(seed), limit: 3, now: 1_000_000, calls: Vec::new(), holders: Vec::new() };
        while paper.calls.len() < calls {
            paper.now += 1 + paper.random.below(4_000);
            let now = paper.now;
            paper.holders.retain(|(.., ends)| *ends > now);
            match paper.random.below(8) {
                0..4 => paper.ask(),
                4..7 => paper.give_back(),
                _ => paper.refresh(),
            }
        }
        History { calls: paper.calls }
    }
}

/// Falsifies one reply.
fn falsify(history: &mut History, random: &mut Random) {
    let count = history.calls.len() as u64;
    let other = random.below(count) as usize;
    let call = &mut history.calls[random.below(count) as usize];
    match &mut call.outcome {
        Outcome::Denied(full) => full.in_use = 3 - full.in_use % 3,
        Outcome::Released => call.outcome = Outcome::Gone,
        Outcome::Refreshed(_) => call.outcome = Outcome::Lost,
        Outcome::Granted(granted) => {
            granted.permits = 3;
            if let Op::Acquire { permits, .. } = &mut call.op {
                *permits = Some(3);
            }
        }
        _ => drop(history.calls.remove(other)),
    }
}

#[test]
fn random_histories_of_a_correct_semaphore_are_explained() {
    for seed in 0..40 {
        let rules = Rules { same_clock: seed % 2 == 0, ..Rules::new(3) };
        Paper::history(seed, 100).assert(&rules);
    }
}

#[test]
fn no_shortcut_misses_an_order() {
    let mut refused = 0;
    for seed in 0..300 {
        let rules = Rules { same_clock: seed % 2 == 0, ..Rules::new(3) };
        let mut history = Paper::history(seed, 9);
        falsify(&mut history, &mut Random::new(seed + 1_000));
        refused += u32::from(judge(&history, &rules).is_err());
    }
    assert!((50..250).contains(&refused), "{refused} of 300");
}
