//! Promise: for random histories the checker accepts all that a correct semaphore shows, and no shortcut
//! misses an order.

use super::judge;
use crate::support::history::{Call, Full, Granted, History, Lease, Op, Outcome, Rules};
use crate::support::random::Random;

/// A simulated correct semaphore. It makes random calls with overlapping time spans; each takes effect at one
/// moment between its start and end.
struct Paper {
    random: Random,
    limit: u32,
    now: u64,
    /// The latest fence or number of a ticket.
    last: u64,
    calls: Vec<Call>,
    /// Holder, permits, end of the lease.
    holders: Vec<(String, u32, u64)>,
    /// In the order of the tickets.
    line: Vec<Waiting>,
}

struct Waiting {
    ticket: u64,
    since: u64,
    permits: u32,
    op: Op,
}

const LEASE: u64 = 30;

impl Paper {
    fn in_use(&self) -> u32 {
        self.holders.iter().map(|(_, permits, _)| permits).sum()
    }

    fn next(&self) -> u64 {
        self.now.max(self.last + 1)
    }

    fn record(&mut self, op: Op, outcome: Outcome) {
        self.record_since(self.now, op, outcome);
    }

    /// A call that the server received at this time, and that took effect now.
    fn record_since(&mut self, since: u64, op: Op, outcome: Outcome) {
        let start = since - self.random.below(8_000);
        let end = self.now + self.random.below(8_000);
        let refused = matches!(outcome, Outcome::Denied(_) | Outcome::TimedOut(_));
        let unanswered = outcome == Outcome::NeverReturned || self.random.below(12) == 0 && !refused;
        self.calls.push(Call {
            who: self.calls.len().to_string(),
            semaphore: "s".to_owned(),
            op,
            start,
            end: (!unanswered).then_some(end),
            outcome: if unanswered { Outcome::NeverReturned } else { outcome },
        });
    }

    fn grant(&mut self, permits: u32, ticket: Option<u64>) -> Outcome {
        self.last = self.next();
        let id = format!("id{}", self.last);
        self.holders.push((id.clone(), permits, (self.now / 1_000 + LEASE) * 1_000));
        Outcome::Granted(Granted { id, permits, fence: self.last, ticket, expires_at: None })
    }

    fn full(&self) -> Full {
        Full { in_use: self.in_use(), limit: self.limit, waiting: self.line.len() as u64, answered: true }
    }

    /// Serves the waiters with tickets up to this one. Returns whether any of them remains.
    fn serve(&mut self, up_to: u64) -> bool {
        while let Some(first) = self.line.first().filter(|first| first.ticket <= up_to) {
            if self.in_use() + first.permits > self.limit {
                return true;
            }
            let first = self.line.remove(0);
            let granted = self.grant(first.permits, Some(first.ticket));
            self.record_since(first.since, first.op, granted);
        }
        false
    }

    /// Requests permits, in line or not, now and then with a head start.
    fn ask(&mut self) {
        let permits = 1 + self.random.below(2) as u32;
        let waits = self.random.below(3) == 0;
        let head_start_ms = match self.random.below(8) {
            0 => 2,
            1 => 10,
            2 => 1_000,
            _ => 0,
        };
        let op = Op::Acquire { permits: Some(permits), lease: Lease::Ms(LEASE), waits, head_start_ms };
        let mut ticket = self.next() - head_start_ms * 1_000;
        let is_behind = self.serve(if head_start_ms > 0 { ticket } else { u64::MAX });
        if !is_behind && self.in_use() + permits <= self.limit {
            let granted = self.grant(permits, None);
            return self.record(op, granted);
        }
        if !waits {
            let full = self.full();
            return self.record(op, Outcome::Denied(full));
        }
        self.last = self.next();
        if head_start_ms == 0 {
            ticket = self.last;
        }
        self.line.push(Waiting { ticket, since: self.now, permits, op });
        self.line.sort_by_key(|waiting| waiting.ticket);
    }

    fn give_up(&mut self) {
        if !self.line.is_empty() {
            let which = self.random.below(self.line.len() as u64) as usize;
            let gone = self.line.remove(which);
            let full = self.full();
            self.record_since(gone.since, gone.op, Outcome::TimedOut(full));
        }
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
        let mut paper = Paper {
            random: Random::new(seed),
            limit: 3,
            now: 2_000_000,
            last: 0,
            calls: Vec::new(),
            holders: Vec::new(),
            line: Vec::new(),
        };
        while paper.calls.len() < calls {
            paper.now += 1 + paper.random.below(4_000);
            let now = paper.now;
            paper.holders.retain(|(.., ends)| *ends > now);
            match paper.random.below(9) {
                0..4 => paper.ask(),
                4..7 => paper.give_back(),
                7 => paper.refresh(),
                _ => {
                    paper.serve(u64::MAX);
                    paper.give_up();
                }
            }
            // Otherwise the next call serves the line, before its own caller.
            if paper.random.below(2) == 0 {
                paper.serve(u64::MAX);
            }
        }
        for waiting in std::mem::take(&mut paper.line) {
            paper.record_since(waiting.since, waiting.op, Outcome::NeverReturned);
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
            if let Op::Acquire { permits, head_start_ms, .. } = &mut call.op {
                match *head_start_ms {
                    0 => (granted.permits, *permits) = (3, Some(3)),
                    _ => *head_start_ms = 0,
                }
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
