//! From calls to steps: each step with the span in which it happened. A wait in line is two steps, its ticket and its grant;
//! a lease is one more, its end.

use super::model::{LeaseNo, Rule, Step, Who};
use super::shut::Shut;
use super::two_masters::TwoMasters;
use super::waits::Waits;
use super::{Call, Full, Granted, Lease, Micros, Op, Outcome, Rules};
use std::collections::HashMap;

/// Has no end.
pub const NEVER: Micros = Micros::MAX;

/// The server's rounding to whole ms, and what numbers given in the same microsecond add to a fence.
const MS: Micros = 1_000;

/// How far the clock of the calls and the server's may drift apart in a history: one of them is slewed, the other is not.
const DRIFT: Micros = 300;

/// How long the last call of a wait that is given up may take.
const LAST_WORD: Micros = 40 * MS;

/// Whether a step has to be taken by the end of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    Happen,
    /// If what it ends is still there.
    HappenIfThere,
    /// It may also never happen.
    Not,
}

/// A step and its span.
#[derive(Clone, Debug)]
pub struct Planned {
    pub call: usize,
    pub step: Step,
    pub from: Micros,
    pub to: Micros,
    pub must: Must,
    pub doubt: Doubt,
}

/// How seldom a step is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    None,
    /// A grant that its caller did not hear of, and that was over when the call returned.
    InCall,
    /// One that outlived the call.
    AfterCall,
}

/// All of one semaphore.
#[derive(Default)]
pub struct Plan {
    pub steps: Vec<Planned>,
    /// From when on the holder's clock may say that the lease is over.
    pub early: Vec<Micros>,
    /// The call that was granted to each.
    pub holder_calls: Vec<usize>,
}

/// A call that shows by itself that a promise is broken.
pub struct Wrong {
    pub rule: Rule,
    pub calls: Vec<usize>,
    pub text: String,
}

/// The calls are sorted by their start.
pub fn plan(calls: &[&Call], rules: &Rules) -> Result<Plan, Wrong> {
    let mut builder = Builder {
        calls,
        rules,
        plan: Plan::default(),
        numbers: numbers(calls)?,
        whos: HashMap::new(),
        ends: Vec::new(),
        waits: Waits::of(calls, rules),
        shut: Shut::of(calls),
        two_masters: TwoMasters::of(calls),
        strangers: false,
    };
    for (at, call) in calls.iter().enumerate() {
        if let Outcome::Granted(granted) = &call.outcome {
            let who = builder.who(at);
            builder.whos.insert(&granted.id, who);
        }
    }
    builder.strangers = calls.iter().any(|call| match &call.op {
        Op::Release { id, .. } | Op::Refresh { id, .. } => !builder.whos.contains_key(id.as_str()),
        _ => false,
    });
    for at in 0..calls.len() {
        builder.call(at)?;
    }
    builder.bound_releases();
    Ok(builder.plan)
}

/// The known fences and tickets, each with its place in their order. None may be there twice.
fn numbers(calls: &[&Call]) -> Result<HashMap<u64, u32>, Wrong> {
    let mut all: Vec<(u64, usize)> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        if let Outcome::Granted(granted) = &call.outcome {
            all.push((granted.fence, at));
            all.extend(granted.ticket.map(|ticket| (ticket, at)));
        }
    }
    all.sort_unstable();
    for pair in all.windows(2) {
        if pair[0].0 == pair[1].0 {
            return Err(Wrong {
                rule: Rule::Fence,
                calls: vec![pair[0].1, pair[1].1],
                text: format!("the number {} was given twice", pair[0].0),
            });
        }
    }
    let places = all.iter().enumerate();
    Ok(places.map(|(at, (number, _))| (*number, at as u32)).collect())
}

struct Builder<'a> {
    calls: &'a [&'a Call],
    rules: &'a Rules,
    plan: Plan,
    numbers: HashMap<u64, u32>,
    /// Of each id that a call was granted.
    whos: HashMap<&'a str, Who>,
    /// When the last lease of each has ended at the latest.
    ends: Vec<Micros>,
    waits: Waits,
    shut: Shut,
    two_masters: TwoMasters,
    /// Some release or refresh is of a permit that no call is known to have been granted: by then an unseen grant may have
    /// been given back, or live on.
    strangers: bool,
}

impl<'a> Builder<'a> {
    fn call(&mut self, at: usize) -> Result<(), Wrong> {
        let calls = self.calls;
        let call = calls[at];
        match &call.op {
            Op::Acquire { permits, lease, .. } => self.acquire(at, *permits, *lease),
            Op::Release { id, keep } => {
                if let Some(who) = self.whos.get(id.as_str()) {
                    self.release(at, *who, *keep);
                }
                Ok(())
            }
            Op::Refresh { id, lease } => match self.whos.get(id.as_str()) {
                Some(who) => self.refresh(at, *who, *lease),
                None => Ok(()),
            },
            Op::Look { id } => {
                if let Some(who) = self.whos.get(id.as_str()).copied() {
                    match call.outcome {
                        Outcome::Held => self.during(at, Step::Held { who }),
                        Outcome::Lost => self.lost(at, who),
                        _ => {}
                    }
                }
                Ok(())
            }
            Op::Forget(what) => {
                self.during(at, Step::Forget(*what));
                Ok(())
            }
            Op::TwoMasters => Ok(()),
        }
    }

    fn acquire(&mut self, at: usize, want: Option<u32>, lease: Lease) -> Result<(), Wrong> {
        let calls = self.calls;
        let call = calls[at];
        match &call.outcome {
            Outcome::Granted(granted) => self.granted(at, granted, want, lease)?,
            Outcome::Denied(full) => self.refused(at, want, full),
            Outcome::TimedOut(full) if full.answered => self.refused(at, want, full),
            Outcome::Failed => return Ok(()),
            _ => {}
        }
        // A grant that its caller did not hear of: of a call without an answer, or one that ended, or that the server forgot,
        // before the answer came.
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
            // It is given back before the call returns, unless the server does not answer within the time for that.
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

    /// Until when a call without an answer may still be carried out.
    fn late(&self, call: &Call) -> Micros {
        let last_sign = call.end.unwrap_or(call.start);
        last_sign.saturating_add(self.rules.late)
    }

    fn granted(&mut self, at: usize, granted: &Granted, want: Option<u32>, lease: Lease) -> Result<(), Wrong> {
        if want.is_some_and(|want| want != granted.permits) {
            let text = format!("{} permits for one who wanted {want:?}", granted.permits);
            return Err(self.wrong(Rule::Limit, at, text));
        }
        let who = self.whos[granted.id.as_str()];
        let number = self.numbers[&granted.fence];
        let permits = granted.permits;
        let span = self.span_of(at, granted.fence, "fence")?;
        let asked = lease;
        let lease = self.lease(at, who, asked, span, granted.expires_at)?;
        let step = match granted.ticket {
            None => Step::Enter { who, permits, all: want.is_none(), lease, number },
            Some(ticket) if ticket > granted.fence => {
                let text = format!("its fence is not above its ticket {ticket}");
                return Err(self.wrong(Rule::Fence, at, text));
            }
            Some(ticket) => {
                let place = self.numbers[&ticket];
                let joined = self.span_of(at, ticket, "ticket")?;
                // A grant whose lease ended before its caller heard of it takes the place along.
                let stays = self.calls[at].latest() <= least_end(self.calls[at], asked) && !self.two_masters.at(joined);
                let step = Step::Join { who, number: place, stays };
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

    /// When a number was given: it is the server's time in microseconds, or a little more.
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
            told_in_use: full.answered.then_some(full.in_use),
            others: full.waiting > 0 && self.waits.others(self.calls[at]),
        };
        self.during(at, step);
    }

    fn release(&mut self, at: usize, who: Who, keep: u32) {
        let start = self.calls[at].start;
        match self.calls[at].outcome {
            // Of either master.
            Outcome::Released | Outcome::Gone if self.two_masters.during(self.calls[at]) => {
                let span = (start, self.calls[at].latest());
                self.add(at, Step::Release { who, keep }, span, Must::Not);
            }
            Outcome::Released => self.during(at, Step::Release { who, keep }),
            Outcome::Gone => {
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

    fn refresh(&mut self, at: usize, who: Who, lease: Lease) -> Result<(), Wrong> {
        let call = self.calls[at];
        let (told, latest, must) = match call.outcome {
            // Of either master.
            Outcome::Refreshed(told) if self.two_masters.during(call) => (told, call.latest(), Must::Not),
            Outcome::Lost if self.two_masters.during(call) => return Ok(()),
            Outcome::Refreshed(told) => (told, call.latest(), Must::Happen),
            Outcome::Lost => {
                self.lost(at, who);
                return Ok(());
            }
            // It came while the permit was held, or it changed nothing.
            Outcome::Unknown | Outcome::NeverReturned => {
                (None, self.ends[who as usize].min(self.late(call)), Must::Not)
            }
            _ => return Ok(()),
        };
        let span = (call.start, latest.max(call.start));
        let lease = self.lease(at, who, lease, span, told)?;
        self.add(at, Step::Refresh { who, lease }, span, must);
        Ok(())
    }

    /// A lease that was given in this span, and its end.
    fn lease(
        &mut self,
        at: usize,
        who: Who,
        lease: Lease,
        given: (Micros, Micros),
        told: Option<u64>,
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
        if let Some(told) = told.filter(|_| self.rules.same_clock) {
            let told = told * 1_000;
            if told < span.0 || told > span.1 {
                let text = format!("a lease of {ms} ms that ends at {}", told / 1_000);
                return Err(self.wrong(Rule::Lease, at, text));
            }
            span = (told.saturating_sub(DRIFT), told + DRIFT);
        }
        if must == Must::Not {
            span.1 = NEVER;
        }
        let end = &mut self.ends[who as usize];
        *end = span.1.max(*end);
        self.add(at, Step::LeaseEnd { who, lease: number }, span, must);
        Ok(number)
    }

    fn lost(&mut self, at: usize, who: Who) {
        let step = Step::Lost { who, at: self.calls[at].latest() };
        self.during(at, step);
    }

    /// A release that may have come later came before the permit's last lease ended, or it changed nothing.
    fn bound_releases(&mut self) {
        for planned in &mut self.plan.steps {
            if let Step::Release { who, .. } = planned.step
                && planned.must == Must::Not
            {
                let ends = self.ends[who as usize].max(planned.from);
                planned.to = planned.to.min(ends);
            }
        }
    }

    fn during(&mut self, at: usize, step: Step) {
        let call = self.calls[at];
        // Without an end nobody was told anything, so it may also not have happened.
        let must = call.end.map_or(Must::Not, |_| Must::Happen);
        self.add(at, step, (call.start, call.latest()), must);
    }

    fn add(&mut self, call: usize, step: Step, (from, to): (Micros, Micros), must: Must) {
        self.plan.steps.push(Planned { call, step, from: from.min(to), to, must, doubt: Doubt::None });
    }

    /// A grant that nobody heard of may have begun and ended in these spans.
    fn unseen(&mut self, at: usize, want: Option<u32>, begun: (Micros, Micros), over: (Micros, Micros), doubt: Doubt) {
        let who = self.who(at);
        let permits = want.unwrap_or(0);
        self.add(at, Step::Unseen { who, permits }, begun, Must::Not);
        self.add(at, Step::UnseenEnd { who }, over, Must::HappenIfThere);
        let begin = self.plan.steps.len() - 2;
        self.plan.steps[begin].doubt = doubt;
    }

    fn who(&mut self, at: usize) -> Who {
        self.plan.holder_calls.push(at);
        self.ends.push(0);
        (self.ends.len() - 1) as Who
    }

    fn wrong(&self, rule: Rule, at: usize, text: String) -> Wrong {
        Wrong { rule, calls: vec![at], text }
    }
}

/// When a lease that was given during this call ends at the earliest.
fn least_end(call: &Call, lease: Lease) -> Micros {
    match lease {
        Lease::Ms(ms) | Lease::Renewed(ms) => call.start + (ms * 1_000).saturating_sub(MS),
        Lease::Permanent => NEVER,
    }
}
