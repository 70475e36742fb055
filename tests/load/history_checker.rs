//! Promise: the check of a history accepts what a sound semaphore can show, and refuses what none can, by the name of the
//! promise that is broken.

use crate::support::dice::Dice;
use crate::support::history::{Call, Full, Granted, History, Lease, Op, Outcome, Recorder, Rule, Rules};

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

// What a sound semaphore can show.

#[test]
fn a_release_counts_at_any_moment_of_its_call() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 10 30 release a 0 -> released",
            "b 11 13 acquire 1 1000 tries -> granted b 1 12000 0 0",
            "c 14 16 acquire 1 1000 tries -> denied 1 1 0 told",
        ],
    );
}

#[test]
fn a_refusal_needs_one_moment() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 30 acquire 1 1000 tries -> denied 1 1 0 told",
            "a 10 12 release a 0 -> released",
        ],
    );
}

#[test]
fn who_waits_is_granted_in_the_order_of_the_tickets() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 21 acquire 1 1000 waits -> granted b 1 20000 4000 0",
            "c 5 31 acquire 1 1000 waits -> granted c 1 30000 6000 0",
            "d 7 9 acquire 1 1000 tries -> denied 1 1 2 told",
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
            "c 5 9 acquire 1 1000 tries -> denied 2 3 1 told",
            "d 5 9 acquire 1 1000 waits -> timed-out 2 3 1 told",
            "a 19 22 release a 0 -> released",
        ],
    );
}

#[test]
fn a_lease_that_ended_lets_the_next_in() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "b 90 110 acquire 1 100 tries -> denied 1 1 0 told",
            "b 102 104 acquire 1 100 tries -> granted b 1 103000 0 0",
            "a 105 106 look a -> lost",
            "a 106 107 refresh a 100 -> lost",
            "a 107 108 release a 0 -> gone",
        ],
    );
}

#[test]
fn a_refresh_keeps_it_from_ending() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0",
            "a 90 92 refresh a 100 -> refreshed 0",
            "b 150 152 acquire 1 100 tries -> denied 1 1 0 told",
            "a 160 161 look a -> held",
            "b 200 202 acquire 1 100 tries -> granted b 1 201000 0 0",
        ],
    );
}

#[test]
fn the_holder_s_own_clock_is_a_little_early() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 100 tries -> granted a 1 1900 0 0",
            "a 99 99 look a -> lost",
            "b 100 101 acquire 1 100 tries -> denied 1 1 0 told",
        ],
    );
}

#[test]
fn a_partial_release_and_a_taker_of_all() {
    legal(
        5,
        &[
            "a 0 2 acquire 4 1000 tries -> granted a 4 1000 0 0",
            "a 3 4 release a 1 -> released",
            "b 5 7 acquire all 1000 tries -> granted b 4 6000 0 0",
            "c 8 9 acquire all 1000 tries -> denied 5 5 0 told",
        ],
    );
}

#[test]
fn an_unanswered_call_that_was_carried_out() {
    legal(
        1,
        &[
            "a 0 - acquire 1 1000 tries -> never-returned",
            "b 5 7 acquire 1 1000 tries -> denied 1 1 0 told",
            "b 1100 1102 acquire 1 1000 tries -> granted b 1 1101000 0 0",
        ],
    );
}

#[test]
fn an_unanswered_call_that_was_not_carried_out() {
    legal(
        1,
        &[
            "a 0 - acquire 1 1000 tries -> never-returned",
            "b 5 7 acquire 1 1000 tries -> granted b 1 6000 0 0",
            "c 8 - release b 0 -> never-returned",
            "d 9 10 acquire 1 1000 tries -> denied 1 1 0 told",
        ],
    );
}

#[test]
fn an_unanswered_release_that_was_carried_out_late() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 5 6 release a 0 -> unknown",
            "b 7 8 acquire 1 1000 tries -> denied 1 1 0 told",
            "b 9 11 acquire 1 1000 tries -> granted b 1 10000 0 0",
        ],
    );
}

#[test]
fn an_unanswered_refresh_was_carried_out_or_was_not() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    let refresh = "a 50 - refresh a 100 -> never-returned";
    let next = "b 110 112 acquire 1 100 tries -> granted b 1 111000 0 0";
    legal(1, &[granted, refresh, next]);
    let refused = "b 110 112 acquire 1 100 tries -> denied 1 1 0 told";
    legal(1, &[granted, refresh, refused]);
}

#[test]
fn an_unanswered_wait_whose_grant_is_given_back_later() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 20 acquire 1 1000 waits -> timed-out 1 1 0 untold",
            "a 10 12 release a 0 -> released",
            "c 30 32 acquire 1 1000 tries -> denied 1 1 0 told",
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
            "c 14 16 acquire 1 1000 tries -> denied 1 1 0 told",
            "d 18 22 acquire 1 1000 tries -> granted d 1 21000 0 0",
        ],
    );
}

#[test]
fn a_lease_that_ended_before_its_waiter_heard_of_the_grant() {
    legal(
        1,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 200 acquire 1 50 waits -> granted b 1 199000 4000 0",
            "a 10 12 release a 0 -> released",
            "c 20 22 acquire 1 1000 tries -> denied 1 1 0 told",
            "d 100 102 acquire 1 10 tries -> granted d 1 101000 0 0",
        ],
    );
}

#[test]
fn a_server_that_lost_all_grants_again() {
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
fn a_grant_that_the_server_forgot_before_it_was_heard_of() {
    let waits = "a 0 22 acquire 1 1000 waits -> granted a 1 21000 0 0";
    let refused = "b 3 4 acquire 1 1000 tries -> denied 1 1 0 told";
    let forgot = "server 5 10 forget everything -> done";
    legal(1, &[waits, refused, forgot]);
    illegal(1, Rule::Refusal, &[waits, refused]);
}

#[test]
fn a_release_that_was_sent_again_finds_nothing() {
    let lines = [
        "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
        "a 5 9 release a 0 -> gone",
        "b 10 12 acquire 1 1000 tries -> granted b 1 11000 0 0",
    ];
    let repeated = Rules { repeated: true, ..Rules::new(1) };
    legal_under(&repeated, &lines);
    illegal(1, Rule::Lease, &lines);
}

/// A grant that nobody heard of, told by a refusal after another was granted, where any of many calls may have been granted
/// unheard too: too many orders to try them all.
#[test]
fn a_grant_that_only_a_later_refusal_tells_of() {
    let unknown = |at: u32| {
        let (start, end) = (10 * at, 10 * at + 5);
        let permits = 1 + at % 2;
        format!("x {start} {end} acquire {permits} 2000 waits -> unknown")
    };
    let mut lines: Vec<String> = (0..30).map(unknown).collect();
    let told = [
        "a 500 502 acquire 1 2000 tries -> granted a 1 501000 0 0",
        "b 503 505 acquire 1 2000 tries -> granted b 1 504000 0 0",
        "c 510 513 acquire 1 2000 waits -> unknown",
        "b 511 525 release b 0 -> released",
        "d 520 540 acquire 2 2000 waits -> granted d 2 536000 522000 0",
        "e 527 539 acquire 2 2000 tries -> denied 2 3 1 told",
        "d 541 543 release d 0 -> released",
    ];
    lines.extend(told.map(str::to_owned));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let late = Rules { late: 5_000_000, ..Rules::new(3) };
    History::of(&lines).assert(&late);
}

/// Each of many may have been granted before it was killed, but only one so that its lease ended in time.
#[test]
fn a_grant_that_only_the_end_of_its_lease_tells_of() {
    let killed = |at: u32| {
        let lease = if at == 25 { 3_000 } else { 10_000 };
        format!("x {at} - acquire 1 {lease} waits -> never-returned")
    };
    let mut lines: Vec<String> = (0..30).map(killed).collect();
    lines.push("a 40 42 acquire 2 500 tries -> denied 2 3 1 told".to_owned());
    for at in (50..2_800).step_by(6) {
        let fence = 1_000 * at + 1_000;
        let (told, released) = (at + 2, at + 4);
        lines.push(format!("a {at} {told} acquire 1 500 tries -> granted {at} 1 {fence} 0 0"));
        lines.push(format!("a {told} {released} release {at} 0 -> released"));
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
    let refused = |at: u32| format!("c {at} {} acquire 1 1000 tries -> denied 1 2 1 told", at + 2);
    let late = Rules { late: 100_000, order: false, ..Rules::new(2) };
    legal_under(&late, &[unknown, other, &refused(90)]);
    let too_late = History::of(&[unknown, other, &refused(110)]);
    assert_eq!(judge(&too_late, &late), Err(Rule::Refusal));
}

#[test]
fn each_semaphore_by_itself() {
    let mut history = History::of(&[
        "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
        "b 0 2 acquire 1 1000 tries -> granted b 1 1000 0 0",
    ]);
    history.calls[1].semaphore = "other".to_owned();
    assert_eq!(history.assert(&Rules::new(1)).semaphores, 2);
}

// What none can show.

#[test]
fn two_where_one_may_be() {
    illegal(
        1,
        Rule::Limit,
        &["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0", "b 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0"],
    );
}

#[test]
fn more_than_the_limit_by_weight() {
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
fn another_let_in_before_the_lease_ended() {
    illegal(
        1,
        Rule::Limit,
        &["a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0", "b 95 97 acquire 1 100 tries -> granted b 1 96000 0 0"],
    );
}

#[test]
fn told_that_more_are_in_use_than_may_be() {
    illegal(
        1,
        Rule::Limit,
        &["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0", "b 3 5 acquire 1 1000 tries -> denied 2 1 0 told"],
    );
}

#[test]
fn waiters_granted_in_another_order() {
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
fn a_try_that_overtakes_who_waits() {
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
fn a_fence_given_twice() {
    illegal(
        2,
        Rule::Fence,
        &["a 0 2 acquire 1 1000 tries -> granted a 1 1500 0 0", "b 1 3 acquire 1 1000 tries -> granted b 1 1500 0 0"],
    );
}

#[test]
fn a_fence_below_that_of_an_earlier_grant() {
    let lines =
        ["a 0 2 acquire 1 1000 tries -> granted a 1 5000 0 0", "b 3 5 acquire 1 1000 tries -> granted b 1 4000 0 0"];
    let other_clock = Rules { same_clock: false, ..Rules::new(2) };
    assert_eq!(judge(&History::of(&lines), &other_clock), Err(Rule::Fence));
    illegal(2, Rule::Fence, &lines); // the first is not the time of its call either
}

#[test]
fn a_fence_below_its_ticket() {
    illegal(2, Rule::Fence, &["a 0 9 acquire 1 1000 waits -> granted a 1 2000 3000 0"]);
}

#[test]
fn told_lost_while_the_lease_runs() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    illegal(1, Rule::Lease, &[granted, "a 97 98 look a -> lost"]);
    illegal(1, Rule::Lease, &[granted, "a 97 98 refresh a 100 -> lost"]);
    illegal(1, Rule::Lease, &[granted, "a 97 98 release a 0 -> gone"]);
}

#[test]
fn held_after_the_lease_ended() {
    let granted = "a 0 2 acquire 1 100 tries -> granted a 1 1000 0 0";
    let ended = ["look a -> held", "refresh a 100 -> refreshed 0"];
    for told in ended {
        illegal(1, Rule::Lease, &[granted, &format!("a 102 103 {told}")]);
    }
}

#[test]
fn a_lease_of_another_length() {
    illegal(1, Rule::Lease, &["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 500"]);
}

#[test]
fn released_twice() {
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
fn refused_though_all_are_free() {
    illegal(
        1,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 3 4 release a 0 -> released",
            "b 5 6 acquire 1 1000 tries -> denied 0 1 0 told",
        ],
    );
}

#[test]
fn refused_for_a_waiter_that_there_is_not() {
    illegal(1, Rule::Refusal, &["b 5 6 acquire 1 1000 tries -> denied 0 1 1 told"]);
}

#[test]
fn timed_out_though_one_is_free() {
    illegal(
        2,
        Rule::Refusal,
        &["a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0", "b 5 50 acquire 1 1000 waits -> timed-out 1 2 0 told"],
    );
}

#[test]
fn told_another_count_than_any_moment_had() {
    illegal(
        3,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "b 3 5 acquire 2 1000 tries -> granted b 2 4000 0 0",
            "c 6 7 acquire 2 1000 tries -> denied 2 3 0 told",
        ],
    );
}

#[test]
fn a_release_that_did_not_free() {
    illegal(
        1,
        Rule::Refusal,
        &[
            "a 0 2 acquire 1 1000 tries -> granted a 1 1000 0 0",
            "a 3 4 release a 0 -> released",
            "b 5 6 acquire 1 1000 tries -> denied 1 1 0 told",
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

// Histories by chance.

/// A sound semaphore on paper, of which calls with overlapping spans are made by chance: what was told at one point between
/// start and end.
struct Paper {
    dice: Dice,
    limit: u32,
    now: u64,
    calls: Vec<Call>,
    /// Holder, permits, end of the lease.
    holders: Vec<(String, u32, u64)>,
}

const LEASE: u64 = 30;

impl Paper {
    fn in_use(&self) -> u32 {
        self.holders.iter().map(|(_, permits, _)| permits).sum()
    }

    fn record(&mut self, op: Op, outcome: Outcome) {
        let start = self.now - self.dice.below(8_000);
        let end = self.now + self.dice.below(8_000);
        let unheard = self.dice.below(12) == 0 && !matches!(outcome, Outcome::Denied(_));
        self.calls.push(Call {
            who: self.calls.len().to_string(),
            semaphore: "s".to_owned(),
            op,
            start,
            end: (!unheard).then_some(end),
            outcome: if unheard { Outcome::NeverReturned } else { outcome },
        });
    }

    fn ask(&mut self) {
        let permits = 1 + self.dice.below(2) as u32;
        let op = Op::Acquire { permits: Some(permits), lease: Lease::Ms(LEASE), waits: false };
        let in_use = self.in_use();
        if in_use + permits > self.limit {
            let full = Full { in_use, limit: self.limit, waiting: 0, answered: true };
            return self.record(op, Outcome::Denied(full));
        }
        let id = format!("id{}", self.calls.len());
        let ends = (self.now / 1_000 + LEASE) * 1_000;
        self.holders.push((id.clone(), permits, ends));
        let granted = Granted { id, permits, fence: self.now, ticket: None, expires_at: None };
        self.record(op, Outcome::Granted(granted));
    }

    fn give_back(&mut self) {
        if !self.holders.is_empty() {
            let which = self.dice.below(self.holders.len() as u64) as usize;
            let (id, ..) = self.holders.remove(which);
            self.record(Op::Release { id, keep: 0 }, Outcome::Released);
        }
    }

    fn refresh(&mut self) {
        let now = self.now;
        if let Some((id, _, ends)) = self.holders.first_mut() {
            *ends = (now / 1_000 + LEASE) * 1_000;
            let id = id.clone();
            let lease = Lease::Ms(LEASE);
            self.record(Op::Refresh { id, lease }, Outcome::Refreshed(None));
        }
    }

    fn history(seed: u64, calls: usize) -> History {
        let mut paper =
            Paper { dice: Dice::new(seed), limit: 3, now: 1_000_000, calls: Vec::new(), holders: Vec::new() };
        while paper.calls.len() < calls {
            paper.now += 1 + paper.dice.below(4_000);
            let now = paper.now;
            paper.holders.retain(|(.., ends)| *ends > now);
            match paper.dice.below(8) {
                0..4 => paper.ask(),
                4..7 => paper.give_back(),
                _ => paper.refresh(),
            }
        }
        History { calls: paper.calls }
    }
}

/// Falsifies one reply.
fn falsify(history: &mut History, dice: &mut Dice) {
    let count = history.calls.len() as u64;
    let other = dice.below(count) as usize;
    let call = &mut history.calls[dice.below(count) as usize];
    match &mut call.outcome {
        Outcome::Denied(full) => full.in_use = 3 - full.in_use % 3,
        Outcome::Released => call.outcome = Outcome::Gone,
        Outcome::Refreshed(_) => call.outcome = Outcome::Lost,
        Outcome::Granted(granted) => {
            granted.permits = 3;
            if let Op::Acquire { permits, .. } = &mut call.op {
                *permits = Some(3);
            }
        }
        _ => drop(history.calls.remove(other)),
    }
}

#[test]
fn what_a_sound_semaphore_shows_is_always_explained() {
    for seed in 0..40 {
        let rules = Rules { same_clock: seed % 2 == 0, ..Rules::new(3) };
        Paper::history(seed, 100).assert(&rules);
    }
}

#[test]
fn no_shortcut_leaves_an_order_out() {
    let mut refused = 0;
    for seed in 0..300 {
        let rules = Rules { same_clock: seed % 2 == 0, ..Rules::new(3) };
        let mut history = Paper::history(seed, 9);
        falsify(&mut history, &mut Dice::new(seed + 1_000));
        refused += u32::from(judge(&history, &rules).is_err());
    }
    assert!((50..250).contains(&refused), "{refused} of 300");
}

// What is read is what was recorded.

#[test]
fn a_killed_process_leaves_what_it_had_done() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(folder.path());
    let op = Op::Look { id: "a".to_owned() };
    recorder.start("s", &op).end(&Outcome::Held);
    let _never = recorder.start("s", &op);
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text + "3 start 17").unwrap(); // it was killed while it wrote
    let calls = History::read(folder.path()).calls;
    assert_eq!(calls.len(), 2);
    assert_eq!((&calls[0].op, &calls[0].outcome), (&op, &Outcome::Held));
    assert!(calls[0].end >= Some(calls[0].start));
    assert_eq!((calls[1].end, &calls[1].outcome), (None, &Outcome::NeverReturned));
}
