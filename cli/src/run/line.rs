//! The line on stderr that shows a wait: the place in line, and the holders.

use super::report::Report;
use super::thread;
use crate::label;
use crate::output::visible;
use crate::table::age;
use luagate::Semaphore;
use luagate::admin;
use luagate::inspection::Inspection;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthChar;

/// A wait shorter than this shows no line.
const FIRST: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_secs(1);

/// How many holders and waiters are read. A place beyond that is shown as one above it.
const MOST: u32 = 1_000;

/// The beginning of every line on stderr.
const PREFIX: &str = "luagate: ";

/// Shows a text now and then, if the system permits a thread for that, until `is_over`. `own`: the id of this
/// caller. Of several names only its label is known.
pub fn watch(semaphores: Vec<Semaphore>, own: Arc<Mutex<String>>, is_over: Arc<AtomicBool>, report: Report) {
    let _ = thread::start(move || {
        let begun = Instant::now();
        sleep(FIRST);
        while !is_over.load(Ordering::Acquire) {
            let id = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let own =
                if semaphores.len() == 1 { &id } else { id.rsplit_once('/').map_or("", |(label, _)| label) };
            let shown = semaphores.iter().find_map(|semaphore| {
                let state = admin::inspect_page(semaphore, 0, MOST).ok()?;
                text(semaphore.name(), &state, own, begun.elapsed())
            });
            // During an outage, the last text stays.
            if let Some(text) = shown {
                show(&report, &text);
            }
            sleep(INTERVAL);
        }
    });
}

/// On a terminal, as much as fits a row: a letter may take two columns.
fn show(report: &Report, text: &str) {
    if !io::stderr().is_terminal() {
        return report.show_line(text.to_owned());
    }
    let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
    // The last column stays free: after a letter there, some terminals begin a new row.
    if let Some(left) = columns.checked_sub(PREFIX.len() + 1) {
        report.show_line(cut(&visible(text), left));
    }
}

/// The beginning of a text, in at most this many columns.
fn cut(text: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).collect()
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

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_by_columns_and_not_by_letters() {
        assert_eq!(
            ["abc", "東京都", "a東京", "e\u{301}ab"].map(|text| cut(text, 4)),
            ["abc", "東京", "a東", "e\u{301}ab"]
        );
        assert_eq!(cut("東", 1), "");
    }
}
