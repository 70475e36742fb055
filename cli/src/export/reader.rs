//! Reads the state of the names.

use super::http::Text;
use super::known::Known;
use super::metrics::{Reading, encode};
use super::pace::Pace;
use crate::address::ServerArgs;
use crate::ended::Ended;
use crate::output;
use crate::sample::Sample;
use crate::unreadable::{self, Unreadable};
use luagate::Gate;
use luagate::admin::{self, Name};
use luagate::errors::CallError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How many names are read at the same time.
const AT_ONCE: usize = 4;

/// How many holders and waiters of each name are read.
const PAGE: u32 = 100;

/// A step of a search takes the server less than this number of calls.
const STEP: u32 = 16;

/// How many names are read before the next look whether there was a scrape.
const NAMES_AT_ONCE: usize = 200;

/// A scrape waits this long for a new reading. A reading that takes longer is shown by the next scrape.
const FRESH: Duration = Duration::from_millis(500);

pub struct Reader {
    pub server: ServerArgs,
    /// `None`: the server could not be reached yet.
    pub gate: Option<Gate>,
    pub known: Known,
    pub pace: Pace,
}

impl Reader {
    /// Searches the names, and reads as many as can have metrics.
    fn read(&mut self) -> Result<Reading, Ended> {
        let begun = Instant::now();
        let gate = self.open()?;
        let found = self.find(&gate).map_err(Ended::of)?;
        self.known.found(found);
        let first = self.known.first();
        self.inspect(&gate, &first)?;
        Ok(self.reading(begun.elapsed()))
    }

    /// Reads all names.
    pub fn read_all(&mut self) -> Result<Reading, Ended> {
        let begun = Instant::now();
        self.read()?;
        while self.read_more(usize::MAX)? {}
        Ok(self.reading(begun.elapsed()))
    }

    /// Reads names that come after the first ones. Returns whether there were some.
    fn read_more(&mut self, count: usize) -> Result<bool, Ended> {
        let next = self.known.next(count);
        let gate = self.open()?;
        self.inspect(&gate, &next)?;
        Ok(!next.is_empty())
    }

    fn reading(&self, took: Duration) -> Reading {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.known.reading(took, at)
    }

    /// The gate, which is opened if it is not open.
    pub fn open(&mut self) -> Result<Gate, Ended> {
        let gate = match self.gate.take() {
            Some(gate) => gate,
            None => self.server.open()?,
        };
        self.gate = Some(gate.clone());
        Ok(gate)
    }

    /// The names that the filter accepts, each once.
    fn find(&self, gate: &Gate) -> Result<Vec<Name>, CallError> {
        let mut search = admin::names(gate)?;
        let mut found = Vec::new();
        self.pace.wait(STEP);
        while let Some(names) = search.next_step().transpose()? {
            found.extend(names.into_iter().filter(|name| self.known.accepts(name)));
            self.pace.wait(STEP);
        }
        Ok(found)
    }

    /// Reads the state of these names. All threads stop after the first error.
    fn inspect(&mut self, gate: &Gate, names: &[Name]) -> Result<(), Ended> {
        let (next, pace) = (AtomicUsize::new(0), &self.pace);
        let states = Mutex::new(Vec::with_capacity(names.len()));
        let read = || {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                pace.wait(1);
                let state = unreadable::inspect(gate, name, 0, PAGE).inspect_err(|_| {
                    next.store(names.len(), Ordering::Relaxed);
                })?;
                if let Ok(state) = &state {
                    pace.listed(state.holders.len() + state.waiters.len());
                }
                let sample = state.map(|state| Sample::of(name, &state));
                states.lock().unwrap_or_else(PoisonError::into_inner).push((name, sample));
            }
            Ok(())
        };
        let result = thread::scope(|scope| {
            // A system without a free thread only makes the reading slower.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, read).ok();
            let readers: Vec<_> = (1..AT_ONCE.min(names.len())).filter_map(spawn).collect();
            let own = read().map_err(|error: CallError| Ended::of(error));
            readers.into_iter().fold(own, |result, reader| {
                let read = reader.join().map_err(|_| Ended::new(1, "a thread has panicked"));
                result.and(read.and_then(|read| read.map_err(Ended::of)))
            })
        });
        result.and(self.take(states.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Keeps what was read, and warns of names that cannot be read, once.
    fn take(&mut self, states: Vec<(&Name, Result<Option<Sample>, Unreadable>)>) -> Result<(), Ended> {
        let (mut unreadable, mut new, mut read) = (Vec::new(), Vec::new(), 0);
        for (name, sample) in states {
            match sample {
                Ok(sample) => {
                    self.known.read(name, sample);
                    read += 1;
                }
                Err(found) if self.known.cannot_read(name) => new.push(found),
                Err(found) => unreadable.push(found),
            }
        }
        new.sort_by(|a, b| a.name.cmp(&b.name));
        unreadable::check(&new, read)?;
        unreadable::check(&unreadable, read)?;
        unreadable::warn(&new);
        Ok(())
    }

    /// Reads in the rhythm of the scrapes, at most once in each interval. Ends only with an error.
    pub fn keep_reading(&mut self, scrapes: &Receiver<()>, mut board: Board, interval: Duration) -> Ended {
        loop {
            let begun = Instant::now();
            board.show(self.read(), begun + interval);
            let is_scraped = match self.read_others(scrapes) {
                Ok((is_scraped, true)) => {
                    board.replace(self.reading(begun.elapsed()));
                    is_scraped
                }
                Ok((is_scraped, false)) => is_scraped,
                Err(_) => false, // the next reading reports it
            };
            if !is_scraped && scrapes.recv().is_err() {
                return Ended::new(1, "the thread that answers requests has ended");
            }
            thread::sleep((begun + interval).saturating_duration_since(Instant::now()));
        }
    }

    /// Reads the other names until a scrape comes. Returns whether one came, and whether names were read.
    fn read_others(&mut self, scrapes: &Receiver<()>) -> Result<(bool, bool), Ended> {
        let mut is_read = false;
        while scrapes.try_recv().is_err() {
            if !self.read_more(NAMES_AT_ONCE)? {
                return Ok((false, is_read));
            }
            is_read = true;
        }
        Ok((true, is_read))
    }
}

/// Where the scrapes get their text.
pub struct Board {
    pub texts: watch::Sender<Text>,
    /// The last reading that succeeded.
    pub last: Option<Arc<Reading>>,
    pub is_failing: bool,
}

impl Board {
    /// Shows the result of a reading. The next one does not begin before `due`.
    fn show(&mut self, read: Result<Reading, Ended>, due: Instant) {
        let mut patience = Duration::ZERO;
        match read {
            Ok(reading) => {
                if std::mem::take(&mut self.is_failing) {
                    output::warn("the server can be read again");
                }
                if reading.took < FRESH {
                    patience = FRESH;
                }
                self.last = Some(Arc::new(reading));
            }
            Err(ended) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    output::warn(format!("the server cannot be read: {}", ended.message.unwrap_or_default()));
                }
            }
        }
        self.publish(|text| Text { number: text.number + 1, due, patience, ..text });
    }

    /// Replaces what the last reading has found by what is known now.
    fn replace(&mut self, reading: Reading) {
        self.last = self.last.as_ref().map(|last| Arc::new(Reading { took: last.took, ..reading }));
        self.publish(|text| text);
    }

    fn publish(&self, change: impl FnOnce(Text) -> Text) {
        match encode(self.last.as_ref(), !self.is_failing) {
            Ok(metrics) => {
                let text = change(self.texts.borrow().clone());
                self.texts.send_replace(Text { metrics: metrics.into(), ..text });
            }
            Err(error) => output::warn(format!("the metrics cannot be written: {error}")),
        }
    }
}
