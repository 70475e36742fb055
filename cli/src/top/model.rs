//! What `luagate top` knows and shows. Nothing here reads the server or the terminal.

use super::detail::{Detail, Owner};
use super::scroll::{Scroll, Step};
use crate::args::{Filter, Order};
use crate::sample::{self, NameFilter, Sample};
use luagate::admin::Name;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;
use wildmatch::WildMatch;

/// A report of the reading thread.
#[derive(Debug)]
pub enum Report {
    /// Names that a search has found until now.
    Found(Vec<Name>),
    /// All names that a search has found.
    Stored(Vec<Name>),
    /// The state of a name. `None`: it is not stored any more.
    Read(Name, Option<Sample>),
    /// This name cannot be read, but others can.
    Unreadable(Name, String),
    /// The state of the opened name.
    Opened(Name, Detail),
    /// The result of a revocation.
    Revoked(String),
    /// The server could not be used.
    Failed(String),
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub sample: Sample,
    /// Otherwise only the name is known.
    pub is_read: bool,
}

/// The name whose holders and waiters are on the screen.
#[derive(Debug)]
pub struct Opened {
    pub name: Name,
    /// `None`: not read yet.
    pub detail: Option<Detail>,
    pub scroll: Scroll,
    /// The id of the selected holder or waiter.
    selected: Option<String>,
}

impl Opened {
    pub fn owners(&self) -> &[Owner] {
        self.detail.as_ref().map(|detail| &detail.owners[..]).unwrap_or_default()
    }

    pub fn selected(&self) -> Option<&Owner> {
        self.owners().get(self.scroll.at)
    }
}

/// The server cannot be used.
#[derive(Debug)]
pub struct Outage {
    pub since: SystemTime,
    pub error: String,
}

/// A revocation that is not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub name: Name,
    pub id: String,
    pub description: String,
}

/// A filter that was typed.
#[derive(Debug)]
pub struct Typed {
    pub text: String,
    pattern: WildMatch,
}

impl Typed {
    /// A text without `*` and `?` is searched anywhere in the names.
    pub fn new(text: &str) -> Typed {
        let pattern = if text.contains(['*', '?']) {
            WildMatch::new(text)
        } else {
            WildMatch::new(&format!("*{text}*"))
        };
        Typed { text: text.to_owned(), pattern }
    }
}

pub struct Model {
    /// The server and the prefix.
    pub place: String,
    pub order: Order,
    arguments: NameFilter,
    rows: HashMap<Name, Row>,
    /// The names in the table, in its order.
    shown: Vec<Name>,
    pub unread: usize,
    pub scroll: Scroll,
    /// The selection follows this name if the order changes. `None`: it stays on the first row.
    followed: Option<Name>,
    pub filter: Option<Typed>,
    /// The text of a filter while it is edited.
    pub editing: Option<String>,
    pub opened: Option<Opened>,
    pub question: Option<Question>,
    /// Stays until the next key.
    pub message: Option<String>,
    pub last_reading: Option<SystemTime>,
    pub outage: Option<Outage>,
    /// Whether `shown` has to be computed again.
    is_changed: bool,
}

impl Model {
    pub fn new(place: String, filter: &Filter, order: Order) -> Model {
        Model {
            place,
            order,
            arguments: NameFilter::of(filter),
            rows: HashMap::new(),
            shown: Vec::new(),
            unread: 0,
            scroll: Scroll::default(),
            followed: None,
            filter: None,
            editing: None,
            opened: None,
            question: None,
            message: None,
            last_reading: None,
            outage: None,
            is_changed: false,
        }
    }

    /// Takes a report of the reading thread.
    pub fn take(&mut self, report: Report, now: SystemTime) {
        match report {
            Report::Failed(error) => {
                let since =
                    self.outage.as_ref().map(|outage| outage.since).or(self.last_reading).unwrap_or(now);
                self.outage = Some(Outage { since, error });
                return;
            }
            Report::Revoked(text) => {
                self.message = Some(text);
                return;
            }
            Report::Found(names) => names.into_iter().for_each(|name| self.add(name)),
            Report::Stored(names) => {
                let stored: HashSet<&Name> = names.iter().collect();
                self.rows.retain(|name, _| stored.contains(name));
                names.into_iter().for_each(|name| self.add(name));
            }
            Report::Read(name, Some(sample)) => self.set(&name, sample),
            Report::Read(name, None) => {
                self.rows.remove(&name);
            }
            Report::Unreadable(name, error) => {
                if self.opened.as_ref().is_some_and(|opened| opened.name == name) {
                    self.message = Some(error.clone());
                }
                let sample = Sample { labels: vec![error], ..unread(name.clone()) };
                self.set(&name, sample);
            }
            Report::Opened(name, detail) => self.open_with(&name, detail),
        }
        self.is_changed = true;
        self.last_reading = Some(now);
        self.outage = None;
    }

    fn add(&mut self, name: Name) {
        let row = || Row { sample: unread(name.clone()), is_read: false };
        self.rows.entry(name.clone()).or_insert_with(row);
    }

    /// Only a search adds names, so that one that was removed does not come and go.
    fn set(&mut self, name: &Name, sample: Sample) {
        if let Some(row) = self.rows.get_mut(name) {
            *row = Row { sample, is_read: true };
        }
    }

    fn open_with(&mut self, name: &Name, detail: Detail) {
        match &detail.sample {
            Some(sample) => self.set(name, sample.clone()),
            None => drop(self.rows.remove(name)),
        }
        if let Some(opened) = &mut self.opened
            && opened.name == *name
        {
            let place = detail.owners.iter().position(|owner| Some(&owner.id) == opened.selected.as_ref());
            opened.scroll.at = place.unwrap_or(opened.scroll.at);
            opened.detail = Some(detail);
        }
    }

    fn accepts(&self, row: &Row) -> bool {
        let is_typed = self.filter.as_ref().is_none_or(|typed| typed.pattern.matches(&row.sample.name.name));
        is_typed && self.arguments.accepts_sample(&row.sample)
    }

    /// Computes what is on the screen, whose lists have room for this many rows.
    pub fn arrange(&mut self, height: usize) {
        if std::mem::take(&mut self.is_changed) {
            let mut rows: Vec<&Row> = self.rows.values().filter(|row| self.accepts(row)).collect();
            rows.sort_by(|a, b| sample::compare(&a.sample, &b.sample, self.order));
            self.shown = rows.into_iter().map(|row| row.sample.name.clone()).collect();
            self.unread = self.rows.values().filter(|row| !row.is_read).count();
            let followed = self.followed.as_ref();
            let place = followed.and_then(|name| self.shown.iter().position(|shown| shown == name));
            self.scroll.at = place.unwrap_or(self.scroll.at);
        }
        self.scroll.fit(height, self.shown.len());
        if let Some(opened) = &mut self.opened {
            let length = opened.owners().len();
            opened.scroll.fit(height, length);
            opened.selected = opened.selected().map(|owner| owner.id.clone());
        }
    }

    /// The rows of the table that are on the screen.
    pub fn visible(&self) -> impl Iterator<Item = &Row> {
        self.scroll.window(&self.shown).iter().filter_map(|name| self.rows.get(name))
    }

    /// How many names are shown, and how many were found.
    pub fn counts(&self) -> (usize, usize) {
        (self.shown.len(), self.rows.len())
    }

    /// Moves the selection of the list that is on the screen.
    pub fn step(&mut self, step: Step) {
        if let Some(opened) = &mut self.opened {
            let length = opened.owners().len();
            opened.scroll.step(step, length);
            opened.selected = opened.selected().map(|owner| owner.id.clone());
        } else {
            self.scroll.step(step, self.shown.len());
            self.followed = self.shown.get(self.scroll.at).filter(|_| self.scroll.at > 0).cloned();
        }
    }

    /// Opens the selected name.
    pub fn open(&mut self) {
        if let Some(name) = self.shown.get(self.scroll.at).cloned() {
            self.opened = Some(Opened { name, detail: None, scroll: Scroll::default(), selected: None });
        }
    }

    pub fn set_order(&mut self, order: Order) {
        self.order = order;
        self.is_changed = true;
    }

    pub fn set_filter(&mut self, text: Option<&str>) {
        self.filter = text.filter(|text| !text.is_empty()).map(Typed::new);
        self.is_changed = true;
    }
}

/// A name whose state is not known.
fn unread(name: Name) -> Sample {
    Sample {
        name,
        limit: None,
        pinned: false,
        in_use: 0,
        holders: 0,
        waiting: 0,
        oldest: None,
        longest: None,
        labels: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
