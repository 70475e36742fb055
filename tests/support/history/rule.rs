//! The promises that a history may break, and why a step cannot be the next.

use std::fmt;

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
