//! The history checker accepts results that follow from data loss on a server, or from a master that was
//! replaced. It accepts no other wrong results.

use crate::support::history::{History, Rule, Rules};

/// A history of a mutex: `a` holds, some data is lost, then these calls follow.
fn after(what: &str, then: &[&str]) -> Result<(), Rule> {
    let forgets = format!("server 5 10 forget {what} -> done");
    let mut lines = vec!["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0", &forgets];
    lines.extend(then);
    let outcome = History::of(&lines).check(&Rules::new(1));
    outcome.map(drop).map_err(|violation| violation.rule)
}

const LOST: &str = "a 30 32 refresh a 1000 -> lost";
const REFRESHED: &str = "a 30 32 refresh a 1000 -> refreshed 0";
const OTHER: &str = "b 20 22 acquire 1 1000 tries -> granted b 1 21000 0 0";
const OTHER_LATER: &str = "b 1020 1022 acquire 1 1000 tries -> granted b 1 1021000 0 0";
const SMALLER_FENCE: &str = "b 20 22 acquire 1 1000 tries -> granted b 1 500 0 0";

#[test]
fn a_loss_of_all_data_ends_leases_but_keeps_fences_increasing() {
    assert_eq!(after("everything", &[OTHER, LOST]), Ok(()));
    assert_eq!(after("everything", &[REFRESHED]), Err(Rule::Lease));
    assert_eq!(after("everything", &["a 20 22 release a 0 -> released"]), Err(Rule::Lease));
    assert_eq!(after("everything", &[SMALLER_FENCE]), Err(Rule::Fence));
    // A holder granted after the loss counts and keeps its permit.
    let third = "c 25 27 acquire 1 1000 tries -> granted c 1 26000 0 0";
    assert_eq!(after("everything", &[OTHER, third]), Err(Rule::Limit));
    let reported = "b 40 42 refresh b 1000 -> lost";
    assert_eq!(after("everything", &[OTHER, reported]), Err(Rule::Lease));
}

#[test]
fn a_loss_of_one_key_suspends_granting_for_one_lease() {
    assert_eq!(after("one-key", &[LOST]), Ok(()));
    assert_eq!(after("one-key", &[OTHER]), Err(Rule::Limit));
    assert_eq!(after("one-key", &[LOST, OTHER]), Err(Rule::Limit));
    assert_eq!(after("one-key", &[LOST, OTHER_LATER]), Ok(()));
    let released = "a 15 17 release a 0 -> released";
    assert_eq!(after("one-key", &[released, OTHER]), Ok(()));
    // For one lease nothing is granted, also if nothing is in use. After that lease, grants must continue.
    let refused = |at: u64| {
        let end = at + 2;
        format!("c {at} {end} acquire 1 1000 tries -> denied 1 1 0 answered")
    };
    assert_eq!(after("one-key", &[released, &refused(500)]), Ok(()));
    assert_eq!(after("one-key", &[released, &refused(1_300)]), Err(Rule::Refusal));
}

#[test]
fn a_loss_of_the_last_writes_may_end_leases_or_not() {
    assert_eq!(after("the-last", &[OTHER, LOST]), Ok(()));
    assert_eq!(after("the-last", &[REFRESHED]), Ok(()));
    let other = "b 40 42 acquire 1 1000 tries -> granted b 1 41000 0 0";
    assert_eq!(after("the-last", &[REFRESHED, other]), Err(Rule::Limit));
    assert_eq!(after("the-last", &[SMALLER_FENCE]), Err(Rule::Fence));
}

/// `b` holds a mutex on the promoted master. The former master is reachable again from 300 to 310.
fn two_masters(then: &[&str]) -> Result<(), Rule> {
    let mut lines = vec![
        "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
        "server 100 200 forget the-last -> done",
        "b 205 207 acquire 1 1000 tries -> granted b 1 206000 0 0",
        "b 350 352 refresh b 1000 -> refreshed 0",
    ];
    lines.extend(then);
    let outcome = History::of(&lines).check(&Rules::new(1));
    outcome.map(drop).map_err(|violation| violation.rule)
}

#[test]
fn a_former_master_may_grant_until_it_is_reconfigured() {
    let back = "server 300 310 two-masters -> done";
    let granted = "c 3 306 acquire 1 1000 waits -> granted c 1 305000 4000 0";
    let lost = "c 320 322 refresh c 1000 -> lost";
    assert_eq!(two_masters(&[back, granted, lost]), Ok(()));
    let released = "c 307 309 release c 0 -> released";
    assert_eq!(two_masters(&[back, granted, released]), Ok(()));
    let none = "b 301 303 release b 0 -> gone";
    assert_eq!(two_masters(&[back, none]), Ok(()));
    // Only during that time, and only on the former master.
    assert_eq!(two_masters(&[granted, lost]), Err(Rule::Limit));
    let later = "c 3 316 acquire 1 1000 waits -> granted c 1 315000 4000 0";
    assert_eq!(two_masters(&[back, later, lost]), Err(Rule::Limit));
    let kept = "c 320 322 refresh c 1000 -> refreshed 0";
    assert_eq!(two_masters(&[back, granted, kept]), Err(Rule::Lease));
    let third = "d 330 332 acquire 1 1000 tries -> granted d 1 331000 0 0";
    assert_eq!(two_masters(&[back, granted, lost, third]), Err(Rule::Limit));
}
