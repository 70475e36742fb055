//! What the search keeps at one point of time: the ways in which the calls so far may have come about, and the steps under
//! way.

use super::model::Semaphore;
use super::rule::Why;

/// One way in which all that is past may have come about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    pub semaphore: Semaphore,
    /// Which of the steps under way it has taken, sorted.
    pub taken: Vec<usize>,
}

impl Way {
    pub fn has_taken(&self, step: usize) -> bool {
        self.taken.binary_search(&step).is_ok()
    }

    pub fn mark(&mut self, step: usize) {
        if let Err(at) = self.taken.binary_search(&step) {
            self.taken.insert(at, step);
        }
    }

    pub fn unmark(&mut self, step: usize) {
        self.taken.retain(|taken| *taken != step);
    }
}

/// The steps under way, by when they matter.
#[derive(Clone, Default)]
pub struct UnderWay {
    pub looks: Vec<usize>,
    pub changes: Vec<usize>,
    /// Grants that nobody heard of.
    pub unseen: Vec<usize>,
    pub unseen_ends: Vec<usize>,
}

impl UnderWay {
    pub fn all(&self) -> impl Iterator<Item = usize> {
        let changes = self.changes.iter().chain(&self.unseen);
        let all = changes.chain(&self.unseen_ends).chain(&self.looks);
        all.copied()
    }
}

/// No way goes past the end of this step.
pub struct Stuck {
    pub step: usize,
    pub why: Why,
    /// Nothing was left out.
    pub complete: bool,
    /// One of the ways up to there.
    pub way: Way,
    pub under_way: Vec<usize>,
}
