//! The output: a line for every event and, below these lines, the holders and waiters. On a terminal this is
//! a table that is redrawn in place; elsewhere it is a line every second.

use crate::{LEASE, LIMIT, WORKERS};
use console::{Style, Term, is_dumb};
use luagate::inspection::Inspection;
use std::io;
use std::time::{Duration, Instant};

/// The rows of the table, each with a holder and a waiter. There are more waiters than holders.
const ROWS: usize = WORKERS - LIMIT as usize;

/// The width of a holder in characters, and the width of the bar for its lease.
const COLUMN: usize = 48;
const BAR: usize = 20;

pub struct Screen {
    term: Term,
    opened: Instant,
    /// The number of lines of the table that are on the terminal now.
    drawn: usize,
    /// The time when the next line about the state is due.
    next_line: Duration,
    killed: Vec<String>,
}

impl Screen {
    pub fn new() -> Screen {
        Screen {
            term: Term::buffered_stdout(),
            opened: Instant::now(),
            drawn: 0,
            next_line: Duration::from_secs(1),
            killed: Vec::new(),
        }
    }

    /// Marks this worker as killed from now on.
    pub fn mark_killed(&mut self, name: &str) {
        self.killed.push(name.to_owned());
    }

    /// Prints an event with its time.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let time = seconds(self.opened.elapsed());
        self.line(&format!("{time:>7}  {text}"))
    }

    /// Prints a line that is not overwritten. The table, if there is one, is drawn again below it.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.draw(&[])?;
        self.term.write_line(text)?;
        self.term.flush()
    }

    /// Shows the current holders and waiters.
    pub fn show(&mut self, state: &Inspection) -> io::Result<()> {
        if self.has_room_for_a_table() {
            return self.draw(&self.table(state));
        }
        if self.opened.elapsed() < self.next_line {
            return Ok(());
        }
        self.next_line += Duration::from_secs(1);
        self.note(&self.sentence(state))
    }

    fn has_room_for_a_table(&self) -> bool {
        let (rows, columns) = self.term.size();
        self.term.is_term()
            && !is_dumb()
            && usize::from(rows) > ROWS + 3
            && usize::from(columns) > COLUMN + 24
    }

    /// Replaces the previous table, in one write to avoid flicker.
    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        self.term.clear_last_lines(self.drawn)?;
        for line in lines {
            self.term.write_line(line)?;
        }
        self.drawn = lines.len();
        self.term.flush()
    }

    fn table(&self, state: &Inspection) -> Vec<String> {
        let inside = format!("inside: {} of {LIMIT}", state.in_use);
        let head = format!("  {inside:<COLUMN$}in line: {}", state.waiter_count);
        let mut lines = vec![String::new(), head];
        for row in 0..ROWS {
            let holder = state.holders.get(row);
            let holder = holder.map(|h| self.holder(h.label(), h.remaining));
            let waiter = state.waiters.get(row);
            let waiter = waiter.map(|w| self.paint(w.label(), self.name(w.label())));
            let (holder, waiter) = (holder.unwrap_or_default(), waiter.unwrap_or_default());
            lines.push(format!("  {holder:<COLUMN$}{waiter}"));
        }
        lines
    }

    /// The name of a holder, and its lease as a bar that becomes shorter.
    fn holder(&self, label: Option<&str>, remaining: Option<Duration>) -> String {
        let left = remaining.unwrap_or(LEASE).min(LEASE);
        let filled = BAR as u128 * left.as_millis() / LEASE.as_millis();
        let bar = "█".repeat(filled as usize);
        let text = format!("{:<19}{bar:<BAR$} {}", self.name(label), seconds(left));
        self.paint(label, format!("{text:<COLUMN$}"))
    }

    /// All holders and waiters on one line.
    fn sentence(&self, state: &Inspection) -> String {
        let holders = state.holders.iter().map(|holder| {
            let left = holder.remaining.unwrap_or_default();
            format!("{} {}", self.name(holder.label()), seconds(left))
        });
        let waiters = state.waiters.iter().map(|waiter| self.name(waiter.label()));
        let holders: Vec<String> = holders.collect();
        let waiters: Vec<String> = waiters.collect();
        format!("inside: {}; in line: {}", holders.join(", "), waiters.join(", "))
    }

    fn name(&self, label: Option<&str>) -> String {
        let mark = if self.is_killed(label) { " (killed)" } else { "" };
        format!("{}{mark}", label.unwrap_or("?"))
    }

    fn paint(&self, label: Option<&str>, text: String) -> String {
        let style = if self.is_killed(label) { Style::new().red() } else { Style::new() };
        style.apply_to(text).to_string()
    }

    fn is_killed(&self, label: Option<&str>) -> bool {
        self.killed.iter().any(|name| Some(name.as_str()) == label)
    }
}

pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
