//! Promise: with the feature `tracing` each operation is a span that says of what kind and name it is, what came of it and
//! how long it waited; what happens besides is an event; and nothing of that has a password in it.

#[path = "../support/recorder.rs"]
mod recorder;
#[path = "../support/mod.rs"]
mod support;

mod events;
mod operations;
mod secrets;

use luagate::{Gate, Semaphore};
use recorder::{record, spans};
use std::time::Duration;
use support::{Server, eventually};
use tracing::Level;

const MOMENT: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// A gate whose operations are recorded.
fn gate(server: &Server) -> Gate {
    record();
    server.gate()
}

/// The span and the outcome of each operation on this name.
fn told(name: &str) -> Vec<(&'static str, String)> {
    let spans = spans(name).into_iter();
    let told = spans.map(|told| (told.span.unwrap(), told.field("outcome").to_owned()));
    told.collect()
}

#[track_caller]
fn assert_told(name: &str, kind: &str, expected: &[(&'static str, &str)]) {
    let told = told(name);
    let told: Vec<_> = told.iter().map(|(span, word)| (*span, &**word)).collect();
    assert_eq!(told, expected, "{name}");
    for span in spans(name) {
        assert_eq!(span.field("kind"), kind, "{span:?}");
        assert_eq!(span.level, Level::DEBUG, "{span:?}");
    }
}

/// How long the last of these waited, where it says so.
fn waited(name: &str, span: &str) -> Option<Duration> {
    let last = spans(name).into_iter().rfind(|told| told.span == Some(span));
    let ms = last.unwrap().fields.get("waited_ms")?.parse().unwrap();
    Some(Duration::from_millis(ms))
}

fn is_in_line(semaphore: &Semaphore) {
    eventually("it stands in line", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
}
