//! A plan: the steps of all calls of one semaphore, each with the span in which it took effect.

use super::Micros;
use super::rule::Rule;
use super::step::Step;

/// A span without an end.
pub const NEVER: Micros = Micros::MAX;

/// The server's rounding to whole ms, and the increments of fences given in the same microsecond.
pub const MS: Micros = 1_000;

/// Whether a step must be taken by the end of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    Happen,
    /// If what it ends still exists.
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

/// How rarely a step is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    None,
    /// An unseen grant that ended before the call returned.
    InCall,
    /// An unseen grant that outlasted the call.
    AfterCall,
}

/// The plan of one semaphore.
#[derive(Default)]
pub struct Plan {
    pub steps: Vec<Planned>,
    /// For each lease: the time from which the holder's clock may regard it as ended.
    pub early: Vec<Micros>,
    /// For each holder: the call that was granted.
    pub holder_calls: Vec<usize>,
}

/// A call that violates a promise by itself.
pub struct Wrong {
    pub rule: Rule,
    pub calls: Vec<usize>,
    pub text: String,
}
