//! Steps of calls for a granted permit: leases, releases, refreshes, and what its holder learned about it.

use super::builder::Builder;
use crate::support::history::planned::{MS, Must, NEVER, Wrong};
use crate::support::history::rule::Rule;
use crate::support::history::step::{LeaseNo, Step, Who};
use crate::support::history::{Lease, Micros, Outcome};

/// The maximum drift between the clock of the calls and the server's clock between two measurements of their
/// distance (`recorder.rs`). The system adjusts only one of them.
const DRIFT: Micros = 300;

impl Builder<'_> {
    pub fn release(&mut self, at: usize, who: Who, keep: u32) {
        let start = self.calls[at].start;
        match self.calls[at].outcome {
            // By either master.
            Outcome::Released | Outcome::Gone if self.two_masters.during(self.calls[at]) => {
                let span = (start, self.calls[at].latest());
                self.add(at, Step::Release { who, keep }, span, Must::Not);
            }
            Outcome::Released if !self.rules.repeated => self.during(at, Step::Release { who, keep }),
            // A repeated release counts as released, also if the permit was lost after the first copy was
            // sent.
            Outcome::Released | Outcome::Gone => {
                if self.rules.repeated {
                    let span = (start, self.calls[at].latest());
                    self.add(at, Step::Release { who, keep }, span, Must::Not);
                }
                self.during(at, Step::Gone { who });
            }
            Outcome::Unknown | Outcome::NeverReturned => {
                let span = (start, self.late(self.calls[at]));
                self.add(at, Step::Release { who, keep }, span, Must::Not);
            }
            _ => {}
        }
    }

    pub fn refresh(&mut self, at: usize, who: Who, lease: Lease) -> Result<(), Wrong> {
        let call = self.calls[at];
        let (reported, latest, must) = match call.outcome {
            // By either master.
            Outcome::Refreshed(reported) if self.two_masters.during(call) => {
                (reported, call.latest(), Must::Not)
            }
            Outcome::Lost if self.two_masters.during(call) => return Ok(()),
            Outcome::Refreshed(reported) => (reported, call.latest(), Must::Happen),
            // Its lease had ended by the holder's clock when the reply was taken: a process that is stopped
            // takes it late. The server may have run the call before.
            Outcome::Lost => {
                self.lost(at, who);
                (None, self.ends[who as usize].min(self.late(call)), Must::Not)
            }
            // It ran while the permit was held, or it had no effect.
            Outcome::Unknown | Outcome::NeverReturned => {
                (None, self.ends[who as usize].min(self.late(call)), Must::Not)
            }
            _ => return Ok(()),
        };
        let span = (call.start, latest.max(call.start));
        let known_end = self.early[who as usize];
        let lease = self.lease(at, who, lease, span, reported)?;
        if must == Must::Not {
            // The holder goes by the old lease, because it does not know whether the new one was given.
            let early = &mut self.plan.early[lease as usize];
            *early = known_end.min(*early);
        }
        self.early[who as usize] = self.plan.early[lease as usize];
        self.add(at, Step::Refresh { who, lease }, span, must);
        Ok(())
    }

    /// Adds a lease that was given in this span, and its end.
    pub fn lease(
        &mut self,
        at: usize,
        who: Who,
        lease: Lease,
        given: (Micros, Micros),
        reported: Option<u64>,
    ) -> Result<LeaseNo, Wrong> {
        let number = self.plan.early.len() as LeaseNo;
        let (ms, must) = match lease {
            Lease::Ms(ms) => (ms, Must::HappenIfThere),
            Lease::Renewed(ms) => (ms, Must::Not),
            Lease::Permanent => {
                self.plan.early.push(NEVER);
                self.ends[who as usize] = NEVER;
                return Ok(number);
            }
        };
        let length = ms * 1_000;
        self.plan.early.push(self.calls[at].start + length.saturating_sub(MS));
        let mut span = ((given.0 + length).saturating_sub(MS), given.1.saturating_add(length));
        if let Some(reported) = reported.filter(|_| self.rules.same_clock) {
            let reported = reported * 1_000;
            if reported < span.0 || reported > span.1 {
                let text = format!("a lease of {ms} ms that ends at {}", reported / 1_000);
                return Err(self.wrong(Rule::Lease, at, text));
            }
            span = (reported.saturating_sub(DRIFT), reported + DRIFT);
        }
        if must == Must::Not {
            span.1 = NEVER;
        }
        let end = &mut self.ends[who as usize];
        *end = span.1.max(*end);
        self.add(at, Step::LeaseEnd { who, lease: number }, span, must);
        Ok(number)
    }

    pub fn lost(&mut self, at: usize, who: Who) {
        let step = Step::Lost { who, at: self.calls[at].latest() };
        self.during(at, step);
    }
}
