//! Promise: the history checker accepts everything that a correct semaphore can show. It refuses everything
//! else and names the broken promise.

mod accepted;
mod by_chance;
mod head_starts;
mod recorded;
mod refused;

use crate::support::history::{History, Rule, Rules};

/// Whether some order explains the history. All efforts must return the same result.
fn judge(history: &History, rules: &Rules) -> Result<(), Rule> {
    let outcome = history.check(rules);
    let thorough = history.check_every_order(rules);
    assert_eq!(
        outcome.is_ok(),
        thorough.is_ok(),
        "the shortcuts have missed an order: {outcome:?} {thorough:?} {history:#?}"
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
