//! The line on stderr that shows a wait: the place in line, and the holders.

use super::report::Report;
use super::thread;
use crate::label;
use crate::table::age;
use luagate::Semaphore;
use luagate::admin;
use luagate::inspection::Inspection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A wait shorter than this shows no line.
const FIRST: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_secs(1);

/// How many holders and waiters are read. A place beyond that is shown as one above it.
const MOST: u32 = 1_000;

/// Shows a text now and then, if the system permits a thread for that, until `is_over`. `own`: the id of this caller. Of several names only its label is known.
pub fn watch(semaphores: Vec<Semaphore>, own: Arc<Mutex<String>>, is_over: Arc<AtomicBool>, report: Report) {
    let _ = thread::start(move || {
        let begun = Instant::now();
        sleep(FIRST);
        while !is_over.load(Ordering::Acquire) {
            let id = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let own = if semaphores.len() == 1 { &id } else { id.rsplit_once('/').map_or("", |(label, _)| label) };
            let shown = semaphores.iter().find_map(|semaphore| {
                let state = admin::inspect_page(semaphore, 0, MOST).ok()?;
                text(semaphore.name(), &state, own, begun.elapsed())
            });
            // During an outage, the last text stays.
            if let Some(text) = shown {
                report.show_line(text);
            }
            sleep(INTERVAL);
        }
    });
}

/// The text, if this caller waits there, as far as that is known.
fn text(name: &str, state: &Inspection, own: &str, since: Duration) -> Option<String> {
    let is_own = |id: &str, label: Option<&str>| id == own || label == Some(own);
    let place = match state.waiters.iter().position(|waiter| is_own(&waiter.id, waiter.label())) {
        Some(index) => (index + 1).to_string(),
        None if state.waiter_count > state.waiters.len() as u64 => format!("above {MOST}"),
        None => return None,
    };
    let (cooling, holders): (Vec<_>, Vec<_>) = state.holders.iter().partition(|holder| holder.cooling_down);
    let names: Vec<String> = holders
        .into_iter()
        .take(3)
        .map(|holder| format!("{} ({})", label::shown(holder.label().unwrap_or(&holder.id)), age(holder.age)))
        .collect();
    let held = match state.holder_count.saturating_sub((names.len() + cooling.len()) as u64) {
        0 if names.is_empty() && cooling.is_empty() => "nobody".to_owned(),
        0 if names.is_empty() => "nobody, but in use until a minimum hold ends".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    };
    let waiting = state.waiter_count;
    Some(format!("waiting for {name} since {}: place {place} of {waiting}, held by {held}", age(since)))
}
