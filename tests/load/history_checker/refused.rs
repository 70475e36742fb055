//! Promise: the history checker refuses what no correct semaphore can show. It names the broken promise and
//! shows the calls around it.

use super::{illegal, judge};
use crate::support::history::{History, Rule, Rules};

#[test]
fn two_holders_under_a_limit_of_one_are_refused() {
    illegal(
        1,
        Rule::Limit,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0",
        ],
    );
}

#[test]
fn more_permits_than_the_limit_are_refused() {
    illegal(
        3,
        Rule::Limit,
        &[
            "a 0 2 acquire 2 1000 tries -> granted a 2 1000 0 0",
            "b 3 30 acquire 2 1000 waits -> granted b 2 20000 4000 0",
            "a 25 26 look a -> held",
            "a 27 28 release a 0 -> released",
        ],
    );
}

#[test]
fn a_grant_before_the_lease_ended_is_refused() {
    illegal(
        1,
        Rule::Limit,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "b 95 97 acquire 1 100 tries -> granted b 1 96000 0 0",
        ],
    );
}

#[test]
fn a_denial_with_more_permits_in_use_than_the_limit_is_refused() {
    illegal(
        1,
        Rule::Limit,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 5 acquire 1 1000 tries -> denied 2 1 0 answered",
        ],
    );
}

#[test]
fn waiters_granted_in_another_order_than_their_tickets_are_refused() {
    illegal(
        1,
        Rule::Order,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 31 acquire 1 1000 waits -> granted b 1 30000 4000 0",
            "c 5 21 acquire 1 1000 waits -> granted c 1 20000 6000 0",
            "a 19 22 release a 0 -> released",
            "c 29 32 release c 0 -> released",
        ],
    );
}

#[test]
fn a_try_that_overtakes_a_waiter_is_refused() {
    illegal(
        1,
        Rule::Order,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 31 acquire 1 1000 waits -> granted b 1 30000 4000 0",
            "a 10 12 release a 0 -> released",
            "c 15 17 acquire 1 1000 tries -> granted c 1 16000 0 0",
            "c 20 22 release c 0 -> released",
        ],
    );
}

#[test]
fn a_fence_granted_twice_is_refused() {
    illegal(
        2,
        Rule::Fence,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1500 0 0",
            "b 1 3 acquire 1 1000 tries -> granted b 1 1500 0 0",
        ],
    );
}

#[test]
fn a_fence_below_that_of_an_earlier_grant_is_refused() {
    let lines = [
        "a 0 2 acquire 1 1000 tries -> granted a 1 5000 0 0",
        "b 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0",
    ];
    let other_clock = Rules { same_clock: false, ..Rules::new(2) };
    assert_eq!(judge(&History::of(&lines), &other_clock), Err(Rule::Fence));
    illegal(2, Rule::Fence, &lines); // the first fence is not the time of its call either
}

#[test]
fn a_fence_below_its_ticket_is_refused() {
    illegal(2, Rule::Fence, &["a 0 9 acquire 1 1000 waits -> granted a 1 2000 3000 0"]);
}

#[test]
fn a_permit_lost_during_its_lease_is_refused() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    illegal(1, Rule::Lease, &[granted, "a 97 98 look a -> lost"]);
    illegal(1, Rule::Lease, &[granted, "a 97 98 refresh a 100 -> lost"]);
    illegal(1, Rule::Lease, &[granted, "a 97 98 release a 0 -> gone"]);
}

#[test]
fn a_permit_held_after_its_lease_is_refused() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    let ended = ["look a -> held", "refresh a 100 -> refreshed 0"];
    for reported in ended {
        illegal(1, Rule::Lease, &[granted, &format!("a 102 103 {reported}")]);
    }
}

#[test]
fn a_lease_of_another_length_is_refused() {
    illegal(1, Rule::Lease, &["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 500"]);
}

#[test]
fn a_second_release_is_refused() {
    illegal(
        1,
        Rule::Lease,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 3 4 release a 0 -> released",
            "a 5 6 release a 0 -> released",
        ],
    );
}

#[test]
fn a_denial_while_all_permits_are_free_is_refused() {
    illegal(
        1,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 3 4 release a 0 -> released",
            "b 5 6 acquire 1 1000 tries -> denied 0 1 0 answered",
        ],
    );
}

#[test]
fn a_denial_for_a_nonexistent_waiter_is_refused() {
    illegal(1, Rule::Refusal, &["b 5 6 acquire 1 1000 tries -> denied 0 1 1 answered"]);
}

#[test]
fn a_timeout_while_a_permit_is_free_is_refused() {
    illegal(
        2,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 5 50 acquire 1 1000 waits -> timed-out 1 2 0 answered",
        ],
    );
}

#[test]
fn a_denial_with_a_count_of_no_moment_is_refused() {
    illegal(
        3,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 5 acquire 2 1000 tries -> granted b 2 4000 0 0",
            "c 6 7 acquire 2 1000 tries -> denied 2 3 0 answered",
        ],
    );
}

#[test]
fn a_release_that_freed_nothing_is_refused() {
    illegal(
        1,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 3 4 release a 0 -> released",
            "b 5 6 acquire 1 1000 tries -> denied 1 1 0 answered",
        ],
    );
}

#[test]
fn a_failure_shows_the_calls_around_it() {
    let violation = History::of(&[
        "first 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
        "second 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0",
    ])
    .check(&Rules::new(1))
    .unwrap_err();
    let text = violation.to_string();
    for expected in ["limit of s", "over the limit: 1", "first", "3.000", "5.000"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
