//! Recording: one file for each process, with a line at the start and a line at the end of each call. Each
//! line is written at once, so the file of a killed process contains all its calls, also the unfinished ones.
//!
//! Spans are measured by the monotonic clock, which all processes of a machine share and which is never set.
//! Leases end by the server's wall clock, so each line contains that too. The distance between the clocks
//! must stay almost constant.

use super::{Call, History, Micros, Op, Outcome};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The recording of one process, shared by its threads.
pub struct Recorder {
    file: File,
    next: AtomicU64,
}

/// A call under way.
#[must_use = "a call that is never ended counts as one that never returned"]
pub struct Started<'a> {
    recorder: &'a Recorder,
    number: u64,
}

fn micros(clock: ClockId) -> i64 {
    let time = Duration::try_from(clock_gettime(clock)).unwrap();
    time.as_micros() as i64
}

/// Both clocks, in the format of a line.
fn clocks() -> String {
    let monotonic = micros(ClockId::Monotonic);
    format!("{monotonic} {}", micros(ClockId::Realtime) - monotonic)
}

impl Recorder {
    /// Records into a new file in `folder`.
    pub fn create(folder: &Path) -> Recorder {
        let name = format!("{}-{}", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..4]);
        let file = File::options().append(true).create_new(true).open(folder.join(name + ".calls"));
        Recorder { file: file.unwrap(), next: AtomicU64::new(1) }
    }

    /// Records the start of a call.
    pub fn start(&self, semaphore: &str, op: &Op) -> Started<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(format!("{number} start {} {semaphore} {op}\n", clocks()));
        Started { recorder: self, number }
    }

    /// One write, so that lines of several threads do not mix and no line is partial.
    fn write(&self, line: String) {
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}

impl Started<'_> {
    /// Records the end of the call.
    pub fn end(self, outcome: &Outcome) {
        let at = clocks(); // before any other work
        self.recorder.write(format!("{} end {at} {outcome}\n", self.number));
    }
}

impl History {
    /// Reads all recordings in `folder`.
    pub fn read(folder: &Path) -> History {
        let mut calls: Vec<Call> = Vec::new();
        let mut clocks = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let process = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut open = HashMap::new();
            // Ignores an unfinished line of a killed process.
            for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let bad = || -> ! { panic!("{}: {line}", path.display()) };
                let [number, which, at, offset, rest @ ..] = &words[..] else { bad() };
                let (Ok(at), Ok(offset)) = (at.parse::<i64>(), offset.parse::<i64>()) else { bad() };
                clocks.push((at, offset));
                match (*which, rest) {
                    ("start", [semaphore, op @ ..]) => {
                        open.insert(number.to_string(), calls.len());
                        calls.push(Call {
                            who: format!("{process}#{number}"),
                            semaphore: (*semaphore).to_owned(),
                            op: Op::read(op).unwrap_or_else(|| bad()),
                            start: at as Micros,
                            end: None,
                            outcome: Outcome::NeverReturned,
                        });
                    }
                    ("end", reported) => {
                        let call = open.remove(*number).unwrap_or_else(|| bad());
                        calls[call].end = Some(at as Micros);
                        calls[call].outcome = Outcome::read(reported).unwrap_or_else(|| bad());
                    }
                    _ => bad(),
                }
            }
        }
        let distances = distances(&mut clocks);
        let wall = |at: Micros| {
            let since = distances.partition_point(|(from, _)| *from <= at as i64);
            let offset = distances[..since].last().map_or(0, |(_, offset)| *offset);
            (at as i64 + offset) as Micros
        };
        for call in &mut calls {
            call.start = wall(call.start);
            call.end = call.end.map(wall);
        }
        History { calls }
    }
}

/// The number of lines for one measurement of the distance.
const ENOUGH: usize = 500;

/// The distance from the monotonic to the wall clock, as pairs of start time and distance. Systems adjust the
/// wall clock slightly all the time. A process may be paused between its two clock readings, so the smallest
/// distance of many lines is the correct one.
fn distances(clocks: &mut [(i64, i64)]) -> Vec<(i64, i64)> {
    clocks.sort_unstable();
    let least = |part: &[(i64, i64)]| part.iter().map(|(_, offset)| *offset).min().unwrap_or(0);
    let all = least(clocks);
    let mut found: Vec<(i64, i64)> = Vec::new();
    for part in clocks.chunks(ENOUGH) {
        let offset = match (part.len(), found.last()) {
            (ENOUGH, _) => least(part),
            (_, Some((_, before))) => *before,
            (_, None) => all,
        };
        let moved = offset - all;
        assert!(
            moved < 1_000,
            "the machine's clock was set by {moved} us meanwhile: leases cannot be checked"
        );
        found.push((part[0].0, offset));
    }
    found
}
