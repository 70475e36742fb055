//! The report on all mutants.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a mutant was detected, if it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It does not compile.
    Invalid,
    /// Detected by single calls: conformance cases or unit tests.
    ByCase,
    ByWorld,
    ByModelChecking,
    Undetected,
}

/// The mutants without effect, and why. A line that begins with `#` is the reason for the lines after it.
pub struct Listed(BTreeMap<String, String>);

impl Listed {
    pub fn read(text: &str) -> Listed {
        let mut why = "";
        let mut listed = BTreeMap::new();
        for line in text.lines() {
            match line.strip_prefix("# ") {
                Some(reason) => why = reason,
                None if line.is_empty() => {}
                None => drop(listed.insert(line.to_owned(), why.to_owned())),
            }
        }
        Listed(listed)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Prints the result, and returns whether something needs attention. `all`: no mutant was left out.
    pub fn report(&self, mut fates: Vec<(String, usize, Fate)>, all: bool) -> ExitCode {
        fates.sort_by(|a, b| (a.2, &a.0, a.1).cmp(&(b.2, &b.0, b.1)));
        let mut bad = 0;
        for (key, line, fate) in &fates {
            match (fate, self.contains(key)) {
                (Fate::Undetected, false) => {} // printed before
                (Fate::ByCase | Fate::ByWorld | Fate::ByModelChecking, true) => {
                    println!("detected, but listed as equivalent: {key} (line {line})");
                }
                _ => continue,
            }
            bad += 1;
        }
        for key in self.0.keys().filter(|_| all) {
            if !fates.iter().any(|(other, ..)| other == key) {
                println!("listed, but no such mutant exists: {key}");
                bad += 1;
            }
        }
        let count = |of| fates.iter().filter(|(.., fate)| *fate == of).count();
        let listed = fates.iter().filter(|(key, ..)| self.contains(key)).count();
        println!(
            "{} mutants: {} detected by a case, {} by a simulated world, {} by model checking, {listed} listed as equivalent, {} invalid; {bad} need attention",
            fates.len(),
            count(Fate::ByCase),
            count(Fate::ByWorld),
            count(Fate::ByModelChecking),
            count(Fate::Invalid),
        );
        match bad {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

/// Prints the progress now and then.
pub struct Progress {
    begun: Instant,
    reported: Instant,
    total: usize,
}

impl Progress {
    pub fn new(total: usize) -> Progress {
        let now = Instant::now();
        Progress { begun: now, reported: now, total }
    }

    pub fn done(&mut self, done: usize) {
        if done > 0 && self.reported.elapsed() > Duration::from_secs(20) {
            self.reported = Instant::now();
            let left = self.begun.elapsed().mul_f64((self.total - done) as f64 / done as f64);
            eprintln!("{done} of {} mutants, {} minutes left", self.total, left.as_secs().div_ceil(60));
        }
    }
}
