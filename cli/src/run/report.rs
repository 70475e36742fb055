//! The texts that this process writes to stderr. Its thread writes, so a stderr that is blocked delays
//! nothing else.

use super::thread;
use crate::ended::Ended;
use crate::output::visible;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

/// How many texts wait for a blocked stderr. Further ones are lost.
const MOST: usize = 64;

/// How long the end of the process waits until all is written.
const LAST: Duration = Duration::from_millis(500);

/// Removes the line of a terminal.
const CLEAR: &str = "\r\x1b[K";

enum Text {
    /// A message that stays.
    Message(String),
    /// The line that shows the wait. On a terminal it is replaced by the next one; elsewhere only the first
    /// one is shown.
    Line(String),
    NoLine {
        is_last: bool,
    },
    Flush(SyncSender<()>),
}

#[derive(Clone)]
pub struct Report {
    texts: SyncSender<Text>,
}

impl Report {
    pub fn start() -> Result<Report, Ended> {
        let (sender, texts) = mpsc::sync_channel(MOST);
        thread::start(move || {
            super::signals::block();
            write_all(&texts);
        })?;
        Ok(Report { texts: sender })
    }

    pub fn tell(&self, text: impl std::fmt::Display) {
        self.send(Text::Message(text.to_string()));
    }

    pub fn show_line(&self, text: String) {
        self.send(Text::Line(text));
    }

    /// Removes the line from a terminal.
    pub fn clear_line(&self) {
        self.send(Text::NoLine { is_last: false });
    }

    /// Removes the line from a terminal, and shows no other one.
    pub fn end_line(&self) {
        self.send(Text::NoLine { is_last: true });
    }

    /// Returns when all is written, unless stderr is blocked.
    pub fn flush(&self) {
        let (done, is_done) = mpsc::sync_channel(1);
        self.send(Text::Flush(done));
        let _ = is_done.recv_timeout(LAST);
    }

    fn send(&self, text: Text) {
        let _ = self.texts.try_send(text);
    }
}

fn write_all(texts: &Receiver<Text>) {
    let mut stderr = io::stderr();
    let is_terminal = stderr.is_terminal();
    let (mut is_shown, mut is_over) = (false, false);
    for text in texts {
        let shown = match text {
            Text::Message(text) => format!("luagate: {}\n", visible(&text)),
            Text::Line(text) if is_terminal && !is_over => {
                is_shown = true;
                let width =
                    crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(20));
                let text: String = format!("luagate: {}", visible(&text)).chars().take(width - 1).collect();
                format!("{CLEAR}{text}")
            }
            Text::Line(text) if !is_shown && !is_over => {
                is_shown = true;
                format!("luagate: {}\n", visible(&text))
            }
            Text::Line(_) => String::new(),
            Text::NoLine { is_last } => {
                is_over |= is_last;
                let is_removed = is_terminal && std::mem::take(&mut is_shown);
                if is_removed { CLEAR.to_owned() } else { String::new() }
            }
            Text::Flush(done) => {
                let _ = done.try_send(());
                String::new()
            }
        };
        // One write for each text: commands that share a stderr do not mix their lines.
        let _ = stderr.write_all(shown.as_bytes());
    }
}
