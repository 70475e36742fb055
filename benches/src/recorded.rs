//! Records measurements that do not depend on the machine in `benches/recorded.json`, a number for each under
//! its titles, and compares new measurements with them.

use serde_json::{Map, Value, json};
use std::error::Error;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The command that records.
pub const HOW: &str = "`./dev bench record`";

/// How much a measurement may differ from the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Must be equal; less is an error too.
    Exact,
    /// May be more by this fraction. If it is less by more than that, it is reported.
    Within(f64),
}

impl Bound {
    pub const ABOUT: Bound = Bound::Within(0.05);
}

pub struct Record {
    file: PathBuf,
}

/// Tests that record run at the same time.
static FILE: Mutex<()> = Mutex::new(());

impl Record {
    pub fn at(file: &Path) -> Record {
        Record { file: file.to_owned() }
    }

    fn read(&self) -> Value {
        let path = self.file.display();
        match std::fs::read_to_string(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => json!({}),
            text => {
                let wrong = |error: &dyn Error| -> ! { panic!("{path}: {error}") };
                let text = text.unwrap_or_else(|error| wrong(&error));
                serde_json::from_str(&text).unwrap_or_else(|error| wrong(&error))
            }
        }
    }

    /// The numbers under these titles; `None` if there are none.
    pub fn under(&self, titles: &[&str]) -> Option<Map<String, Value>> {
        let all = self.read();
        let found = titles.iter().try_fold(&all, |value, title| value.get(title));
        found?.as_object().cloned()
    }

    /// Replaces the numbers under these titles.
    pub fn put(&self, titles: &[&str], numbers: Map<String, Value>) {
        let _alone = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.read();
        let place = titles.iter().fold(&mut all, |value, title| &mut value[*title]);
        *place = Value::Object(numbers);
        let text = serde_json::to_string_pretty(&all).unwrap();
        std::fs::write(&self.file, text + "\n").unwrap();
    }
}

/// The measurements in the form in which they are recorded: with two decimal places.
pub fn numbers(measured: &[(String, f64)]) -> Map<String, Value> {
    let number = |number: f64| match (number * 100.0).round() / 100.0 {
        whole if whole.fract() == 0.0 => json!(whole as u64),
        rounded => json!(rounded),
    };
    measured.iter().map(|(what, amount)| (what.clone(), number(*amount))).collect()
}

/// Compares measurements with the record. Returns those that are better by more than the tolerance. If any
/// are worse, returns an error that lists all differences and what to do.
pub fn compare(
    recorded: &Map<String, Value>,
    measured: &[(String, f64)],
    unit: &str,
    bound: Bound,
) -> Result<Vec<String>, String> {
    let tolerance = match bound {
        Bound::Exact => 0.0,
        Bound::Within(fraction) => fraction,
    };
    let (mut dearer, mut better, mut one_sided) = (Vec::new(), Vec::new(), Vec::new());
    for (what, amount) in numbers(measured) {
        let amount = amount.as_f64().unwrap_or(f64::NAN);
        match recorded.get(&what).and_then(Value::as_f64) {
            None => one_sided.push(format!("{what}: {amount} {unit}, but nothing is recorded")),
            Some(before) => {
                let said = format!("{what}: {amount} {unit}, recorded {before}");
                if amount > before * (1.0 + tolerance) {
                    dearer.push(said);
                } else if amount < before * (1.0 - tolerance) {
                    better.push(said);
                }
            }
        }
    }
    let measured: Vec<&str> = measured.iter().map(|(what, _)| what.as_str()).collect();
    let left = recorded.keys().filter(|what| !measured.contains(&what.as_str()));
    one_sided.extend(left.map(|what| format!("{what}: recorded, but not measured any more")));
    if !better.is_empty() {
        better.push(format!("This is better: record it, so that later losses are detected: {HOW}"));
    }
    if dearer.is_empty() && one_sided.is_empty() && (bound != Bound::Exact || better.is_empty()) {
        return Ok(better);
    }
    if !dearer.is_empty() {
        dearer.push(format!(
            "This costs more: find out which change caused it; if it is worth the cost, record it: {HOW}"
        ));
    }
    if !one_sided.is_empty() {
        one_sided.push(format!("Record the present measurements: {HOW}"));
    }
    Err([dearer, better, one_sided].concat().join("\n"))
}
