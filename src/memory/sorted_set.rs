//! A sorted set, and the ranges that Redis takes of one.

use super::store::{Bytes, float};
use std::collections::{BTreeMap, BTreeSet};

/// A score. Never NaN, and zero has one sign, so equal scores are equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Score(u64);

impl Score {
    pub(super) fn new(value: f64) -> Score {
        Score((value + 0.0).to_bits())
    }

    pub(super) fn value(self) -> f64 {
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
pub(super) struct SortedSet {
    pub(super) scores: BTreeMap<Bytes, Score>,
    pub(super) order: BTreeSet<(Score, Bytes)>,
}

impl SortedSet {
    pub(super) fn insert(&mut self, member: &[u8], score: Score) {
        self.remove(member);
        self.scores.insert(member.to_vec(), score);
        self.order.insert((score, member.to_vec()));
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_vec()))
    }
}

/// An end of a range of scores: `(` leaves out the score itself.
pub(super) struct Bound {
    at: f64,
    inclusive: bool,
}

impl Bound {
    pub(super) fn parse(text: &[u8]) -> Result<Bound, String> {
        let (text, inclusive) = match text.strip_prefix(b"(") {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let at = float(text).map_err(|_| "ERR min or max is not a float")?;
        Ok(Bound { at, inclusive })
    }

    pub(super) fn is_below(&self, score: Score) -> bool {
        self.at < score.value() || self.inclusive && self.at == score.value()
    }

    pub(super) fn is_above(&self, score: Score) -> bool {
        self.at > score.value() || self.inclusive && self.at == score.value()
    }
}

/// An end of a range of members.
pub(super) enum LexBound<'a> {
    Before,
    After,
    At { text: &'a [u8], inclusive: bool },
}

impl LexBound<'_> {
    pub(super) fn parse(text: &[u8]) -> Result<LexBound<'_>, String> {
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

    pub(super) fn is_below(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Before => true,
            LexBound::After => false,
            LexBound::At { text, inclusive } => *text < member || *inclusive && *text == member,
        }
    }

    pub(super) fn is_above(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Before => false,
            LexBound::After => true,
            LexBound::At { text, inclusive } => *text > member || *inclusive && *text == member,
        }
    }
}

pub(super) fn score_text(score: Score) -> String {
    let value = score.value();
    match value {
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        _ => value.to_string(),
    }
}
