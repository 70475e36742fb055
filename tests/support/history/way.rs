//! The state of the search at one time: the ways, which are the possible explanations of the calls so far,
//! and the steps under way.

use super::model::Semaphore;
use super::rule::Why;

/// One possible explanation of all past events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    pub semaphore: Semaphore,
    /// The steps under way that it has taken, sorted.
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

/// The steps under way, by kind.
#[derive(Clone, Default)]
pub struct UnderWay {
    pub looks: Vec<usize>,
    pub changes: Vec<usize>,
    /// Unseen grants.
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

/// No way passes the end of this step.
pub struct Stuck {
    pub step: usize,
    pub why: Why,
    /// No way was discarded.
    pub complete: bool,
    /// One of the ways up to there.
    pub way: Way,
    pub under_way: Vec<usize>,
}
