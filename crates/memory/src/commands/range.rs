//! Ranges by index, and LIMIT.

use crate::reply::{Bytes, SYNTAX, int, integer, unsigned};

/// How many elements to skip and to take, for a range by index. Negative indices count from the end.
pub(super) fn span(first: i64, last: i64, length: usize) -> (usize, usize) {
    let length = int(length);
    let index = |at: i64| match at {
        ..0 => length.saturating_add(at),
        _ => at,
    };
    let (first, last) = (index(first).max(0), index(last).min(length - 1));
    let count = last.saturating_sub(first).saturating_add(1);
    (unsigned(first), unsigned(count))
}

/// LIMIT. A negative count takes all elements, a negative offset none.
pub(super) struct Limit {
    offset: i64,
    count: i64,
}

impl Limit {
    /// Parses the options of a range: whether WITHSCORES is there, and the limit.
    pub(super) fn parse(mut options: &[Bytes]) -> Result<(bool, Limit), String> {
        let (mut scores, mut offset, mut count) = (false, 0, -1);
        while let [word, rest @ ..] = options {
            options = match (word.to_ascii_uppercase().as_slice(), rest) {
                (b"WITHSCORES", rest) => {
                    scores = true;
                    rest
                }
                (b"LIMIT", [first, most, rest @ ..]) => {
                    (offset, count) = (integer(first)?, integer(most)?);
                    rest
                }
                _ => return Err(SYNTAX.to_owned()),
            };
        }
        Ok((scores, Limit { offset, count }))
    }

    pub(super) fn apply<T>(&self, rows: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let take = match (self.offset, self.count) {
            (..0, _) => 0,
            (_, ..0) => usize::MAX,
            (_, count) => unsigned(count),
        };
        rows.skip(unsigned(self.offset)).take(take)
    }
}
