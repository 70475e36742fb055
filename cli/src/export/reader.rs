//! Reads the state of all names, again and again.

use super::http::Text;
use super::metrics::{Busiest, Reading, encode};
use super::pace::Pace;
use crate::output;
use crate::sample::{NameFilter, Sample};
use luagate::Gate;
use luagate::admin::{self, Name};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How many names are read at the same time.
const AT_ONCE: usize = 4;

/// How many holders and waiters of each name are read.
const PAGE: u32 = 100;

/// A step of a search takes the server about as long as this number of calls.
const STEP: u32 = 4;

/// The shortest pause between two readings.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Reader {
    pub gate: Gate,
    pub names: NameFilter,
    /// The number of names with metrics.
    pub most: usize,
}

impl Reader {
    /// Reads the names, and then the state of each.
    pub fn read(&self) -> Result<Reading, String> {
        let begun = Instant::now();
        let pace = Pace::new();
        let names = self.find(&pace)?;
        let (samples, found) = self.inspect(&names, &pace)?.finish();
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Reading { samples, found, took: begun.elapsed(), at })
    }

    /// The names that the filter accepts, each once.
    fn find(&self, pace: &Pace) -> Result<Vec<Name>, String> {
        let mut search = admin::names(&self.gate).map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        pace.wait(STEP);
        while let Some(names) = search.next_step() {
            let names = names.map_err(|error| error.to_string())?;
            found.extend(names.into_iter().filter(|name| self.names.accepts(name)));
            pace.wait(STEP);
        }
        Ok(found)
    }

    /// The state of the busiest names. All threads stop after the first error.
    fn inspect(&self, names: &[Name], pace: &Pace) -> Result<Busiest, String> {
        let (next, busiest) = (AtomicUsize::new(0), Mutex::new(Busiest::new(self.most)));
        let read = || {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                pace.wait(1);
                match Sample::read(&self.gate, name, PAGE) {
                    Ok(Some(sample)) if self.names.accepts_sample(&sample) => {
                        busiest.lock().unwrap_or_else(PoisonError::into_inner).add(sample);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        next.store(names.len(), Ordering::Relaxed);
                        return Err(error.to_string());
                    }
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            // A system without a free thread only makes the reading slower.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, read).ok();
            let readers: Vec<_> = (1..AT_ONCE.min(names.len())).filter_map(spawn).collect();
            let own = read();
            readers.into_iter().fold(own, |result, reader| {
                result.and(reader.join().unwrap_or_else(|_| Err("a thread has panicked".to_owned())))
            })
        })?;
        Ok(busiest.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads again and again, and replaces the text of the metrics. Never returns.
    pub fn keep_reading(&self, text: &watch::Sender<Text>, interval: Duration) -> ! {
        let (mut last, mut is_failing) = (None, false);
        loop {
            let begun = Instant::now();
            let read = self.read();
            match &read {
                Ok(_) if is_failing => output::warn("the server can be read again"),
                Err(error) if !is_failing => output::warn(format!("the server cannot be read: {error}")),
                _ => {}
            }
            is_failing = read.is_err();
            last = read.ok().map(Arc::new).or(last);
            match encode(last.as_ref(), !is_failing) {
                Ok(new) => drop(text.send_replace(Some(new.into()))),
                Err(error) => output::warn(format!("the metrics cannot be written: {error}")),
            }
            thread::sleep(interval.saturating_sub(begun.elapsed()).max(PAUSE));
        }
    }
}
