//! A sorted set, and the ranges that Redis takes of one.

use crate::store::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A score. Never NaN, and zero has one sign, so equal scores are equal bits.
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SortedSet {
    pub(crate) scores: BTreeMap<Bytes, Score>,
    pub(crate) order: BTreeSet<(Score, Bytes)>,
}

impl SortedSet {
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

/// An end of a range of scores: `(` leaves out the score itself.
pub(crate) struct Bound {
    at: f64,
    inclusive: bool,
}

impl Bound {
    pub(crate) fn parse(text: &[u8]) -> Result<Bound, String> {
        let (text, inclusive) = match text.strip_prefix(b"(") {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        // Redis reads a bound as C does: up to a NUL, nothing at all is 0, and what is too big is infinite.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let at = match text {
            b"" => Some(0.0),
            text => number(text),
        };
        let at = at.ok_or("ERR min or max is not a float")?;
        Ok(Bound { at, inclusive })
    }

    pub(crate) fn is_below(&self, score: Score) -> bool {
        self.at < score.value() || self.inclusive && self.at == score.value()
    }

    pub(crate) fn is_above(&self, score: Score) -> bool {
        self.at > score.value() || self.inclusive && self.at == score.value()
    }
}

/// An end of a range of members.
pub(crate) enum LexBound<'a> {
    Before,
    After,
    At { text: &'a [u8], inclusive: bool },
}

impl LexBound<'_> {
    pub(crate) fn parse(text: &[u8]) -> Result<LexBound<'_>, String> {
        match text {
            b"-" => Ok(LexBound::Before),
            b"+" => Ok(LexBound::After),
            [b'[', text @ ..] => Ok(LexBound::At {
                text,
                inclusive: true,
            }),
            [b'(', text @ ..] => Ok(LexBound::At {
                text,
                inclusive: false,
            }),
            _ => Err("ERR min or max not valid string range item".to_owned()),
        }
    }

    pub(crate) fn is_below(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Before => true,
            LexBound::After => false,
            LexBound::At { text, inclusive } => *text < member || *inclusive && *text == member,
        }
    }

    pub(crate) fn is_above(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Before => false,
            LexBound::After => true,
            LexBound::At { text, inclusive } => *text > member || *inclusive && *text == member,
        }
    }
}

/// A number as Redis reads it, but for hexadecimal ones, which the newest servers do not take everywhere.
fn number(text: &[u8]) -> Option<f64> {
    let parsed = std::str::from_utf8(text).ok()?.parse();
    parsed.ok().filter(|number: &f64| !number.is_nan())
}

/// A score that a command is given: other than of a bound, it has to be one that there is.
pub(crate) fn score(text: &[u8]) -> Result<Score, String> {
    let is_zero = || {
        let digits = text.split(|byte| matches!(byte, b'e' | b'E')).next();
        !digits
            .unwrap_or_default()
            .iter()
            .any(|digit| matches!(digit, b'1'..=b'9'))
    };
    let is_named = || text.iter().any(|letter| matches!(letter, b'n' | b'N'));
    let exact = number(text).filter(|value| match value {
        0.0 => is_zero(),
        value => value.is_finite() || is_named(),
    });
    exact
        .map(Score::new)
        .ok_or_else(|| "ERR value is not a valid float".to_owned())
}

pub(crate) fn score_text(score: Score) -> String {
    number_text(score.value())
}

/// A number as the newest servers write it: a whole one in full, of any other the fewest digits that say which it is, with an
/// exponent where those would need many zeros.
pub(crate) fn number_text(value: f64) -> String {
    const WHOLE: f64 = (i64::MAX / 2) as f64;
    if value.is_nan() {
        return if value.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    if value.abs() <= WHOLE && value.fract() == 0.0 {
        return (value as i64).to_string();
    }
    let shortest = format!("{value:e}");
    let (digits, power) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let many = digits.bytes().filter(u8::is_ascii_digit).count();
    let power: i32 = power.parse().unwrap_or(0);
    let many = i32::try_from(many).unwrap_or(i32::MAX);
    let zeros = power - many + 1; // after the last digit; below 0: digits after the point
    let in_full = if zeros >= 0 {
        power < many + 7
    } else {
        zeros > -7 || power.abs() < 4
    };
    match (in_full, power) {
        (true, _) => value.to_string(),
        (false, 0..) => format!("{digits}e+{power}"),
        (false, _) => format!("{digits}e{power}"),
    }
}
