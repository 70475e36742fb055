//! The expected replies of a case: exact values, and patterns with names.

use redis::Value;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The values of the names in a case.
#[derive(Debug)]
pub struct Bindings {
    prefix: String,
    values: BTreeMap<String, Vec<u8>>,
    /// The earliest and the latest time of the last call, in ms.
    span: (i64, i64),
}

pub fn bytes_of(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// A reply as readable text.
pub fn show(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(show).collect();
            format!("[{}]", values.join(", "))
        }
        Value::BulkString(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(bytes_of(text)),
        Value::Okay => Some(b"OK".to_vec()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

fn is_pattern(text: &str) -> bool {
    let is_range = || {
        let first = text.split_once("..").map(|(first, _)| first);
        first.is_some_and(|first| !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()))
    };
    text.starts_with(['$', '<', '>', '*']) || is_range()
}

/// The name, if a word of a pattern is only a name.
fn bare_name(word: &str) -> Option<&str> {
    word.strip_prefix('$').filter(|name| !name.contains(['+', '-', '.', '*', '$']))
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2).unwrap_or("?"), 16);
    let bytes = (0..text.len()).step_by(2).map(pair);
    bytes.collect::<Result<_, _>>().map_err(|error| format!("{text}: {error}"))
}

impl Bindings {
    pub fn new(prefix: &str) -> Bindings {
        Bindings { prefix: prefix.to_owned(), values: BTreeMap::new(), span: (0, 0) }
    }

    /// Each call has a new time.
    pub fn begin_call(&mut self, least: i64, most: i64) {
        self.values.remove("now");
        self.span = (least, most);
    }

    /// A text of a step: `@holders` and `@holders:a` at its start become keys; `$name` and sums are replaced
    /// by their values.
    pub fn text(&self, text: &str) -> Result<String, String> {
        let value = self.argument(&Json::from(text))?;
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    /// An argument: a text as above, `{"hex": "ff"}`, or `{"long": "a", "times": 201}`.
    pub fn argument(&self, word: &Json) -> Result<Vec<u8>, String> {
        if let Some(object) = word.as_object() {
            return literal(object).ok_or_else(|| format!("{word} is not an argument"))?;
        }
        let Some(text) = word.as_str() else {
            return Ok(word.to_string().into_bytes());
        };
        if let Some(rest) = text.strip_prefix('@') {
            let length = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let (kind, rest) = rest.split_at(length);
            let (on, rest) = match rest.strip_prefix(':') {
                Some(rest) => {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
                    rest.split_at(end.unwrap_or(rest.len()))
                }
                None => ("m", rest),
            };
            return Ok(format!("{}:{kind}:{{x}}:{on}{rest}", self.prefix).into_bytes());
        }
        if let Some(name) = bare_name(text) {
            let value = self.values.get(name).cloned();
            return value.ok_or_else(|| format!("{text} is not bound"));
        }
        if text.starts_with('$') {
            return Ok(self.sum(text)?.to_string().into_bytes());
        }
        Ok(bytes_of(text))
    }

    /// `$a+3-$b`.
    fn sum(&self, text: &str) -> Result<i64, String> {
        let mut sum = 0;
        for term in text.replace('-', "+-").split('+').filter(|term| !term.is_empty()) {
            let (sign, term) = match term.strip_prefix('-') {
                Some(term) => (-1, term),
                None => (1, term),
            };
            let value = match term.strip_prefix('$') {
                Some("us") => self.number("now")? * 1_000,
                Some(name) => self.number(name)?,
                None => term.parse().map_err(|_| format!("{text} is not a sum"))?,
            };
            sum += sign * value;
        }
        Ok(sum)
    }

    fn number(&self, name: &str) -> Result<i64, String> {
        let value = self.values.get(name).ok_or_else(|| format!("${name} is not bound"))?;
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("${name} is not a number"))
    }

    /// Compares a reply with the expected one, and binds names that are new in `expected`.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn check(&mut self, expected: &Json, value: &Value) -> Result<(), String> {
        self.bind(expected, value);
        self.compare(expected, value)
    }

    fn bind(&mut self, expected: &Json, value: &Value) {
        match (expected, value) {
            (Json::Array(expected), Value::Array(values)) => {
                for (expected, value) in expected.iter().zip(values) {
                    self.bind(expected, value);
                }
            }
            (Json::String(text), value) if is_pattern(text) => {
                for name in text.split(' ').filter_map(bare_name) {
                    if let (false, Some(bytes)) = (self.values.contains_key(name), bytes(value)) {
                        self.values.insert(name.to_owned(), bytes);
                    }
                }
            }
            _ => {}
        }
    }

    fn compare(&self, expected: &Json, value: &Value) -> Result<(), String> {
        let differs = || Err(format!("expected {expected}, got {}", show(value)));
        let fits = match (expected, value) {
            (Json::Array(expected), Value::Array(values)) => {
                if expected.len() != values.len() {
                    return differs();
                }
                for (expected, value) in expected.iter().zip(values) {
                    self.compare(expected, value)?;
                }
                true
            }
            (Json::Number(number), Value::Int(other)) => number.as_i64() == Some(*other),
            (Json::Null, Value::Nil) => true,
            (Json::Object(object), Value::Array(values)) => {
                object.get("length").and_then(Json::as_u64) == Some(values.len() as u64)
            }
            (Json::Object(object), value) => match literal(object) {
                Some(literal) => bytes(value) == Some(literal?),
                None => false,
            },
            (Json::String(text), value) if is_pattern(text) => {
                let mut fits = true;
                for word in text.split(' ') {
                    fits &= self.fits(word, value)?;
                }
                fits
            }
            (Json::String(_), Value::Int(_)) => false, // a text never equals a number
            (Json::String(text), value) => Some(self.argument(&Json::from(text.as_str()))?) == bytes(value),
            _ => false,
        };
        if fits { Ok(()) } else { differs() }
    }

    /// Whether a value matches a word of a pattern.
    fn fits(&self, word: &str, value: &Value) -> Result<bool, String> {
        if word == "*" {
            return Ok(true);
        }
        if let Some(name) = bare_name(word).filter(|name| *name != "us") {
            let bound = self.values.get(name).ok_or_else(|| format!("{word} is not bound"))?;
            let is_time = || {
                let number = self.number(name);
                number.is_ok_and(|now| (self.span.0..=self.span.1).contains(&now))
            };
            return Ok(bytes(value).as_ref() == Some(bound) && (name != "now" || is_time()));
        }
        let Value::Int(number) = *value else {
            return Ok(false);
        };
        Ok(if let Some(least) = word.strip_prefix(">=") {
            number >= self.sum(least)?
        } else if let Some(least) = word.strip_prefix('>') {
            number > self.sum(least)?
        } else if let Some(most) = word.strip_prefix("<=") {
            number <= self.sum(most)?
        } else if let Some(most) = word.strip_prefix('<') {
            number < self.sum(most)?
        } else if let Some((least, most)) = word.split_once("..") {
            (self.sum(least)?..=self.sum(most)?).contains(&number)
        } else {
            number == self.sum(word)?
        })
    }
}

/// `{"hex": ...}` or `{"long": ..., "times": ...}`.
fn literal(object: &serde_json::Map<String, Json>) -> Option<Result<Vec<u8>, String>> {
    if let Some(hex) = object.get("hex").and_then(Json::as_str) {
        return Some(unhex(hex));
    }
    let (text, times) = (object.get("long")?.as_str()?, object.get("times")?.as_u64()?);
    Some(Ok(text.repeat(usize::try_from(times).ok()?).into_bytes()))
}
