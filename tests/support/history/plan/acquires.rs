//! Steps of acquire calls: grants, refusals, and unseen grants.

use super::builder::Builder;
use super::numbers::SERVED_AT_ONCE;
use crate::support::history::planned::{Doubt, MS, Must, NEVER, Wrong};
use crate::support::history::rule::Rule;
use crate::support::history::step::Step;
use crate::support::history::{Call, Full, Granted, Lease, Micros, Outcome};

/// The maximum duration of the last call of a cancelled wait.
const LAST_WORD: Micros = 40 * MS;

impl Builder<'_> {
    pub fn acquire(&mut self, at: usize, want: Option<u32>, lease: Lease) -> Result<(), Wrong> {
        let calls = self.calls;
        let call = calls[at];
        match &call.outcome {
            Outcome::Granted(granted) => self.granted(at, granted, want, lease)?,
            Outcome::Denied(full) => self.refused(at, want, full),
            Outcome::TimedOut(full) if full.answered => self.refused(at, want, full),
            Outcome::Failed => return Ok(()),
            _ => {}
        }
        // An unseen grant: of a call without a reply, or one that ended or was lost by the server before the
        // reply arrived.
        let (start, end) = (call.start, call.latest());
        let least = least_end(call, lease).min(self.shut.empty_in(call));
        let late = self.late(call).min(self.shut.forgets(call));
        let over = match lease {
            Lease::Ms(ms) if !self.strangers => late.saturating_add(ms * 1_000),
            _ => NEVER,
        };
        match &call.outcome {
            Outcome::NeverReturned if !self.strangers => {
                self.unseen(at, want, (start, late), (least, over), Doubt::AfterCall);
            }
            Outcome::NeverReturned | Outcome::Unknown => {
                self.unseen(at, want, (start, late), (start, over), Doubt::AfterCall);
            }
            Outcome::TimedOut(full) if !full.answered => {
                self.unseen(at, want, (start, late), (start, over), Doubt::AfterCall);
            }
            // The permit is released before the call returns, unless the server does not reply within the
            // time for that.
            Outcome::Cancelled => {
                self.unseen(at, want, (start, end), (start, end), Doubt::InCall);
                if self.rules.repeated || end - start >= LAST_WORD {
                    self.unseen(at, want, (start, late), (start, over), Doubt::AfterCall);
                }
            }
            _ if least < end => self.unseen(at, want, (start, end), (least, end), Doubt::InCall),
            _ => {}
        }
        Ok(())
    }

    fn granted(
        &mut self,
        at: usize,
        granted: &Granted,
        want: Option<u32>,
        lease: Lease,
    ) -> Result<(), Wrong> {
        if want.is_some_and(|want| want != granted.permits) {
            let text = format!("{} permits granted, {want:?} requested", granted.permits);
            return Err(self.wrong(Rule::Limit, at, text));
        }
        let who = self.whos[granted.id.as_str()];
        let number = self.numbers.rank(granted.fence);
        let permits = granted.permits;
        let span = self.span_of(at, granted.fence, "fence")?;
        let asked = lease;
        let lease = self.lease(at, who, asked, span, granted.expires_at)?;
        self.early[who as usize] = self.plan.early[lease as usize];
        let step = match granted.ticket {
            None => {
                let place = match self.calls[at].head_start() {
                    0 => granted.fence,
                    // The call computes its place before it serves the waiters ahead.
                    head_start => granted.fence.saturating_sub(head_start + SERVED_AT_ONCE),
                };
                Step::Enter { who, permits, all: want.is_none(), lease, number, place }
            }
            Some(ticket) => {
                let place = self.numbers.of_place(at);
                if place > granted.fence {
                    let text = format!("its fence is not above the number {place} of its ticket {ticket}");
                    return Err(self.wrong(Rule::Fence, at, text));
                }
                let joined = self.span_of(at, place, "ticket, without the head start,")?;
                // If a grant's lease ended before the caller received it, its place in line ended too.
                let stays = self.calls[at].latest() <= least_end(self.calls[at], asked)
                    && !self.two_masters.at(joined);
                let step = Step::Join { who, number: self.numbers.rank(place), ticket, stays };
                self.add(at, step, joined, Must::Happen);
                Step::Grant { who, permits, lease, number }
            }
        };
        if self.two_masters.at(span) {
            self.add(at, Step::Astray { who }, span, Must::Not);
        }
        self.add(at, step, span, Must::Happen);
        Ok(())
    }

    /// The span in which a number was given. It is the server's time in microseconds, or slightly more.
    fn span_of(&self, at: usize, number: u64, what: &str) -> Result<(Micros, Micros), Wrong> {
        let (start, end) = (self.calls[at].start, self.calls[at].latest());
        if !self.rules.same_clock {
            return Ok((start, end));
        }
        if number + MS < start || number > end.saturating_add(MS) {
            let text = format!("its {what} {number} is not the server's time during the call");
            return Err(self.wrong(Rule::Fence, at, text));
        }
        Ok((number.saturating_sub(MS).clamp(start, end), number.clamp(start, end)))
    }

    fn refused(&mut self, at: usize, want: Option<u32>, full: &Full) {
        let call = self.calls[at];
        if self.shut.may_refuse(call) || self.two_masters.during(call) {
            return;
        }
        let step = Step::Refused {
            want: want.unwrap_or(1),
            reported_in_use: full.answered.then_some(full.in_use),
            others: full.waiting > 0 && self.waits.others(call),
        };
        self.during(at, step);
    }

    /// An unseen grant may have begun and ended in these spans.
    fn unseen(
        &mut self,
        at: usize,
        want: Option<u32>,
        begun: (Micros, Micros),
        over: (Micros, Micros),
        doubt: Doubt,
    ) {
        let who = self.who(at);
        let permits = want.unwrap_or(0);
        self.add(at, Step::Unseen { who, permits }, begun, Must::Not);
        self.add(at, Step::UnseenEnd { who }, over, Must::HappenIfThere);
        let begin = self.plan.steps.len() - 2;
        self.plan.steps[begin].doubt = doubt;
    }
}

/// The earliest end of a lease that was given during this call.
fn least_end(call: &Call, lease: Lease) -> Micros {
    match lease {
        Lease::Ms(ms) | Lease::Renewed(ms) => call.start + (ms * 1_000).saturating_sub(MS),
        Lease::Permanent => NEVER,
    }
}
