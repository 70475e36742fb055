//! Going back. Where few ways are kept and none of them goes on, one that was left out may: most often one with a grant that
//! nobody heard of, which was not needed where it came and explains what was told later. So the search goes back a little,
//! comes again with all such grants tried and many more ways kept, and does as before once it is past. Where that ends at the
//! same place it goes back farther.

use super::way::{UnderWay, Way};
use std::collections::{HashSet, VecDeque};

/// How many events are between two places to go back to, and how many such places are kept.
const EVERY: usize = 8;
const PLACES: usize = 128;

/// How many events it is gone back at first: as many as the step was under way for, within these bounds.
const FIRST: (usize, usize) = (8, 32);

/// How often it is gone back from one place, and how many times as far as before.
const MOST: u32 = 4;
const FARTHER: usize = 4;

/// Where the search has been.
pub struct Place {
    /// How many events were past.
    pub past: usize,
    pub under_way: UnderWay,
    pub ways: HashSet<Way>,
}

#[derive(Default)]
pub struct Back {
    places: VecDeque<Place>,
    /// Where nothing went on, as far as the search has come, and how often.
    end: usize,
    times: u32,
}

impl Back {
    /// Whether the place after so many events is to be kept.
    pub fn keeps(&self, past: usize) -> bool {
        past.is_multiple_of(EVERY) && self.places.back().is_none_or(|place| place.past < past)
    }

    pub fn keep(&mut self, place: Place) {
        self.places.push_back(place);
        if self.places.len() > PLACES {
            self.places.pop_front();
        }
    }

    /// From where to come again to the end after so many events, with a step that was under way for `span` of them, and up to
    /// where to look for more ways. Nothing when that was done often enough.
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
