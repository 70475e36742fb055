//! Going back. The search keeps few ways. If none of them can continue, a discarded way may be able to. Most
//! often that way contains an unseen grant that was not needed when it happened, but explains a later reply.
//! So the search goes back a little, tries all unseen grants on the way forward, and keeps many more ways.
//! After the critical event it continues as before. If it fails at the same event again, it goes back
//! farther.

use super::way::{UnderWay, Way};
use std::collections::{HashSet, VecDeque};

/// The number of events between two saved places, and the number of saved places.
const EVERY: usize = 8;
const PLACES: usize = 128;

/// The number of events to go back at first: the length of the step's span in events, within these bounds.
const FIRST: (usize, usize) = (8, 32);

/// How often the search goes back from one event, and the factor by which the distance grows.
const MOST: u32 = 4;
const FARTHER: usize = 4;

/// A saved state of the search.
pub struct Place {
    /// The number of past events.
    pub past: usize,
    pub under_way: UnderWay,
    pub ways: HashSet<Way>,
}

#[derive(Default)]
pub struct Back {
    places: VecDeque<Place>,
    /// The latest event at which the search failed, and how often it failed there.
    end: usize,
    times: u32,
}

impl Back {
    /// Whether to save the place after this number of events.
    pub fn keeps(&self, past: usize) -> bool {
        past.is_multiple_of(EVERY) && self.places.back().is_none_or(|place| place.past < past)
    }

    pub fn keep(&mut self, place: Place) {
        self.places.push_back(place);
        if self.places.len() > PLACES {
            self.places.pop_front();
        }
    }

    /// Returns the place to resume from after a failure at event `past`, and the event up to which more ways
    /// are tried. `span` is the length of the failed step's span in events. `None` after the maximum number
    /// of attempts.
    pub fn from(&mut self, past: usize, span: usize) -> Option<(&Place, usize)> {
        if past > self.end {
            (self.end, self.times) = (past, 0);
        }
        if self.times == MOST {
            return None;
        }
        let far = span.clamp(FIRST.0, FIRST.1) * FARTHER.pow(self.times);
        self.times += 1;
        let from = self.end.saturating_sub(far);
        while self.places.len() > 1 && self.places.back().is_some_and(|place| place.past > from) {
            self.places.pop_back();
        }
        Some((self.places.back()?, self.end))
    }
}
