//! Reads the output of a program, and computes pairs per second, waits and violations of the limit.

use serde_json::Value;
use std::collections::BTreeMap;

/// One turn of a worker, in µs of its program's monotonic clock: when it asked, when it had the permit, and
/// the last instant before it began to release.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    /// The number of the lock, if there are several.
    pub lock: u64,
    pub asked: u64,
    pub entered: u64,
    pub left: u64,
}

/// The time for opening connections, loading scripts and compiling code, in µs.
pub const LEAD_IN: u64 = 1_000_000;

/// The stays in the line that a program prints.
pub fn read(line: &str) -> Option<Vec<Stay>> {
    let reported: Value = serde_json::from_str(line).ok()?;
    let stay = |fields: &Value| {
        let field = |place: usize| fields.get(place)?.as_u64();
        Some(Stay { lock: field(0)?, asked: field(1)?, entered: field(2)?, left: field(3)? })
    };
    reported.get("stays")?.as_array()?.iter().map(stay).collect()
}

/// The stays that were asked for after the lead-in, or all stays if there are none.
pub fn settled(stays: &[Stay]) -> Vec<Stay> {
    let begin = stays.iter().map(|stay| stay.asked).min().unwrap_or(0) + LEAD_IN;
    let settled: Vec<Stay> = stays.iter().filter(|s| s.asked >= begin).copied().collect();
    if settled.is_empty() {
        return stays.to_vec();
    }
    settled
}

/// How many stays ended in each part of the time. `part` is in µs. The last, incomplete part is left out.
pub fn in_parts(stays: &[Stay], part: u64) -> Vec<u64> {
    let Some(begin) = stays.iter().map(|stay| stay.asked).min() else {
        return Vec::new();
    };
    let place = |stay: &Stay| ((stay.left - begin) / part) as usize;
    let mut counts = vec![0; stays.iter().map(place).max().unwrap_or(0) + 1];
    for stay in stays {
        counts[place(stay)] += 1;
    }
    counts.pop();
    counts
}

/// How many stays ended within `time` µs after the first request.
pub fn within(stays: &[Stay], time: u64) -> usize {
    let begin = stays.iter().map(|stay| stay.asked).min().unwrap_or(0);
    stays.iter().filter(|stay| stay.left - begin <= time).count()
}

/// The time from the first request to the end of the last stay.
pub fn span(stays: &[Stay]) -> u64 {
    let begin = stays.iter().map(|stay| stay.asked).min().unwrap_or(0);
    let end = stays.iter().map(|stay| stay.left).max().unwrap_or(0);
    end - begin
}

/// The longest wait of a worker, in µs.
pub fn longest_wait(stays: &[Stay]) -> Option<u64> {
    stays.iter().map(|stay| stay.entered - stay.asked).max()
}

/// How long permits were free while a worker waited for them, in µs, sorted. The permit that became free
/// first is assigned to the next stay that begins, the second to the one after it, and so on. A pair counts
/// only if that worker had asked before the permit became free.
pub fn handovers(stays: &[Stay], limit: usize) -> Vec<u64> {
    let mut all = Vec::new();
    for stays in by_lock(stays) {
        let mut left: Vec<u64> = stays.iter().map(|stay| stay.left).collect();
        left.sort_unstable();
        let mut entered: Vec<(u64, u64)> = stays.iter().map(|s| (s.entered, s.asked)).collect();
        entered.sort_unstable();
        // The first `limit` stays got permits that were never used.
        for (left, (entered, asked)) in left.into_iter().zip(entered.into_iter().skip(limit)) {
            if asked <= left {
                all.push(entered.saturating_sub(left));
            }
        }
    }
    all.sort_unstable();
    all
}

/// How many stays began while the limit was already reached.
pub fn violations(stays: &[Stay], limit: usize) -> usize {
    let mut violations = 0;
    for stays in by_lock(stays) {
        let mut changes: Vec<(u64, bool)> = Vec::new();
        for stay in stays.iter().filter(|stay| stay.entered < stay.left) {
            changes.push((stay.entered, true));
            changes.push((stay.left, false));
        }
        changes.sort_unstable(); // at the same instant, the end of a stay comes first
        let mut inside = 0;
        for (_, enters) in changes {
            if !enters {
                inside -= 1;
                continue;
            }
            inside += 1;
            if inside > limit {
                violations += 1;
            }
        }
    }
    violations
}

fn by_lock(stays: &[Stay]) -> Vec<Vec<Stay>> {
    let mut locks: BTreeMap<u64, Vec<Stay>> = BTreeMap::new();
    for stay in stays {
        locks.entry(stay.lock).or_default().push(*stay);
    }
    locks.into_values().collect()
}

/// The percentile of these sorted numbers.
pub fn percentile(sorted: &[u64], of_hundred: usize) -> Option<u64> {
    let rank = (sorted.len() * of_hundred).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(all: &[[u64; 4]]) -> Vec<Stay> {
        let text = format!("{{\"stays\":{all:?}}}");
        read(&text).unwrap()
    }

    #[test]
    fn invalid_output_is_rejected() {
        assert_eq!(read("{\"stays\":[[0,1,2]]}"), None);
        assert_eq!(read("{\"stays\":[[0,1,2,-3]]}"), None);
        assert_eq!(read("Traceback"), None);
        assert_eq!(read("{\"stays\":[]}"), Some(Vec::new()));
    }

    #[test]
    fn a_percentile_is_the_value_that_this_share_does_not_exceed() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7, 9], 50), Some(7));
        assert_eq!(percentile(&[7, 9], 99), Some(9));
        assert_eq!(percentile(&[7], 1), Some(7));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn violations_are_counted_for_each_lock() {
        let three = stays(&[[0, 0, 10, 20], [0, 0, 12, 22], [0, 0, 14, 24]]);
        assert_eq!(violations(&three, 3), 0);
        assert_eq!(violations(&three, 2), 1);
        assert_eq!(violations(&three, 1), 2);
        // One stay ends in the same µs in which the next begins.
        assert_eq!(violations(&stays(&[[0, 0, 10, 20], [0, 0, 20, 30]]), 1), 0);
        assert_eq!(violations(&stays(&[[0, 0, 10, 21], [0, 0, 20, 30]]), 1), 1);
        assert_eq!(violations(&stays(&[[0, 0, 10, 21], [1, 0, 20, 30]]), 1), 0);
    }

    #[test]
    fn a_handover_lasts_from_free_to_held_and_counts_only_for_waiters() {
        let one = stays(&[[0, 0, 5, 100], [0, 1, 140, 200], [0, 2, 230, 300]]);
        assert_eq!(handovers(&one, 1), [30, 40]);
        // The second worker asked only after the permit had become free.
        let late = stays(&[[0, 0, 5, 100], [0, 101, 140, 200]]);
        assert!(handovers(&late, 1).is_empty());
        // With two permits, the third stay takes the one that became free first.
        let two = stays(&[[0, 0, 5, 100], [0, 0, 6, 90], [0, 0, 120, 200]]);
        assert_eq!(handovers(&two, 2), [30]);
        // Stays of another lock are independent.
        let locks = stays(&[[0, 0, 5, 100], [1, 0, 140, 200]]);
        assert!(handovers(&locks, 1).is_empty());
    }

    #[test]
    fn the_lead_in_counts_only_without_later_stays() {
        let early = stays(&[[0, 10, 20, 30]]);
        assert_eq!(settled(&early), early);
        let both = stays(&[[0, 10, 20, 30], [0, LEAD_IN + 10, LEAD_IN + 20, LEAD_IN + 30]]);
        assert_eq!(settled(&both), both[1..]);
    }

    #[test]
    fn time_begins_with_the_first_request_and_an_incomplete_part_is_left_out() {
        let some = stays(&[[0, 0, 1, 2], [0, 2, 3, 99], [0, 99, 100, 250], [0, 250, 251, 260]]);
        assert_eq!(in_parts(&some, 100), [2, 0]);
        assert_eq!(within(&some, 99), 2);
        assert_eq!(within(&some[2..], 151), 1);
        assert_eq!(span(&some), 260);
        assert_eq!(longest_wait(&some), Some(1));
    }
}
