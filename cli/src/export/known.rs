//! What is known of the names, and which of them is read next. Nothing here connects.

use super::metrics::Reading;
use crate::sample::{NameFilter, Sample};
use luagate::admin::{Kind, Name};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

pub struct Known {
    filter: NameFilter,
    /// The number of names with metrics.
    most: usize,
    /// Those that the last search has found.
    names: HashMap<Name, Option<Read>>,
    /// The number of the last read.
    reads: u64,
    /// The names that are still to be read before the next search, the next one at the end.
    queue: Vec<Name>,
}

/// The last read of a name.
struct Read {
    number: u64,
    state: State,
}

enum State {
    Accepted(Sample),
    NotAccepted,
    Unreadable,
}

impl Read {
    fn sample(&self) -> Option<&Sample> {
        match &self.state {
            State::Accepted(sample) => Some(sample),
            _ => None,
        }
    }
}

impl Known {
    pub fn new(filter: NameFilter, most: usize) -> Known {
        Known { filter, most, names: HashMap::new(), reads: 0, queue: Vec::new() }
    }

    /// Whether names like this one are searched.
    pub fn accepts(&self, name: &Name) -> bool {
        self.filter.accepts(name)
    }

    /// A search has found these names, and no others. Then each of them is read once: first those with
    /// metrics, then the others, beginning with those that were never read, or long ago.
    pub fn found(&mut self, names: Vec<Name>) {
        let mut before = std::mem::take(&mut self.names);
        self.names =
            names.into_iter().map(|name| before.remove_entry(&name).unwrap_or((name, None))).collect();
        let shown: HashSet<Name> = self.busiest().into_iter().map(|sample| sample.name.clone()).collect();
        let last = |name: &Name| self.names.get(name).and_then(Option::as_ref).map_or(0, |read| read.number);
        let mut queue: Vec<Name> = self.names.keys().cloned().collect();
        queue.sort_by_cached_key(|name| (shown.contains(name), Reverse(last(name))));
        self.queue = queue;
    }

    /// The names that come first: those with metrics, and as many others as can have some.
    pub fn first(&mut self) -> Vec<Name> {
        self.next(self.busiest().len() + self.most)
    }

    /// The names that come next.
    pub fn next(&mut self, count: usize) -> Vec<Name> {
        self.queue.split_off(self.queue.len().saturating_sub(count))
    }

    /// A name was read. `None`: it is not stored any more.
    pub fn read(&mut self, name: &Name, sample: Option<Sample>) {
        match sample {
            Some(sample) if self.filter.accepts_sample(&sample) => {
                drop(self.set(name, State::Accepted(sample)))
            }
            Some(_) => drop(self.set(name, State::NotAccepted)),
            None => drop(self.names.remove(name)),
        }
    }

    /// A name cannot be read. Returns whether this is new.
    pub fn cannot_read(&mut self, name: &Name) -> bool {
        !matches!(self.set(name, State::Unreadable), Some(State::Unreadable))
    }

    fn set(&mut self, name: &Name, state: State) -> Option<State> {
        self.reads += 1;
        self.names
            .insert(name.clone(), Some(Read { number: self.reads, state }))
            .flatten()
            .map(|read| read.state)
    }

    /// The busiest names that were read: first by waiters, then by permits in use, then by name.
    fn busiest(&self) -> Vec<&Sample> {
        let mut samples: Vec<&Sample> = self.names.values().flatten().filter_map(Read::sample).collect();
        samples.sort_by_key(|sample| (Reverse(sample.waiting), Reverse(in_use(sample)), &sample.name));
        samples.truncate(self.most);
        samples
    }

    /// What is known now.
    pub fn reading(&self, took: Duration, at: Duration) -> Reading {
        let mut samples: Vec<Sample> = self.busiest().into_iter().cloned().collect();
        samples.sort_by(|a, b| a.name.cmp(&b.name));
        let states = || self.names.values().flatten().map(|read| &read.state);
        let unreadable = states().filter(|state| matches!(state, State::Unreadable)).count() as u64;
        let not_accepted = states().filter(|state| matches!(state, State::NotAccepted)).count();
        Reading { samples, found: (self.names.len() - not_accepted) as u64, unreadable, took, at }
    }
}

/// The permits in use. A writer has all permits of a reader-writer lock: it counts as one, like a reader.
pub fn in_use(sample: &Sample) -> u64 {
    match sample.name.kind {
        Kind::RwLock => sample.holders,
        _ => sample.in_use.into(),
    }
}

#[cfg(test)]
mod tests;
