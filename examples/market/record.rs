//! The record: one file to which every process appends a line for each event. The order of the lines is the
//! order of the events. A worker writes its entry after it was granted a permit, and its exit before it
//! releases the permit. So a worker that is inside according to the record holds a permit.

use crate::Outcome;
use luagate::Ticket;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::Stdio;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// In place of the ticket of a worker that did not wait in line.
const AT_ONCE: &str = "at-once";

pub struct Event {
    pub worker: String,
    /// Time since 1970, by the clock that all processes of this machine share.
    pub at: Duration,
    pub what: What,
}

pub enum What {
    /// `ticket`: the place in line of a worker that waited.
    Enter {
        fence: u64,
        ticket: Option<Ticket>,
    },
    Exit {
        fence: u64,
    },
    /// Written by the main process, after the worker process has ended.
    Killed,
}

impl Event {
    pub fn now(worker: &str, what: What) -> Event {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Event { worker: worker.to_owned(), at: at.unwrap_or_default(), what }
    }

    /// One write for each line, so that lines of several processes do not mix.
    pub fn append_to(&self, mut file: impl Write) -> io::Result<()> {
        file.write_all(format!("{self}\n").as_bytes())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, at) = (&self.worker, self.at.as_micros());
        match self.what {
            What::Enter { fence, ticket } => {
                let ticket = ticket.map_or(AT_ONCE.to_owned(), |ticket| ticket.to_string());
                write!(f, "enter {worker} {fence} {ticket} {at}")
            }
            What::Exit { fence } => write!(f, "exit {worker} {fence} {at}"),
            What::Killed => write!(f, "killed {worker} {at}"),
        }
    }
}

impl FromStr for Event {
    type Err = Box<dyn std::error::Error>;

    fn from_str(line: &str) -> Outcome<Event> {
        let words: Vec<&str> = line.split(' ').collect();
        let (worker, at, what) = match words[..] {
            ["enter", worker, fence, ticket, at] => {
                let ticket = if ticket == AT_ONCE { None } else { Some(ticket.parse()?) };
                let fence = fence.parse()?;
                (worker, at, What::Enter { fence, ticket })
            }
            ["exit", worker, fence, at] => {
                let fence = fence.parse()?;
                (worker, at, What::Exit { fence })
            }
            ["killed", worker, at] => (worker, at, What::Killed),
            _ => return Err(format!("a line of the record cannot be read: {line}").into()),
        };
        Ok(Event { worker: worker.to_owned(), at: Duration::from_micros(at.parse()?), what })
    }
}

/// A file without a name. The system deletes it when no process has it open any more.
pub struct Record(File);

impl Record {
    pub fn new() -> io::Result<Record> {
        let file = tempfile::Builder::new().append(true).tempfile()?;
        Ok(Record(file.into_file()))
    }

    /// The record as the stdout of a worker.
    pub fn as_stdout(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    pub fn append(&self, event: &Event) -> io::Result<()> {
        event.append_to(&self.0)
    }

    pub fn read(&self) -> Outcome<Vec<Event>> {
        let mut text = String::new();
        (&self.0).rewind()?;
        (&self.0).read_to_string(&mut text)?;
        text.lines().map(str::parse).collect()
    }
}
