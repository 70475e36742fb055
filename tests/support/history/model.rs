//! The model of a correct semaphore, step by step, against which the search checks the calls.

use super::rule::Why;
use super::step::{LeaseNo, Step, Who};
use super::{Forgotten, Micros, Rules};

/// The lease of an unseen grant.
const UNSEEN: LeaseNo = LeaseNo::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Holder {
    who: Who,
    permits: u32,
    lease: LeaseNo,
    /// The most severe loss that affects it.
    forgotten: Option<Forgotten>,
}

/// A waiter. The line is sorted: the smallest ticket is served first, and of equal tickets any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Waiter {
    ticket: u64,
    who: Who,
}

/// The state of the semaphore at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Semaphore {
    holders: Vec<Holder>,
    /// The waiters in line that are granted in the end, in ticket order.
    queue: Vec<Waiter>,
    /// The number of fences and places in line given so far, of those in the history. Their numbers ascend.
    numbers: u32,
    /// Holders whose next grant comes from a former master.
    astray: Vec<Who>,
}

impl Semaphore {
    pub fn in_use(&self) -> u32 {
        let counted = |holder: &&Holder| holder.forgotten <= Some(Forgotten::OneKey);
        let holders = self.holders.iter().filter(counted);
        holders.map(|holder| holder.permits).sum()
    }

    /// Whether there is an unseen grant.
    pub fn has_unseen(&self) -> bool {
        self.holders.iter().any(|holder| holder.lease == UNSEEN)
    }

    /// The number of fences and places in line given so far, of those in the history.
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    pub fn holders(&self) -> impl Iterator<Item = (Who, u32)> {
        self.holders.iter().map(|holder| (holder.who, holder.permits))
    }

    fn holder(&self, who: Who) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.who == who)
    }

    /// The same, if only the holder can end its permit.
    fn sure_holder(&self, who: Who) -> Option<&Holder> {
        self.holder(who).filter(|holder| holder.forgotten.is_none())
    }

    /// The same, if the server has its record.
    fn known_holder(&self, who: Who) -> Option<&Holder> {
        let known = |holder: &&Holder| holder.forgotten < Some(Forgotten::Everything);
        self.holder(who).filter(known)
    }

    /// The number of waiters in front.
    fn in_front(&self, comes_before: impl Fn(u64) -> bool) -> usize {
        self.queue.partition_point(|waiter| comes_before(waiter.ticket))
    }

    /// Whether this number of permits is free.
    fn fits(&self, permits: u32, rules: &Rules) -> Result<(), Why> {
        let in_use = self.in_use();
        if in_use + permits > rules.limit {
            return Err(Why::OverLimit { in_use, permits });
        }
        Ok(())
    }

    /// Whether it is the next fence or ticket.
    fn is_next(&self, number: u32) -> Result<(), Why> {
        if number != self.numbers {
            return Err(Why::NotNext);
        }
        Ok(())
    }

    /// Whether the step is possible now, or the reason why not. `early` returns the time from which the
    /// holder's own clock may regard a lease as ended.
    pub fn allows(&self, step: &Step, rules: &Rules, early: impl Fn(LeaseNo) -> Micros) -> Result<(), Why> {
        let held = |holder: Option<_>| holder.ok_or(Why::NotHeld).map(drop::<&Holder>);
        match *step {
            Step::Enter { who, number, .. } | Step::Grant { who, number, .. }
                if self.astray.contains(&who) =>
            {
                self.is_next(number)
            }
            Step::Enter { permits, all, number, place, .. } => {
                self.is_next(number)?;
                let in_line = self.in_front(|ticket| ticket <= place);
                if rules.order && in_line > 0 {
                    return Err(Why::Overtakes { in_line });
                }
                let free = rules.limit.saturating_sub(self.in_use());
                if all && permits != free {
                    return Err(Why::NotAll { free });
                }
                self.fits(permits, rules)
            }
            Step::Join { number, .. } => self.is_next(number),
            Step::Grant { who, permits, number, .. } => {
                self.is_next(number)?;
                // A waiter that is no longer in line was lost by the server, and returned with its ticket.
                let own = self.queue.iter().find(|waiter| waiter.who == who);
                let in_front = own.map(|own| self.in_front(|ticket| ticket < own.ticket));
                match in_front.filter(|in_front| rules.order && *in_front > 0) {
                    Some(in_front) => Err(Why::NotFirst { in_front }),
                    None => self.fits(permits, rules),
                }
            }
            Step::Refused { want, reported_in_use, others } => {
                let in_use = self.in_use();
                match reported_in_use {
                    Some(reported) if reported > rules.limit => Err(Why::ReportedOverLimit { reported }),
                    Some(reported) if rules.counts && reported != in_use => Err(Why::OtherCount { in_use }),
                    _ if in_use + want <= rules.limit && !others => Err(Why::NotFull { in_use }),
                    _ => Ok(()),
                }
            }
            Step::Gone { who } if self.sure_holder(who).is_some() => Err(Why::StillHeld),
            Step::Lost { who, at } => match self.sure_holder(who) {
                Some(holder) if at < early(holder.lease) => Err(Why::StillHeld),
                _ => Ok(()),
            },
            Step::LeaseEnd { who, lease } => match self.holder(who) {
                Some(holder) if holder.lease == lease => Ok(()),
                _ => Err(Why::Void),
            },
            Step::Release { who, .. } | Step::Refresh { who, .. } => held(self.known_holder(who)),
            Step::Held { who } | Step::UnseenEnd { who } => held(self.holder(who)),
            Step::Unseen { permits, .. } => self.fits(permits.max(1), rules),
            Step::Astray { who } if self.holder(who).is_some() => Err(Why::Void),
            Step::Gone { .. } | Step::Forget(_) | Step::Astray { .. } => Ok(()),
        }
    }

    /// Applies a step that is allowed.
    pub fn take(&mut self, step: &Step, rules: &Rules) {
        match *step {
            Step::Enter { who, permits, lease, .. } => {
                self.numbers += 1;
                self.add(who, permits, lease);
            }
            Step::Join { who, ticket, stays, .. } => {
                self.numbers += 1;
                if stays {
                    let waiter = Waiter { ticket, who };
                    let at = self.queue.partition_point(|other| *other < waiter);
                    self.queue.insert(at, waiter);
                }
            }
            Step::Grant { who, permits, lease, .. } => {
                self.numbers += 1;
                self.queue.retain(|waiter| waiter.who != who);
                self.add(who, permits, lease);
            }
            Step::Unseen { who, permits: 0 } => {
                self.add(who, rules.limit - self.in_use(), UNSEEN);
            }
            Step::Unseen { who, permits } => self.add(who, permits, UNSEEN),
            Step::Release { who, keep: 0 } | Step::LeaseEnd { who, .. } | Step::UnseenEnd { who } => {
                self.holders.retain(|holder| holder.who != who)
            }
            Step::Release { who, keep } => self.change(who, |holder| {
                holder.permits = holder.permits.min(keep);
            }),
            Step::Refresh { who, lease } => self.change(who, |holder| {
                holder.lease = lease;
                // The server has its record, so it was not among the lost writes.
                holder.forgotten = holder.forgotten.filter(|what| *what == Forgotten::OneKey);
            }),
            Step::Forget(what) => {
                for holder in &mut self.holders {
                    holder.forgotten = holder.forgotten.max(Some(what));
                }
                self.queue.clear();
            }
            Step::Astray { who } => self.astray.push(who),
            Step::Refused { .. } | Step::Gone { .. } | Step::Lost { .. } | Step::Held { .. } => {}
        }
    }

    fn add(&mut self, who: Who, permits: u32, lease: LeaseNo) {
        let at = self.holders.partition_point(|holder| holder.who < who);
        let is_astray = self.astray.contains(&who);
        self.astray.retain(|other| *other != who);
        let holder = Holder { who, permits, lease, forgotten: is_astray.then_some(Forgotten::Everything) };
        self.holders.insert(at, holder);
    }

    fn change(&mut self, who: Who, change: impl FnOnce(&mut Holder)) {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.who == who) {
            change(holder);
        }
    }
}
