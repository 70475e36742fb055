//! Promise: the check of a history accepts what a sound semaphore can show, and refuses what none can, by the name of the
//! promise that is broken.

mod accepted;
mod by_chance;
mod recorded;
mod refused;

use crate::support::history::{History, Rule, Rules};

/// Whether some order explains it, which all efforts must agree on.
fn judge(history: &History, rules: &Rules) -> Result<(), Rule> {
    let outcome = history.check(rules);
    let thorough = history.check_every_order(rules);
    assert_eq!(
        outcome.is_ok(),
        thorough.is_ok(),
        "a shortcut leaves something out: {outcome:?} {thorough:?} {history:#?}"
    );
    outcome.map(drop).map_err(|violation| violation.rule)
}

#[track_caller]
fn legal_under(rules: &Rules, lines: &[&str]) {
    let history = History::of(lines);
    history.assert(rules);
    assert_eq!(judge(&history, rules), Ok(()));
}

#[track_caller]
fn legal(limit: u32, lines: &[&str]) {
    legal_under(&Rules::new(limit), lines);
}

#[track_caller]
fn illegal(limit: u32, rule: Rule, lines: &[&str]) {
    assert_eq!(judge(&History::of(lines), &Rules::new(limit)), Err(rule));
}
