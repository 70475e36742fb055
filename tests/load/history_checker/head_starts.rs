//! Promise: for the history checker a head start lets a caller overtake the waiters that came within it, and
//! no others.

use super::{illegal, judge, legal, legal_under};
use crate::support::history::{History, Rule, Rules};

const HOLDS: &str = "a 0 12 acquire 1 1000 tries -> granted a 1 11000 0 0";
const RELEASES: &str = "a 29 32 release a 0 -> released";

/// Two permits of three are in use, and the first waiter wants two.
const HOLDS_TWO: &str = "a 0 12 acquire 2 1000 tries -> granted a 2 11000 0 0";
const WANTS_TWO: &str = "b 13 41 acquire 2 1000 waits -> granted b 2 40000 14000 0";
const RELEASES_TWO: &str = "a 35 42 release a 0 -> released";

#[test]
fn a_head_start_overtakes_waiters_that_came_within_it() {
    legal(
        1,
        &[
            HOLDS,
            "b 13 41 acquire 1 1000 waits -> granted b 1 40000 14000 0",
            "c 19 61 acquire 1 1000 waits -> granted c 1 60000 20000 0",
            "d 24 51 acquire 1 1000 waits head-start 10 -> granted d 1 50000 15000 0", // between b and c
            "e 26 31 acquire 1 1000 waits head-start 14 -> granted e 1 30000 13000 0", // before b
            RELEASES,
            "e 39 42 release e 0 -> released",
            "b 49 52 release b 0 -> released",
            "d 59 62 release d 0 -> released",
        ],
    );
}

#[test]
fn a_head_start_overtakes_no_waiter_that_came_earlier() {
    illegal(
        1,
        Rule::Order,
        &[
            HOLDS,
            "b 13 41 acquire 1 1000 waits -> granted b 1 40000 14000 0",
            "c 24 31 acquire 1 1000 waits head-start 10 -> granted c 1 30000 15000 0",
            RELEASES,
            "c 35 36 release c 0 -> released",
        ],
    );
}

#[test]
fn a_waiter_with_a_head_start_is_not_overtaken_by_one_behind() {
    let later = |ticket: &str| {
        [
            HOLDS.to_owned(),
            format!("b 13 31 acquire 1 1000 waits -> granted b 1 30000 {ticket} 0"),
            "c 24 41 acquire 1 1000 waits head-start 10 -> granted c 1 40000 15000 0".to_owned(),
            RELEASES.to_owned(),
            "d 19 51 acquire 1 1000 waits -> granted d 1 50000 20000 0".to_owned(),
            "b 39 42 release b 0 -> released".to_owned(),
            "c 49 52 release c 0 -> released".to_owned(),
        ]
    };
    let [before, behind] = ["14000", "16000"].map(later);
    legal(1, &before.each_ref().map(String::as_str));
    illegal(1, Rule::Order, &behind.each_ref().map(String::as_str));
}

#[test]
fn waiters_with_equal_tickets_are_served_in_any_order() {
    let grants = |b: u32, c: u32| {
        [
            HOLDS.to_owned(),
            format!("b 13 41 acquire 1 1000 waits -> granted b 1 {b} 14000 0"),
            format!("c 23 41 acquire 1 1000 waits head-start 10 -> granted c 1 {c} 14000 0"),
            RELEASES.to_owned(),
            format!("x 34 36 release {} 0 -> released", if b < c { 'b' } else { 'c' }),
        ]
    };
    for lines in [grants(30_000, 40_000), grants(40_000, 30_000)] {
        legal(1, &lines.each_ref().map(String::as_str));
    }
}

#[test]
fn a_head_start_is_granted_at_once_past_a_waiter_that_does_not_fit() {
    for waits in ["waits", "tries"] {
        let granted = format!("c 24 26 acquire 1 1000 {waits} head-start 12 -> granted c 1 25000 0 0");
        let released = "c 27 28 release c 0 -> released";
        legal(3, &[HOLDS_TWO, WANTS_TWO, &granted, released, RELEASES_TWO]);
    }
    let all = "c 24 26 acquire all 1000 tries head-start 12 -> granted c 1 25000 0 0";
    legal(3, &[HOLDS_TWO, WANTS_TWO, all, RELEASES_TWO]);
}

#[test]
fn no_grant_at_once_passes_a_waiter_that_came_before_the_head_start() {
    for head_start in ["", " head-start 10"] {
        let granted = format!("c 24 26 acquire 1 1000 tries{head_start} -> granted c 1 25000 0 0");
        illegal(3, Rule::Order, &[HOLDS_TWO, WANTS_TWO, &granted, RELEASES_TWO]);
    }
}

#[test]
fn a_caller_without_a_head_start_overtakes_no_waiter_with_one() {
    illegal(
        3,
        Rule::Order,
        &[
            HOLDS_TWO,
            "b 23 41 acquire 2 1000 waits head-start 20 -> granted b 2 40000 4000 0",
            "c 25 27 acquire 1 1000 tries -> granted c 1 26000 0 0",
            RELEASES_TWO,
        ],
    );
}

#[test]
fn a_call_may_serve_a_waiter_before_its_own_grant() {
    // The place of c is computed from the number that b receives as its fence. So c comes before d.
    legal(
        4,
        &[
            "a 0 12 acquire 3 1000 tries -> granted a 3 11000 0 0",
            "b 13 31 acquire 2 1000 waits -> granted b 2 30000 14000 0",
            "d 19 61 acquire 4 1000 waits -> granted d 4 60000 20001 0",
            "a 28 29 release a 1 -> released",
            "c 29 31 acquire 1 1000 tries head-start 10 -> granted c 1 30001 0 0",
            "a 51 52 release a 0 -> released",
            "b 51 52 release b 0 -> released",
            "c 51 52 release c 0 -> released",
        ],
    );
}

#[test]
fn a_call_may_serve_a_waiter_before_it_joins_the_line() {
    // The ticket of c is computed from the number that b receives as its fence.
    legal(
        1,
        &[
            HOLDS,
            "b 13 31 acquire 1 1000 waits -> granted b 1 30000 14000 0",
            "a 28 29 release a 0 -> released",
            "c 29 41 acquire 1 1000 waits head-start 10 -> granted c 1 40000 20000 0",
            "d 29 42 acquire 1 1000 waits -> timed-out 1 1 1 answered",
            "b 39 42 release b 0 -> released",
        ],
    );
}

#[test]
fn a_ticket_differs_from_its_number_by_the_head_start() {
    for ticket in [25_000, 14_000] {
        let waits = format!("b 24 31 acquire 1 1000 waits head-start 5 -> granted b 1 30000 {ticket} 0");
        illegal(1, Rule::Fence, &[HOLDS, &waits, RELEASES]);
    }
    // By any clock its number is below its fence.
    let other_clock = Rules { same_clock: false, ..Rules::new(1) };
    let waits =
        |ticket: u32| format!("b 24 31 acquire 1 1000 waits head-start 5 -> granted b 1 30000 {ticket} 0");
    legal_under(&other_clock, &[HOLDS, &waits(24_999), RELEASES]);
    let history = History::of(&[HOLDS, &waits(25_001), RELEASES]);
    assert_eq!(judge(&history, &other_clock), Err(Rule::Fence));
}

#[test]
fn a_denial_for_waiters_that_came_within_the_head_start_is_refused() {
    let denied = |head_start: u32| {
        format!("c 24 26 acquire 1 1000 tries head-start {head_start} -> denied 2 3 1 answered")
    };
    legal(3, &[HOLDS_TWO, WANTS_TWO, &denied(8), RELEASES_TWO]);
    illegal(3, Rule::Refusal, &[HOLDS_TWO, WANTS_TWO, &denied(20), RELEASES_TWO]);
    // A waiter with a head start itself may be ahead.
    let urgent = "b 13 41 acquire 2 1000 waits head-start 12 -> granted b 2 40000 2000 0";
    legal(3, &[HOLDS_TWO, urgent, &denied(20), RELEASES_TWO]);
}
