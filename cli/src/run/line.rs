//! The line on stderr that shows a wait: the place in line, and the holders.

use super::Event;
use crate::label;
use crate::table::age;
use luagate::Semaphore;
use luagate::admin;
use luagate::inspection::Inspection;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// A wait shorter than this shows no line.
const FIRST: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_secs(1);

/// How many holders and waiters are read. A place beyond that is shown as one above it.
const MOST: u32 = 1_000;

/// Sends a text now and then, until `is_over`. `own`: the id or label of this caller.
pub fn watch(semaphores: Vec<Semaphore>, own: String, is_over: Arc<AtomicBool>, events: Sender<Event>) {
    thread::spawn(move || {
        let begun = Instant::now();
        thread::sleep(FIRST);
        while !is_over.load(Ordering::Acquire) {
            let shown = semaphores.iter().find_map(|semaphore| {
                let state = admin::inspect_page(semaphore, 0, MOST).ok()?;
                text(semaphore.name(), &state, &own, begun.elapsed())
            });
            // During an outage, the last text stays.
            if let Some(text) = shown
                && events.send(Event::Line(text)).is_err()
            {
                return;
            }
            thread::sleep(INTERVAL);
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
    let holders = state.holders.iter().filter(|holder| !holder.cooling_down);
    let names: Vec<String> = holders
        .take(3)
        .map(|holder| format!("{} ({})", label::shown(holder.label().unwrap_or(&holder.id)), age(holder.age)))
        .collect();
    let more = state.holder_count.saturating_sub(names.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let held = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    let waiting = state.waiter_count;
    Some(format!("waiting for {name} since {}: place {place} of {waiting}, held by {held}{more}", age(since)))
}

/// Shows the line. On a terminal it is replaced by the next one; elsewhere only the first one is shown.
#[derive(Default)]
pub struct Line {
    is_shown: bool,
}

impl Line {
    pub fn show(&mut self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = if stderr.is_terminal() {
            let width = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(20));
            let text: String = format!("luagate: {text}").chars().take(width - 1).collect();
            write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush())
        } else if !self.is_shown {
            writeln!(stderr, "luagate: {text}")
        } else {
            Ok(())
        };
        self.is_shown = true;
    }

    /// Removes it from a terminal.
    pub fn clear(&mut self) {
        let mut stderr = io::stderr().lock();
        if std::mem::take(&mut self.is_shown) && stderr.is_terminal() {
            let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}
