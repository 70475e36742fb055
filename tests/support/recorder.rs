//! Records the spans and events of all threads of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A span or an event of luagate.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The name of a span; `None`: an event.
    pub span: Option<&'static str>,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
}

impl Reported {
    fn new(span: Option<&'static str>, metadata: &Metadata<'_>) -> Reported {
        Reported { span, level: *metadata.level(), fields: BTreeMap::new() }
    }

    /// The value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Reported {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

static RECORDS: Mutex<Vec<Reported>> = Mutex::new(Vec::new());

/// Recording an event of this name waits for this lock.
pub const SLOW: &str = "slow";
pub static SLOW_EVENTS: Mutex<()> = Mutex::new(());

struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "luagate"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut reported = Reported::new(Some(span.metadata().name()), span.metadata());
        span.record(&mut reported);
        let mut records = RECORDS.lock().unwrap();
        records.push(reported);
        Id::from_u64(records.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut records = RECORDS.lock().unwrap();
        values.record(&mut records[span.into_u64() as usize - 1]);
    }

    fn event(&self, event: &Event<'_>) {
        let mut reported = Reported::new(None, event.metadata());
        event.record(&mut reported);
        if reported.field("name") == SLOW {
            drop(SLOW_EVENTS.lock().unwrap());
        }
        RECORDS.lock().unwrap().push(reported);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Starts the recording, unless it has started.
pub fn record() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// All records so far.
pub fn all() -> Vec<Reported> {
    RECORDS.lock().unwrap().clone()
}

/// The spans with this name (or names).
pub fn spans(name: &str) -> Vec<Reported> {
    let mut reported = all();
    reported.retain(|reported| reported.span.is_some() && reported.field("name") == name);
    reported
}

/// The events with this text in a field.
pub fn events(text: &str) -> Vec<Reported> {
    let mut reported = all();
    reported.retain(|reported| {
        reported.span.is_none() && reported.fields.values().any(|value| value.contains(text))
    });
    reported
}
