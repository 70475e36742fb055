//! The promises that a history may break, and the reasons why a step cannot be the next.

use std::fmt;

/// The promise that a history breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Never more permits than the limit.
    Limit,
    /// First come, first served. A head start lets a caller overtake only waiters that came within it.
    Order,
    /// Fences increase from grant to grant.
    Fence,
    /// A permit is held exactly until its lease ends.
    Lease,
    /// A refusal was correct at some moment of its call.
    Refusal,
    /// Too many orders to try: no result.
    Undecided,
}

/// The reason why a step cannot be the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    OverLimit {
        in_use: u32,
        permits: u32,
    },
    NotAll {
        free: u32,
    },
    ReportedOverLimit {
        reported: u32,
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
    /// A step that other steps made superfluous.
    Void,
}

impl Why {
    /// The promise that a call breaks if its step is never possible for this reason.
    pub fn rule(self) -> Rule {
        match self {
            Why::OverLimit { .. } | Why::ReportedOverLimit { .. } => Rule::Limit,
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
            Why::ReportedOverLimit { reported } => write!(f, "reported {reported} in use"),
            Why::NotAll { free } => write!(f, "not all free permits, which are {free}"),
            Why::Overtakes { in_line } => write!(f, "overtakes {in_line} in line"),
            Why::NotFirst { in_front } => write!(f, "overtakes {in_front} ahead of it in line"),
            Why::NotNext => f.write_str("a smaller fence or ticket has not been given yet"),
            Why::OtherCount { in_use } => write!(f, "reported another number than {in_use} in use"),
            Why::NotFull { in_use } => {
                write!(f, "refused, although only {in_use} are in use and no one waits")
            }
            Why::NotHeld => f.write_str("its permit is not held at that point"),
            Why::StillHeld => f.write_str("its permit is still held, its lease has not ended"),
            Why::Void => f.write_str("its lease is not the last one"),
        }
    }
}
