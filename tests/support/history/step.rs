//! The steps of a semaphore: what happens to it at one point.

use super::{Forgotten, Micros};

/// A permit, or who is in line for one. The plan numbers them.
pub type Who = u32;

/// A lease that was given to a permit. The plan numbers them.
pub type LeaseNo = u32;

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
