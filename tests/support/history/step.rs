//! The steps of a semaphore: what happens to it at one moment.

use super::{Forgotten, Micros};

/// The number of a permit, or of a waiter, in the plan.
pub type Who = u32;

/// The number of a lease in the plan.
pub type LeaseNo = u32;

/// What happens at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Granted at once. With `all`, every free permit. Waiters with tickets up to `place` come before it.
    Enter {
        who: Who,
        permits: u32,
        all: bool,
        lease: LeaseNo,
        number: u32,
        place: u64,
    },
    /// Receives a ticket. A waiter that may lose its place later does not count as in line (`stays` is
    /// false).
    Join {
        who: Who,
        number: u32,
        ticket: u64,
        stays: bool,
    },
    /// Granted in line.
    Grant {
        who: Who,
        permits: u32,
        lease: LeaseNo,
        number: u32,
    },
    /// Refused, in line or not, with the number in use if the server reported it.
    Refused {
        want: u32,
        reported_in_use: Option<u32>,
        /// Other callers may have been in line.
        others: bool,
    },
    Release {
        who: Who,
        keep: u32,
    },
    /// Its caller learned that nothing is held.
    Gone {
        who: Who,
    },
    Refresh {
        who: Who,
        lease: LeaseNo,
    },
    /// Its caller learned by `at` that the permit is lost.
    Lost {
        who: Who,
        at: Micros,
    },
    /// The permit was not lost by the holder's clock.
    Held {
        who: Who,
    },
    LeaseEnd {
        who: Who,
        lease: LeaseNo,
    },
    /// An unseen grant; `permits` 0: every free permit.
    Unseen {
        who: Who,
        permits: u32,
    },
    /// The end or release of an unseen grant.
    UnseenEnd {
        who: Who,
    },
    /// The server lost data.
    Forget(Forgotten),
    /// The grant comes from a former master: it uses no permits, and no other caller learns of it.
    Astray {
        who: Who,
    },
}

/// The free permits that a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Some,
    Unseen,
    WhateverIsFree,
}

impl Step {
    /// Whether it changes nothing, so that it can be taken as soon as it is possible.
    pub fn is_look(&self) -> bool {
        matches!(self, Step::Refused { .. } | Step::Gone { .. } | Step::Lost { .. } | Step::Held { .. })
    }

    /// The rank of the number that it takes, as a fence or a place in line, in the history.
    pub fn number(&self) -> Option<u32> {
        match *self {
            Step::Enter { number, .. } | Step::Join { number, .. } | Step::Grant { number, .. } => {
                Some(number)
            }
            _ => None,
        }
    }

    /// The number of permits of an unseen grant; 0: every free permit.
    pub fn unseen_permits(&self) -> u32 {
        match *self {
            Step::Unseen { permits, .. } => permits,
            _ => 0,
        }
    }

    /// The free permits that it takes.
    pub fn takes(&self) -> Takes {
        match *self {
            Step::Enter { all: true, .. } | Step::Unseen { permits: 0, .. } => Takes::WhateverIsFree,
            Step::Enter { .. } | Step::Grant { .. } => Takes::Some,
            Step::Unseen { .. } => Takes::Unseen,
            _ => Takes::Nothing,
        }
    }

    /// The permit that it ends or needs, for steps that can make each other impossible.
    pub fn permit(&self) -> Option<Who> {
        match *self {
            Step::Release { who, .. } | Step::LeaseEnd { who, .. } | Step::Refresh { who, .. } => Some(who),
            _ => None,
        }
    }
}
