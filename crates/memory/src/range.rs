//! Ranges by place, and LIMIT, as Redis has them.

use crate::store::{Bytes, SYNTAX, int, integer, unsigned};

/// How many elements to skip and how many to take, for a range as Redis has it: negative places count from the end.
pub(crate) fn span(first: i64, last: i64, length: usize) -> (usize, usize) {
    let length = int(length);
    let place = |at: i64| {
        if at < 0 {
            length.saturating_add(at)
        } else {
            at
        }
    };
    let (first, last) = (place(first).max(0), place(last).min(length - 1));
    let many = last.saturating_sub(first).saturating_add(1).max(0);
    (unsigned(first), unsigned(many))
}

/// LIMIT: a negative count takes all, a negative offset none.
pub(crate) struct Limit {
    offset: i64,
    count: i64,
}

impl Limit {
    /// The options of a range: whether the scores are asked for, and the limit.
    pub(crate) fn parse(mut options: &[Bytes]) -> Result<(bool, Limit), String> {
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

    pub(crate) fn of<T>(&self, rows: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let take = match (self.offset, self.count) {
            (..0, _) => 0,
            (_, ..0) => usize::MAX,
            (_, count) => unsigned(count),
        };
        rows.skip(unsigned(self.offset)).take(take)
    }
}
