//! Promise: the history checker accepts what a correct semaphore can show, with answered and unanswered
//! calls.

use super::{illegal, judge, legal, legal_under};
use crate::support::history::{History, Rule, Rules};

#[test]
fn a_release_counts_at_any_moment_of_its_call() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 10 30 release a 0 -> released",
            "b 11 13 acquire 1 1000 tries -> granted b 1 12000 0 0",
            "c 14 16 acquire 1 1000 tries -> denied 1 1 0 answered",
        ],
    );
}

#[test]
fn a_refusal_needs_one_moment() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 30 acquire 1 1000 tries -> denied 1 1 0 answered",
            "a 10 12 release a 0 -> released",
        ],
    );
}

#[test]
fn waiters_are_granted_in_the_order_of_their_tickets() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 21 acquire 1 1000 waits -> granted b 1 20000 4000 0",
            "c 5 31 acquire 1 1000 waits -> granted c 1 30000 6000 0",
            "d 7 9 acquire 1 1000 tries -> denied 1 1 2 answered",
            "a 19 22 release a 0 -> released",
            "b 29 32 release b 0 -> released",
        ],
    );
}

#[test]
fn a_big_request_at_the_head_holds_back_small_ones() {
    legal(
        3,
        &[
            "a 0 2 acquire 2 1000 tries -> granted a 2 1000 0 0",
            "b 3 21 acquire 3 1000 waits -> granted b 3 20000 4000 0",
            "c 5 9 acquire 1 1000 tries -> denied 2 3 1 answered",
            "d 5 9 acquire 1 1000 waits -> timed-out 2 3 1 answered",
            "a 19 22 release a 0 -> released",
        ],
    );
}

#[test]
fn an_expired_lease_makes_room_for_the_next_grant() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "b 90 110 acquire 1 100 tries -> denied 1 1 0 answered",
            "b 102 104 acquire 1 100 tries -> granted b 1 103000 0 0",
            "a 105 106 look a -> lost",
            "a 106 107 refresh a 100 -> lost",
            "a 107 108 release a 0 -> gone",
        ],
    );
}

#[test]
fn a_refresh_prolongs_a_lease() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "a 90 92 refresh a 100 -> refreshed 0",
            "b 150 152 acquire 1 100 tries -> denied 1 1 0 answered",
            "a 160 161 look a -> held",
            "b 200 202 acquire 1 100 tries -> granted b 1 201000 0 0",
        ],
    );
}

#[test]
fn a_refresh_of_a_process_that_is_stopped_prolongs_a_lease_although_its_reply_comes_too_late() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "a 90 250 refresh a 100 -> lost",
            "b 150 152 acquire 1 100 tries -> denied 1 1 0 answered",
            "b 210 212 acquire 1 100 tries -> granted b 1 211000 0 0",
        ],
    );
}

#[test]
fn a_lease_may_end_slightly_early_by_the_holders_clock() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1900 0 0",
            "a 99 99 look a -> lost",
            "b 100 101 acquire 1 100 tries -> denied 1 1 0 answered",
        ],
    );
}

#[test]
fn a_partial_release_leaves_the_rest_for_an_acquire_of_all() {
    legal(
        5,
        &[
            "a 0 2 acquire 4 1000 tries -> granted a 4 1000 0 0",
            "a 3 4 release a 1 -> released",
            "b 5 7 acquire all 1000 tries -> granted b 4 6000 0 0",
            "c 8 9 acquire all 1000 tries -> denied 5 5 0 answered",
        ],
    );
}

#[test]
fn an_unanswered_call_may_have_run() {
    legal(
        1,
        &[
            "a 0 - acquire 1 1000 tries -> never-returned",
            "b 5 7 acquire 1 1000 tries -> denied 1 1 0 answered",
            "b 1100 1102 acquire 1 1000 tries -> granted b 1 1101000 0 0",
        ],
    );
}

#[test]
fn an_unanswered_call_may_not_have_run() {
    legal(
        1,
        &[
            "a 0 - acquire 1 1000 tries -> never-returned",
            "b 5 7 acquire 1 1000 tries -> granted b 1 6000 0 0",
            "c 8 - release b 0 -> never-returned",
            "d 9 10 acquire 1 1000 tries -> denied 1 1 0 answered",
        ],
    );
}

#[test]
fn an_unanswered_release_may_run_late() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 5 6 release a 0 -> unknown",
            "b 7 8 acquire 1 1000 tries -> denied 1 1 0 answered",
            "b 9 11 acquire 1 1000 tries -> granted b 1 10000 0 0",
        ],
    );
}

#[test]
fn an_unanswered_refresh_may_or_may_not_have_run() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    let refresh = "a 50 - refresh a 100 -> never-returned";
    let next = "b 110 112 acquire 1 100 tries -> granted b 1 111000 0 0";
    legal(1, &[granted, refresh, next]);
    let refused = "b 110 112 acquire 1 100 tries -> denied 1 1 0 answered";
    legal(1, &[granted, refresh, refused]);
}

#[test]
fn the_grant_of_an_unanswered_wait_may_be_released_later() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 20 acquire 1 1000 waits -> timed-out 1 1 0 unanswered",
            "a 10 12 release a 0 -> released",
            "c 30 32 acquire 1 1000 tries -> denied 1 1 0 answered",
            "d 40 42 acquire 1 1000 tries -> granted d 1 41000 0 0",
        ],
    );
}

#[test]
fn a_cancelled_wait_may_have_been_granted_for_a_moment() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 20 acquire 1 1000 waits -> cancelled",
            "a 10 12 release a 0 -> released",
            "c 14 16 acquire 1 1000 tries -> denied 1 1 0 answered",
            "d 18 22 acquire 1 1000 tries -> granted d 1 21000 0 0",
        ],
    );
}

#[test]
fn a_lease_may_end_before_its_waiter_learns_of_the_grant() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 200 acquire 1 50 waits -> granted b 1 199000 4000 0",
            "a 10 12 release a 0 -> released",
            "c 20 22 acquire 1 1000 tries -> denied 1 1 0 answered",
            "d 100 102 acquire 1 10 tries -> granted d 1 101000 0 0",
        ],
    );
}

#[test]
fn a_server_that_lost_all_data_may_grant_again() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "server 5 10 forget everything -> done",
            "b 20 22 acquire 1 1000 tries -> granted b 1 21000 0 0",
            "a 30 32 refresh a 1000 -> lost",
        ],
    );
}

#[test]
fn a_grant_may_be_lost_before_its_waiter_learns_of_it() {
    let waits = "a 0 22 acquire 1 1000 waits -> granted a 1 21000 0 0";
    let refused = "b 3 4 acquire 1 1000 tries -> denied 1 1 0 answered";
    let forgot = "server 5 10 forget everything -> done";
    legal(1, &[waits, refused, forgot]);
    illegal(1, Rule::Refusal, &[waits, refused]);
}

#[test]
fn a_repeated_release_may_find_nothing() {
    let lines = [
        "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
        "a 5 9 release a 0 -> gone",
        "b 10 12 acquire 1 1000 tries -> granted b 1 11000 0 0",
    ];
    let repeated = Rules { repeated: true, ..Rules::new(1) };
    legal_under(&repeated, &lines);
    illegal(1, Rule::Lease, &lines);
}

/// The release shows that the refresh ran before the old lease ended, although its caller does not know it.
#[test]
fn an_unanswered_refresh_may_show_in_a_later_release() {
    let lines = [
        "a 0 2 acquire 2 100 tries -> granted a 2 1000 0 0",
        "c 0 90 acquire 1 100 waits -> granted c 1 85000 1500 0",
        "a 80 140 refresh a 100 -> unknown",
        "a 141 142 look a -> lost",
        "c 120 122 release c 0 -> released",
        "b 30 160 acquire 2 100 waits -> granted b 2 155000 31000 0",
        "d 40 161 acquire 1 100 waits -> granted d 1 155001 41000 0",
        "a 150 190 release a 0 -> released",
        "b 165 180 release b 0 -> released",
        "e 41 181 acquire 1 100 waits -> granted e 1 175000 42000 0",
        "f 42 181 acquire 1 100 waits -> granted f 1 175001 43000 0",
    ];
    let late = Rules { order: false, repeated: true, late: 5_000_000, ..Rules::new(3) };
    legal_under(&late, &lines);
}

/// An unknown grant that a denial reveals after a later grant. Any of many unanswered calls may have been
/// granted too: there are too many orders to try each.
#[test]
fn a_grant_may_be_visible_only_in_a_later_denial() {
    let unknown = |at: u32| {
        let (start, end) = (10 * at, 10 * at + 5);
        let permits = 1 + at % 2;
        format!("x {start} {end} acquire {permits} 2000 waits -> unknown")
    };
    let mut lines: Vec<String> = (0..30).map(unknown).collect();
    let reported = [
        "a 500 502 acquire 1 2000 tries -> granted a 1 501000 0 0",
        "b 503 505 acquire 1 2000 tries -> granted b 1 504000 0 0",
        "c 510 513 acquire 1 2000 waits -> unknown",
        "b 511 525 release b 0 -> released",
        "d 520 540 acquire 2 2000 waits -> granted d 2 536000 522000 0",
        "e 527 539 acquire 2 2000 tries -> denied 2 3 1 answered",
        "d 541 543 release d 0 -> released",
    ];
    lines.extend(reported.map(str::to_owned));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let late = Rules { late: 5_000_000, ..Rules::new(3) };
    History::of(&lines).assert(&late);
}

/// Each of many calls may have been granted before its process was killed. Only one of these leases ended in
/// time.
#[test]
fn a_grant_may_be_visible_only_by_the_end_of_its_lease() {
    let killed = |at: u32| {
        let lease = if at == 25 { 3_000 } else { 10_000 };
        format!("x {at} - acquire 1 {lease} waits -> never-returned")
    };
    let mut lines: Vec<String> = (0..30).map(killed).collect();
    lines.push("a 40 42 acquire 2 500 tries -> denied 2 3 1 answered".to_owned());
    for at in (50..2_800).step_by(6) {
        let fence = 1_000 * at + 1_000;
        let (reported, released) = (at + 2, at + 4);
        lines.push(format!("a {at} {reported} acquire 1 500 tries -> granted {at} 1 {fence} 0 0"));
        lines.push(format!("a {reported} {released} release {at} 0 -> released"));
    }
    let granted = "b 2900 3100 acquire 2 500 waits -> granted b 2 3050000 2901000 0";
    lines.push(granted.to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    History::of(&lines).assert(&Rules::new(3));
}

#[test]
fn a_wait_without_an_answer_may_stay_in_line() {
    let unknown = "a 0 2 acquire 2 1000 waits -> unknown";
    let other = "b 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0";
    let refused = |at: u32| format!("c {at} {} acquire 1 1000 tries -> denied 1 2 1 answered", at + 2);
    let late = Rules { late: 100_000, order: false, ..Rules::new(2) };
    legal_under(&late, &[unknown, other, &refused(90)]);
    let too_late = History::of(&[unknown, other, &refused(110)]);
    assert_eq!(judge(&too_late, &late), Err(Rule::Refusal));
}

#[test]
fn each_semaphore_is_checked_separately() {
    let mut history = History::of(&[
        "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
        "b 0 2 acquire 1 1000 tries -> granted b 1 1000 0 0",
    ]);
    history.calls[1].semaphore = "other".to_owned();
    assert_eq!(history.assert(&Rules::new(1)).semaphores, 2);
}
