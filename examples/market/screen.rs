//! What is shown: what happens, a line each, and below it on a terminal the state of the market, redrawn in place. Where
//! stdout is none, the state is a line every second.

use crate::{LEASE, LIMIT, Outcome, WORKERS};
use console::{Style, Term};
use luagate::{Holder, Inspection, Waiter};
use std::io;
use std::time::{Duration, Instant};

const BAR: usize = 20;

/// Rows of the table: a holder and a waiter each, and most wait.
const ROWS: usize = WORKERS - LIMIT as usize;

pub struct Screen {
    term: Term,
    opened: Instant,
    /// Lines of the table that stand on the terminal now.
    drawn: usize,
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

    /// From now on this one is shown as dead.
    pub fn mark_killed(&mut self, name: &str) {
        self.killed.push(name.to_owned());
    }

    /// Something notable: a line that stays.
    pub fn note(&mut self, text: &str) -> Outcome {
        self.wipe()?;
        self.line(text)
    }

    /// Who holds and who waits now.
    pub fn show(&mut self, state: &Inspection) -> Outcome {
        if self.term.is_term() {
            return Ok(self.draw(&self.table(state))?);
        }
        if self.opened.elapsed() < self.next_line {
            return Ok(());
        }
        self.next_line += Duration::from_secs(1);
        self.line(&summary(state))
    }

    /// Takes the table away.
    pub fn wipe(&mut self) -> Outcome {
        Ok(self.draw(&[])?)
    }

    fn line(&self, text: &str) -> Outcome {
        let seconds = self.opened.elapsed().as_secs_f64();
        self.term.write_line(&format!("{seconds:5.1} s  {text}"))?;
        Ok(self.term.flush()?)
    }

    /// The terminal is written to at once, so nothing flickers.
    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        self.term.clear_last_lines(self.drawn)?;
        for line in lines {
            self.term.write_line(line)?;
        }
        self.drawn = lines.len();
        self.term.flush()
    }

    fn table(&self, state: &Inspection) -> Vec<String> {
        let mut lines = vec![
            String::new(),
            format!(
                "  {:<45}in line: {}",
                format!("inside: {} of {LIMIT}", state.in_use),
                state.waiter_count
            ),
        ];
        for row in 0..ROWS {
            let holder = state.holders.get(row).map(|holder| self.holder(holder));
            let waiter = state.waiters.get(row).map(|waiter| self.waiter(waiter));
            lines.push(format!(
                "  {}{}",
                holder.unwrap_or(" ".repeat(45)),
                waiter.unwrap_or_default()
            ));
        }
        lines
    }

    fn holder(&self, holder: &Holder) -> String {
        let name = holder.label().unwrap_or("?");
        let left = holder.remaining.unwrap_or_default();
        let part = left.as_secs_f64() / LEASE.as_secs_f64();
        let bar = "█".repeat((part * BAR as f64).ceil() as usize);
        let text = format!("{name:<11}{bar:<BAR$} {:.1} s", left.as_secs_f64());
        self.style_of(name)
            .apply_to(format!("{text:<45}"))
            .to_string()
    }

    fn waiter(&self, waiter: &Waiter) -> String {
        let name = waiter.label().unwrap_or("?");
        self.style_of(name).apply_to(name).to_string()
    }

    fn style_of(&self, name: &str) -> Style {
        match self.killed.iter().any(|killed| killed == name) {
            true => Style::new().red(),
            false => Style::new(),
        }
    }
}

/// Everything in a line.
fn summary(state: &Inspection) -> String {
    let holders = state.holders.iter().map(|holder| {
        let name = holder.label().unwrap_or("?");
        let left = holder.remaining.unwrap_or_default().as_secs_f64();
        format!("{name} ({left:.1} s)")
    });
    let waiters = state
        .waiters
        .iter()
        .map(|waiter| waiter.label().unwrap_or("?"));
    let holders: Vec<String> = holders.collect();
    let waiters: Vec<&str> = waiters.collect();
    format!(
        "inside: {}; in line: {}",
        holders.join(", "),
        waiters.join(", ")
    )
}
