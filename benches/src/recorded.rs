//! What is recorded of what does not depend on the machine, and what is measured beside it: `benches/recorded.json`, a number
//! for each thing under its titles.

use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How to record.
pub const HOW: &str = "`./dev bench record`";

/// How much more than what is recorded is too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Anything else, less too.
    Exact,
    /// 5 %. What is less by as much is told.
    About,
}

const TOLERANCE: f64 = 0.05;

pub struct Record {
    file: PathBuf,
}

/// Tests that record run at the same time.
static FILE: Mutex<()> = Mutex::new(());

impl Record {
    pub fn at(file: &Path) -> Record {
        Record {
            file: file.to_owned(),
        }
    }

    fn read(&self) -> Value {
        let path = self.file.display();
        match std::fs::read_to_string(&self.file) {
            Ok(text) => {
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
            }
            Err(_) => json!({}),
        }
    }

    /// What stands under these titles; nothing where nothing does.
    pub fn under(&self, titles: &[&str]) -> Option<Map<String, Value>> {
        let all = self.read();
        let found = titles
            .iter()
            .try_fold(&all, |value, title| value.get(title));
        found?.as_object().cloned()
    }

    /// Puts what was measured under these titles, in place of what was there.
    pub fn put(&self, titles: &[&str], numbers: Map<String, Value>) {
        let _alone = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.read();
        let place = titles
            .iter()
            .fold(&mut all, |value, title| &mut value[*title]);
        *place = Value::Object(numbers);
        let text = serde_json::to_string_pretty(&all).unwrap();
        std::fs::write(&self.file, text + "\n").unwrap();
    }
}

/// What was measured, as it is recorded: to two places.
pub fn numbers(measured: &[(String, f64)]) -> Map<String, Value> {
    let number = |number: f64| match (number * 100.0).round() / 100.0 {
        whole if whole.fract() == 0.0 => json!(whole as u64),
        rounded => json!(rounded),
    };
    measured
        .iter()
        .map(|(what, amount)| (what.clone(), number(*amount)))
        .collect()
}

/// Compares what was measured with what is recorded. Returns what is better than that by more than the tolerance, or the
/// error in which all is told that is worse.
pub fn compare(
    recorded: &Map<String, Value>,
    measured: &[(String, f64)],
    unit: &str,
    bound: Bound,
) -> Result<Vec<String>, String> {
    let (mut better, mut worse) = (Vec::new(), Vec::new());
    for (what, amount) in numbers(measured) {
        let now = amount.as_f64().unwrap_or(f64::NAN);
        let Some(before) = recorded.get(&what).and_then(Value::as_f64) else {
            worse.push(format!(
                "{what}: {now} {unit}, and nothing is recorded: {HOW}"
            ));
            continue;
        };
        let said = format!("{what}: {now} {unit}, {before} are recorded");
        let tolerance = match bound {
            Bound::Exact => 0.0,
            Bound::About => TOLERANCE,
        };
        if now > before * (1.0 + tolerance) {
            worse.push(format!(
                "{said}. Find out which change made it dearer; where it is worth that, record it: {HOW}"
            ));
        } else if now < before * (1.0 - tolerance) {
            let said = format!("{said}. That is better: record it, so that it stays so: {HOW}");
            match bound {
                Bound::Exact => worse.push(said),
                Bound::About => better.push(said),
            }
        }
    }
    for what in recorded.keys() {
        if !measured.iter().any(|(measured, _)| measured == what) {
            worse.push(format!(
                "{what}: recorded, but not measured any more: {HOW}"
            ));
        }
    }
    match worse.is_empty() {
        true => Ok(better),
        false => Err(worse.join("\n")),
    }
}
