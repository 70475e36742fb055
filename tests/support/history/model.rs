//! The semaphore as it is promised, one step after the other: what the search compares the calls with.

use super::{Forgotten, Micros, Rules};
use std::fmt;

/// A permit, or who is in line for one. The plan numbers them.
pub type Who = u32;

/// A lease that was given to a permit. The plan numbers them.
pub type LeaseNo = u32;

/// The lease of a grant that nobody heard of.
const UNSEEN: LeaseNo = LeaseNo::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Holder {
    who: Who,
    permits: u32,
    lease: LeaseNo,
    /// The most that was forgotten of it.
    forgotten: Option<Forgotten>,
}

/// What the semaphore is at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Semaphore {
    holders: Vec<Holder>,
    /// In the order of their tickets: those in line who are granted in the end.
    queue: Vec<Who>,
    /// How many of the known fences and tickets were given. They are given in their order.
    numbers: u32,
    /// Whose next grant comes from a master that is none any more.
    astray: Vec<Who>,
}

/// What happens at one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Granted at once. `all` took whatever was free.
    Enter {
        who: Who,
        permits: u32,
        all: bool,
        lease: LeaseNo,
        number: u32,
    },
    /// Gets a ticket. Who may lose the place on the way does not count as in line.
    Join {
        who: Who,
        number: u32,
        stays: bool,
    },
    /// Granted in line.
    Grant {
        who: Who,
        permits: u32,
        lease: LeaseNo,
        number: u32,
    },
    /// Refused, in line or not, with how many are in use where the server told that.
    Refused {
        want: u32,
        told_in_use: Option<u32>,
        /// Others may have been in line.
        others: bool,
    },
    Release {
        who: Who,
        keep: u32,
    },
    /// Was told that nothing is held.
    Gone {
        who: Who,
    },
    Refresh {
        who: Who,
        lease: LeaseNo,
    },
    /// Was told that the permit is lost, by `at`.
    Lost {
        who: Who,
        at: Micros,
    },
    /// The holder's clock said that the permit is not lost.
    Held {
        who: Who,
    },
    LeaseEnd {
        who: Who,
        lease: LeaseNo,
    },
    /// A grant that nobody heard of; `permits` 0 took whatever was free.
    Unseen {
        who: Who,
        permits: u32,
    },
    /// That one ended, or was given back.
    UnseenEnd {
        who: Who,
    },
    /// The server lost something that it knew.
    Forget(Forgotten),
    /// The grant comes from a master that is none any more: it takes nothing, and nobody else knows of it.
    Astray {
        who: Who,
    },
}

/// What a step takes of what is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Some,
    Unseen,
    WhateverIsFree,
}

/// Which promise a history breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Never more permits than the limit.
    Limit,
    /// First come, first served.
    Order,
    /// Fences increase from grant to grant.
    Fence,
    /// A permit is its holder's until its lease ends, and no longer.
    Lease,
    /// A refusal was true at some moment of its call.
    Refusal,
    /// Too many orders to try: not decided.
    Undecided,
}

/// Why a step cannot be the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    OverLimit {
        in_use: u32,
        permits: u32,
    },
    NotAll {
        free: u32,
    },
    ToldOverLimit {
        told: u32,
    },
    Overtakes {
        in_line: usize,
    },
    NotFirst {
        in_front: usize,
    },
    NotNext,
    OtherCount {
        in_use: u32,
    },
    NotFull {
        in_use: u32,
    },
    NotHeld,
    StillHeld,
    /// A step that others may have made needless.
    Void,
}

impl Semaphore {
    pub fn in_use(&self) -> u32 {
        let counted = |holder: &&Holder| holder.forgotten <= Some(Forgotten::OneKey);
        let holders = self.holders.iter().filter(counted);
        holders.map(|holder| holder.permits).sum()
    }

    /// Whether somebody holds who never heard of it.
    pub fn has_unseen(&self) -> bool {
        self.holders.iter().any(|holder| holder.lease == UNSEEN)
    }

    /// How many fences and tickets were given, of those that are known.
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    pub fn holders(&self) -> impl Iterator<Item = (Who, u32)> {
        self.holders.iter().map(|holder| (holder.who, holder.permits))
    }

    fn holder(&self, who: Who) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.who == who)
    }

    /// The same, if nobody but the holder may end it.
    fn sure_holder(&self, who: Who) -> Option<&Holder> {
        self.holder(who).filter(|holder| holder.forgotten.is_none())
    }

    /// The same, if the server knows of it.
    fn known_holder(&self, who: Who) -> Option<&Holder> {
        let known = |holder: &&Holder| holder.forgotten < Some(Forgotten::Everything);
        self.holder(who).filter(known)
    }

    /// Whether so many are free.
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

    /// Whether the step can come now, or why not. `early` tells from when on the holder's own clock may say that a lease has
    /// ended.
    pub fn allows(&self, step: &Step, rules: &Rules, early: impl Fn(LeaseNo) -> Micros) -> Result<(), Why> {
        let held = |holder: Option<_>| holder.ok_or(Why::NotHeld).map(drop::<&Holder>);
        match *step {
            Step::Enter { who, number, .. } | Step::Grant { who, number, .. } if self.astray.contains(&who) => {
                self.is_next(number)
            }
            Step::Enter { permits, all, number, .. } => {
                self.is_next(number)?;
                let in_line = self.queue.len();
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
                // Who is not in line any more was forgotten, and came back with its ticket.
                let in_front = self.queue.iter().position(|other| *other == who);
                match in_front.filter(|in_front| rules.order && *in_front > 0) {
                    Some(in_front) => Err(Why::NotFirst { in_front }),
                    None => self.fits(permits, rules),
                }
            }
            Step::Refused { want, told_in_use, others } => {
                let in_use = self.in_use();
                match told_in_use {
                    Some(told) if told > rules.limit => Err(Why::ToldOverLimit { told }),
                    Some(told) if rules.counts && told != in_use => Err(Why::OtherCount { in_use }),
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

    /// Takes a step that it allows.
    pub fn take(&mut self, step: &Step, rules: &Rules) {
        match *step {
            Step::Enter { who, permits, lease, .. } => {
                self.numbers += 1;
                self.add(who, permits, lease);
            }
            Step::Join { who, stays, .. } => {
                self.numbers += 1;
                if stays {
                    self.queue.push(who);
                }
            }
            Step::Grant { who, permits, lease, .. } => {
                self.numbers += 1;
                self.queue.retain(|other| *other != who);
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
                // The server knows it: of what came last, this was not forgotten.
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

impl Step {
    /// Changes nothing, so as soon as it can come it may.
    pub fn is_look(&self) -> bool {
        matches!(self, Step::Refused { .. } | Step::Gone { .. } | Step::Lost { .. } | Step::Held { .. })
    }

    /// The place of its fence or ticket among all that are known.
    pub fn number(&self) -> Option<u32> {
        match *self {
            Step::Enter { number, .. } | Step::Join { number, .. } | Step::Grant { number, .. } => Some(number),
            _ => None,
        }
    }

    /// How many a grant that nobody heard of took; 0: whatever was free.
    pub fn unseen_permits(&self) -> u32 {
        match *self {
            Step::Unseen { permits, .. } => permits,
            _ => 0,
        }
    }

    /// What it takes of what is free.
    pub fn takes(&self) -> Takes {
        match *self {
            Step::Enter { all: true, .. } | Step::Unseen { permits: 0, .. } => Takes::WhateverIsFree,
            Step::Enter { .. } | Step::Grant { .. } => Takes::Some,
            Step::Unseen { .. } => Takes::Unseen,
            _ => Takes::Nothing,
        }
    }

    /// Whose permit it ends or needs, of those steps of which one may make another impossible.
    pub fn permit(&self) -> Option<Who> {
        match *self {
            Step::Release { who, .. } | Step::LeaseEnd { who, .. } | Step::Refresh { who, .. } => Some(who),
            _ => None,
        }
    }
}

impl Why {
    /// The promise that a call breaks that can never come for this reason.
    pub fn rule(self) -> Rule {
        match self {
            Why::OverLimit { .. } | Why::ToldOverLimit { .. } => Rule::Limit,
            Why::Overtakes { .. } | Why::NotFirst { .. } => Rule::Order,
            Why::NotNext => Rule::Fence,
            Why::NotHeld | Why::StillHeld | Why::Void => Rule::Lease,
            Why::NotAll { .. } | Why::OtherCount { .. } | Why::NotFull { .. } => Rule::Refusal,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Limit => "limit",
            Rule::Order => "order",
            Rule::Fence => "fence",
            Rule::Lease => "lease",
            Rule::Refusal => "refusal",
            Rule::Undecided => "undecided",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Why::OverLimit { in_use, permits } => {
                write!(f, "over the limit: {in_use} are in use, and these {permits}")
            }
            Why::ToldOverLimit { told } => write!(f, "told that {told} are in use"),
            Why::NotAll { free } => write!(f, "not all that is free, which is {free}"),
            Why::Overtakes { in_line } => write!(f, "overtakes {in_line} in line"),
            Why::NotFirst { in_front } => write!(f, "passes {in_front} in front of it in line"),
            Why::NotNext => f.write_str("a smaller fence or ticket was not given yet"),
            Why::OtherCount { in_use } => write!(f, "told another number than {in_use} in use"),
            Why::NotFull { in_use } => {
                write!(f, "refused, though only {in_use} are in use and nobody waits")
            }
            Why::NotHeld => f.write_str("its permit is not held at that point"),
            Why::StillHeld => f.write_str("its permit is still held, its lease runs"),
            Why::Void => f.write_str("its lease is not the last one"),
        }
    }
}
