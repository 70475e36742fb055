//! A sorted set, its scores, and the bounds of its ranges.

use crate::reply::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A score. It is never NaN or -0, so equal scores have equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Score(u64);

impl Score {
    pub(crate) fn new(value: f64) -> Score {
        Score((value + 0.0).to_bits())
    }

    pub(crate) fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> std::cmp::Ordering {
        self.value().total_cmp(&other.value())
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortedSet {
    pub(crate) scores: BTreeMap<Bytes, Score>,
    pub(crate) order: BTreeSet<(Score, Bytes)>,
}

impl SortedSet {
    pub(crate) const fn new() -> SortedSet {
        SortedSet { scores: BTreeMap::new(), order: BTreeSet::new() }
    }

    pub(crate) fn insert(&mut self, member: &[u8], score: Score) {
        self.remove(member);
        self.scores.insert(member.to_vec(), score);
        self.order.insert((score, member.to_vec()));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_vec()))
    }
}

/// Parses a bound of a range of scores. After `(` the bound is exclusive.
pub(crate) fn parse_score_bound(text: &[u8]) -> Result<Bound<f64>, String> {
    let (number, bound): (_, fn(f64) -> Bound<f64>) = match text {
        [b'(', number @ ..] => (number, Bound::Excluded),
        number => (number, Bound::Included),
    };
    // Redis parses it with `strtod`: it ends at a NUL, an empty text is 0, and a number out of range is
    // infinite.
    let number = number.split(|byte| *byte == 0).next().unwrap_or_default();
    let number = match number {
        b"" => Some(0.0),
        number => parse_float(number),
    };
    number.map(bound).ok_or_else(|| "ERR min or max is not a float".to_owned())
}

/// Parses a bound of a range of members. `-` and `+` are unbounded.
pub(crate) fn parse_lex_bound(text: &[u8]) -> Result<Bound<Bytes>, String> {
    match text {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', member @ ..] => Ok(Bound::Included(member.to_vec())),
        [b'(', member @ ..] => Ok(Bound::Excluded(member.to_vec())),
        _ => Err("ERR min or max not valid string range item".to_owned()),
    }
}

/// Parses a number as Redis does, but not in hexadecimal, which the newest servers do not accept everywhere.
fn parse_float(text: &[u8]) -> Option<f64> {
    let parsed = std::str::from_utf8(text).ok()?.parse();
    parsed.ok().filter(|number: &f64| !number.is_nan())
}

/// Parses the score of ZADD. Unlike a bound, it must not be out of range: neither round to 0 nor become
/// infinite.
pub(crate) fn parse_score(text: &[u8]) -> Result<Score, String> {
    let is_zero = || {
        let mut digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        !digits.any(|digit| matches!(digit, b'1'..=b'9'))
    };
    let is_named = || text.iter().any(|letter| matches!(letter, b'n' | b'N')); // inf
    let exact = parse_float(text).filter(|value| match value {
        0.0 => is_zero(),
        value => value.is_finite() || is_named(),
    });
    let score = exact.map(Score::new);
    score.ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// A number as the newest servers write it: an integer in full, any other number with the fewest digits that
/// identify it. It has an exponent if it would have many zeros otherwise.
pub(crate) fn number_text(value: f64) -> String {
    const MAX_INTEGER: f64 = (i64::MAX / 2) as f64;
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_nan() {
        return format!("{sign}nan");
    }
    if value.is_infinite() {
        return format!("{sign}inf");
    }
    if value.abs() <= MAX_INTEGER && value.fract() == 0.0 {
        return (value as i64).to_string();
    }
    let shortest = format!("{value:e}");
    let (digits, power) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    let power: i32 = power.parse().unwrap_or(0);
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let zeros = power - count + 1; // after the last digit; negative: digits after the point
    let in_full = if zeros >= 0 { power < count + 7 } else { zeros > -7 || power.abs() < 4 };
    match (in_full, power) {
        (true, _) => value.to_string(),
        (false, 0..) => format!("{digits}e+{power}"),
        (false, _) => format!("{digits}e{power}"),
    }
}
