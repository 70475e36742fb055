//! A plan: the steps of the calls of one semaphore, each with the span in which it happened.

use super::Micros;
use super::rule::Rule;
use super::step::Step;

/// Has no end.
pub const NEVER: Micros = Micros::MAX;

/// The server's rounding to whole ms, and what numbers given in the same microsecond add to a fence.
pub const MS: Micros = 1_000;

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
