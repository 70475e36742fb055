//! Promise: with the feature `tracing` each operation is a span with its kind, name, outcome and time in
//! line. Everything else is an event. None of them contains a password.

#[path = "../support/recorder.rs"]
mod recorder;
#[path = "../support/mod.rs"]
mod support;

mod events;
mod operations;
mod secrets;
mod tasks;

use luagate::{Gate, Semaphore};
use recorder::{record, spans};
use std::time::Duration;
use support::{Server, eventually, within};
use tracing::Level;

const MOMENT: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// A gate whose operations are recorded.
fn gate(server: &Server) -> Gate {
    record();
    server.gate()
}

/// The span name and outcome of each operation on this name.
fn reported(name: &str) -> Vec<(&'static str, String)> {
    let spans = spans(name).into_iter();
    let reported = spans.map(|reported| (reported.span.unwrap(), reported.field("outcome").to_owned()));
    reported.collect()
}

fn owned(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    expected.iter().map(|(span, word)| (*span, (*word).to_owned())).collect()
}

#[track_caller]
fn assert_reported(name: &str, kind: &str, expected: &[(&'static str, &str)]) {
    // A thread of the gate reports the outcome of a permit that is dropped.
    within(support::SOON, || (reported(name) == owned(expected)).then_some(()));
    let reported = reported(name);
    let reported: Vec<_> = reported.iter().map(|(span, word)| (*span, &**word)).collect();
    assert_eq!(reported, expected, "{name}");
    for span in spans(name) {
        assert_eq!(span.field("kind"), kind, "{span:?}");
        assert_eq!(span.level, Level::DEBUG, "{span:?}");
    }
}

/// The recorded time in line of the last such span, if it has one.
fn waited(name: &str, span: &str) -> Option<Duration> {
    let last = spans(name).into_iter().rfind(|reported| reported.span == Some(span));
    let ms = last.unwrap().fields.get("waited_ms")?.parse().unwrap();
    Some(Duration::from_millis(ms))
}

fn is_in_line(semaphore: &Semaphore) {
    eventually("it is in line", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
}
