//! The state of one name, as `ls`, `top` and `export` show it.

use crate::args::{Column, Filter, KindArg, Order};
use crate::ended::Ended;
use crate::table::ms;
use crate::unreadable;
use luagate::Gate;
use luagate::admin::{self, Kind, Name};
use luagate::errors::CallError;
use luagate::inspection::Inspection;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicUsize};
use std::thread;
use std::time::Duration;
use wildmatch::WildMatch;

/// How many names are read at the same time.
const AT_ONCE: usize = 8;

/// How many different labels are kept.
const LABELS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub name: Name,
    /// `None`: no limit is stored. For a reader-writer lock `None` too, since its limit is the highest one.
    pub limit: Option<u32>,
    pub pinned: bool,
    pub in_use: u32,
    pub holders: u64,
    pub waiting: u64,
    /// Since the grant of the oldest holder that was read.
    pub oldest: Option<Duration>,
    /// Since the first waiter joined the line.
    pub longest: Option<Duration>,
    /// Different labels of the holders that were read, in the order of their leases' ends.
    pub labels: Vec<String>,
}

impl Sample {
    /// `None`: the name is not stored any more.
    pub fn of(name: &Name, state: &Inspection) -> Option<Sample> {
        let limit = state.limit?;
        let held = || state.holders.iter().filter(|holder| !holder.cooling_down);
        let mut labels = Vec::new();
        for label in held().filter_map(|holder| holder.label()) {
            if labels.len() < LABELS && !labels.iter().any(|known| known == label) {
                labels.push(label.to_owned());
            }
        }
        Some(Sample {
            name: name.clone(),
            limit: (name.kind != Kind::RwLock).then_some(limit),
            pinned: state.pinned,
            in_use: state.in_use,
            holders: state.holder_count,
            waiting: state.waiter_count,
            oldest: held().map(|holder| holder.age).max(),
            longest: state.waiters.iter().map(|waiter| waiter.age).max(),
            labels,
        })
    }

    pub fn is_busy(&self) -> bool {
        self.in_use > 0 || self.waiting > 0
    }

    /// `2/5`; of a reader-writer lock `3 reading` or `writing`.
    pub fn usage(&self) -> String {
        match (self.limit, self.in_use) {
            (Some(limit), in_use) => format!("{in_use}/{limit}{}", if self.pinned { "*" } else { "" }),
            (None, in_use) if i64::from(in_use) >= crate::args::MOST => "writing".to_owned(),
            (None, 0) => "free".to_owned(),
            (None, in_use) => format!("{in_use} reading"),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "name": self.name.name,
            "kind": self.name.kind.as_str(),
            "limit": self.limit,
            "pinned": self.pinned,
            "in_use": self.in_use,
            "holders": self.holders,
            "waiting": self.waiting,
            "oldest_holder_ms": self.oldest.map(ms),
            "longest_wait_ms": self.longest.map(ms),
            "labels": self.labels,
        })
    }
}

/// The names that a filter accepts.
pub struct NameFilter {
    patterns: Vec<WildMatch>,
    kind: Option<Kind>,
    busy: bool,
}

impl NameFilter {
    pub fn of(filter: &Filter) -> NameFilter {
        NameFilter {
            patterns: filter.patterns.iter().map(|pattern| WildMatch::new(pattern)).collect(),
            kind: filter.kind.map(Kind::from),
            busy: filter.busy,
        }
    }

    pub fn accepts(&self, name: &Name) -> bool {
        let matches = |pattern: &WildMatch| pattern.matches(&name.name);
        self.kind.is_none_or(|kind| kind == name.kind)
            && (self.patterns.is_empty() || self.patterns.iter().any(matches))
    }

    pub fn accepts_sample(&self, sample: &Sample) -> bool {
        !self.busy || sample.is_busy()
    }

    /// All stored names that the filter accepts, without their state.
    pub fn find(&self, gate: &Gate) -> Result<Vec<Name>, CallError> {
        admin::names(gate)?.filter(|name| name.as_ref().map_or(true, |name| self.accepts(name))).collect()
    }
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Kind {
        match kind {
            KindArg::Semaphore => Kind::Semaphore,
            KindArg::Mutex => Kind::Mutex,
            KindArg::Rwlock => Kind::RwLock,
        }
    }
}

/// Reads all names that the filter accepts. Warns of those that cannot be read.
pub fn read_all(gate: &Gate, filter: &Filter) -> Result<Vec<Sample>, Ended> {
    let filter = NameFilter::of(filter);
    let names = filter.find(gate).map_err(Ended::of)?;
    let next = AtomicUsize::new(0);
    let read = || {
        let (mut samples, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(name) = names.get(next.fetch_add(1, atomic::Ordering::Relaxed)) {
            match unreadable::inspect(gate, name, 0, 1_000)? {
                Ok(state) => samples.extend(Sample::of(name, &state)),
                Err(found) => unreadable.push(found),
            }
        }
        Ok::<_, CallError>((samples, unreadable))
    };
    let (mut samples, mut unreadable) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let readers: Vec<_> = (0..AT_ONCE.min(names.len())).map(|_| scope.spawn(read)).collect();
        for reader in readers {
            let read =
                reader.join().map_err(|_| Ended::new(1, "a thread has panicked"))?.map_err(Ended::of)?;
            samples.extend(read.0);
            unreadable.extend(read.1);
        }
        Ok::<_, Ended>(())
    })?;
    unreadable::check(&unreadable, samples.len())?;
    unreadable.sort_by(|a, b| a.name.cmp(&b.name));
    unreadable::warn(&unreadable);
    samples.retain(|sample| filter.accepts_sample(sample));
    Ok(samples)
}

/// Sorts as asked; equal ones by name. Numbers and times begin with the largest.
pub fn sort(samples: &mut [Sample], order: Order) {
    samples.sort_by(|a, b| compare(a, b, order));
}

/// The order of two samples in a table.
pub fn compare(a: &Sample, b: &Sample, order: Order) -> Ordering {
    let by_column = compare_column(a, b, order.sort).then_with(|| a.name.cmp(&b.name));
    if order.reverse { by_column.reverse() } else { by_column }
}

fn compare_column(a: &Sample, b: &Sample, column: Column) -> Ordering {
    match column {
        Column::Name => a.name.cmp(&b.name),
        Column::Kind => a.name.kind.cmp(&b.name.kind),
        Column::Limit => b.limit.cmp(&a.limit),
        Column::InUse => b.in_use.cmp(&a.in_use),
        Column::Waiting => b.waiting.cmp(&a.waiting),
        Column::Oldest => b.oldest.cmp(&a.oldest),
        Column::Longest => b.longest.cmp(&a.longest),
    }
}
