//! A wait for a permit, event by event: its next action.

use super::at;
use super::wait::{Shown, Wait, ms};
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::keys::Keys;
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::{LeaseOptions, Sent};
use crate::protocol::semaphore::{AcquireAnswer, Grant, Usage};
use crate::protocol::waiter::{AskKind, Granted, NotGranted, PermitTarget, QueueEntry, WaitTarget};

pub(super) const USAGE: Usage = Usage { in_use: 3, limit: 3 };

fn failed(kind: FailureKind) -> CallError {
    CallError::Failed(Failure::new(kind, "no answer"))
}

pub(super) fn unknown(kind: FailureKind) -> CallError {
    CallError::Unknown(Failure::new(kind, "no answer"))
}

fn queued(ticket: u64, position: u64, retry_after: u64, now: u64) -> AcquireAnswer {
    AcquireAnswer::Queued { ticket, position, retry_after, usage: USAGE, now }
}

pub(super) fn denied() -> AcquireAnswer {
    AcquireAnswer::Denied { next_expiry: None, usage: USAGE, waiting: 0, now: 0 }
}

pub(super) fn grant(fence: u64, end: u64, now: u64) -> Grant {
    Grant { permits: 1, fence, expires_at: Some(end), now }
}

impl Shown for PermitTarget {
    /// An error is shown by its name.
    fn show(result: Result<Granted, NotGranted>) -> String {
        match result {
            Ok(granted) => {
                let end = granted.deadline.instant().map(ms);
                format!("granted {} until {end:?}, ticket {:?}", granted.grant.fence, granted.ticket)
            }
            Err(error) => {
                let text = format!("{error:?}");
                let text = text.strip_prefix("Unanswered(").unwrap_or(&text);
                let word = text.split(|c: char| !c.is_alphanumeric()).next();
                word.unwrap_or_default().to_owned()
            }
        }
    }
}

impl Wait<PermitTarget> {
    pub(super) fn new(deadline: Option<u64>, own_id: bool, strict: bool) -> Self {
        let keys = Keys::mutex("luagate", "m").unwrap();
        let lease = LeaseOptions { lease_ms: 3_000, renewed: false, own_id, at_least_ms: 0 };
        let (id, permits, entry) = ("id".to_owned(), Some(1), QueueEntry::default());
        Wait::of(
            PermitTarget {
                keys,
                id,
                permits,
                limit: 3,
                strict,
                max_waiting: 0,
                head_start_ms: 0,
                lease,
                entry,
            },
            deadline,
        )
    }

    /// A wait in line since 0, with ticket 50, by a reply with the server time 1,000.
    pub(super) fn in_line(deadline: Option<u64>, own_id: bool) -> Self {
        let mut wait = Wait::<PermitTarget>::new(deadline, own_id, false);
        assert_eq!(wait.start(true), "sleeps until 0");
        let asks = match deadline {
            None => "asks InLine".to_owned(),
            Some(ms) => format!("asks InLine until {}", ms + 30),
        };
        assert_eq!(wait.timer(0), asks);
        let sleeps = format!("sleeps until {}", deadline.unwrap_or(4_000).min(4_000));
        assert_eq!(wait.answered(queued(50, 1, 4_000, 1_000), 0, 10), sleeps);
        wait
    }
}

pub(super) fn check() {
    first_calls();
    grants_by_message();
    hints();
    own_ids();
    tickets();
    refused_for_now();
    doubts();
    timeouts();
    outages();
    cancellations();
    limits();
    full_lines();
    late_grants();
}

/// Without an inbox it asks once without joining the line. It sleeps as the reply says, for at most 5 s.
fn first_calls() {
    let mut wait = Wait::<PermitTarget>::new(Some(1_000), false, false);
    assert_eq!(wait.start(false), "asks First until 1030");
    assert_eq!(wait.answered(denied(), 0, 5), "sleeps until 0");
    assert_eq!(wait.timer(5), "asks InLine until 1030");
    let sleeps = [(1, 9_000, 5_010), (2, 9_000, 5_010), (1, 500, 510), (9, 500, 510)];
    for (position, retry_after, until) in sleeps {
        let mut wait = Wait::<PermitTarget>::new(None, false, false);
        wait.start(true);
        wait.timer(0);
        let sleeps = wait.answered(queued(50, position, retry_after, 1_000), 10, 20);
        assert_eq!(sleeps, format!("sleeps until {until}"));
    }
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.timer(4_000), "asks InLine");
    let answer = AcquireAnswer::Granted(grant(60, 8_000, 5_000), USAGE);
    assert_eq!(wait.answered(answer, 4_000, 4_100), "granted 60 until Some(6999), ticket Some(50)");
    let mut first = Wait::<PermitTarget>::new(None, false, false);
    first.start(true);
    first.timer(0);
    first.answered(queued(1, 1, 4_000, 1_000), 0, 10);
    assert_eq!(first.message(2, Some(4_000), 1_500, 600), "granted 2 until Some(2999), ticket Some(1)");
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    let answer = AcquireAnswer::Held(grant(60, 8_000, 5_000), USAGE);
    assert_eq!(
        wait.answered(answer, 4_000, 4_100),
        "granted 60 until Some(6999), ticket Some(50)",
        "a unique id"
    );
}

/// A message brings a grant if its fence is above the ticket and it is new. Its lease counts from the earlier
/// of two bounds.
fn grants_by_message() {
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(49, Some(9_000), 1_500, 600), "sleeps until 4000", "of an earlier ticket");
    assert_eq!(wait.message(50, Some(9_000), 1_500, 600), "sleeps until 4000");
    assert_eq!(wait.message(60, Some(4_500), 1_500, 600), "granted 60 until Some(3499), ticket Some(50)");
    // With a head start the ticket is lower than the fences of that time.
    let mut wait = Wait::in_line(None, false);
    wait.waiter.target.head_start_ms = 2;
    assert_eq!(wait.message(2_050, Some(9_000), 1_500, 600), "sleeps until 4000", "of an earlier permit");
    assert_eq!(
        wait.message(2_051, Some(4_500), 1_500, 600),
        "granted 2051 until Some(3499), ticket Some(50)"
    );
    let mut wait = Wait::in_line(None, false);
    wait.waiter.target.head_start_ms = 2_000;
    assert_eq!(
        wait.message(1_000_000, Some(9_000), 1_500, 600),
        "sleeps until 4000",
        "from before the last reply"
    );
    let granted = "granted 1000001 until Some(3499), ticket Some(50)";
    assert_eq!(wait.message(1_000_001, Some(4_500), 1_500, 600), granted);
    let mut wait = Wait::in_line(None, true);
    wait.waiter.target.head_start_ms = 2;
    wait.timer(4_000);
    let other = AcquireAnswer::Held(grant(2_050, 8_000, 5_000), USAGE);
    assert_eq!(wait.answered(other, 4_000, 4_100), "AlreadyHeld", "a permit from before the wait");
    // A slow message: counted from its own send time, the lease would end at 5,000 + 2,999.
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(60, Some(4_500), 1_500, 3_400), "granted 60 until Some(3499), ticket Some(50)");
    // The message was sent before the call whose reply contained the server time; the bound by the message
    // counts.
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(60, Some(9_000), 8_000, 100), "granted 60 until Some(1099), ticket Some(50)");
    let mut wait = Wait::in_line(None, false);
    let late = wait.message(60, Some(1_400), 1_300, 600);
    assert!(late.starts_with("Failed") && late.ends_with("gives back now true, later false"), "{late}");
    // The message was sent before the last reply, which put the waiter in line. It asks whether it still
    // holds the permit.
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(60, Some(9_000), 999, 600), "sleeps until 600");
    assert_eq!(wait.message(60, Some(9_000), 1_500, 700), "sleeps until 600", "a repeated message");
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(60, Some(4_500), 1_000, 600), "granted 60 until Some(3499), ticket Some(50)");
    let mut early = Wait::<PermitTarget>::new(None, false, false);
    early.start(true);
    assert_eq!(early.message(60, Some(9_000), 1_500, 0), "sleeps until 0", "older than the wait");
}

/// A hint can make it ask sooner, never later. A hint older than the last reply does not count.
fn hints() {
    let mut wait = Wait::in_line(None, false);
    assert_eq!(wait.message(0, Some(3_000), 999, 100), "sleeps until 4000");
    assert_eq!(wait.message(0, Some(3_000), 1_000, 100), "sleeps until 2000");
    assert_eq!(wait.message(0, Some(3_500), 1_000, 100), "sleeps until 2000");
    assert_eq!(wait.called(300), "sleeps until 300");
    assert_eq!(wait.message(0, None, 1_000, 100), "Revoked, gives back now true, later false");
    let mut early = Wait::<PermitTarget>::new(None, false, false);
    early.start(true);
    assert_eq!(early.called(300), "sleeps until 0");
}

/// A wait with the ticket of an earlier one is in line only after the first reply. Its error has the ticket
/// from the beginning.
fn tickets() {
    let of = |own_id| {
        let mut wait = Wait::<PermitTarget>::new(None, own_id, false);
        wait.waiter.target.entry.ticket = 50;
        wait.start(true);
        wait.timer(0);
        wait
    };
    let ticket = |wait: &Wait<PermitTarget>| match wait.waiter.target.cancelled() {
        NotGranted::Cancelled { ticket } => ticket,
        error => panic!("{error:?}"),
    };
    assert_eq!(ticket(&of(false)), Some(50));
    assert_eq!(ticket(&Wait::new(None, false, false)), None);
    let error = of(false).unanswered(unknown(FailureKind::TimedOut), 10);
    assert!(error.starts_with("Unknown"), "no outage is waited for: {error}");
    assert_eq!(of(true).answered(AcquireAnswer::Held(grant(60, 9_000, 2_000), USAGE), 0, 10), "AlreadyHeld");
    let mut wait = of(true);
    wait.answered(queued(50, 1, 4_000, 1_000), 0, 10);
    assert_eq!(ticket(&wait), Some(50));
    wait.timer(4_000);
    assert!(
        wait.answered(AcquireAnswer::Held(grant(60, 9_000, 2_000), USAGE), 4_000, 4_010)
            .starts_with("granted 60")
    );
}

/// A wait in line under a fixed id finds its own grant, in a message or in a reply. A wait that is not in
/// line finds the permit of another caller.
fn own_ids() {
    let held = |fence| AcquireAnswer::Held(grant(fence, 9_000, 2_000), USAGE);
    let granted = "granted 60 until Some(10999), ticket Some(50)";
    let mut wait = Wait::in_line(None, true);
    assert_eq!(wait.message(60, Some(4_500), 1_500, 600), "granted 60 until Some(3499), ticket Some(50)");
    let mut wait = Wait::in_line(None, true);
    wait.timer(4_000);
    assert_eq!(wait.answered(held(60), 4_000, 4_010), granted, "the message was lost");
    let mut wait = Wait::in_line(None, true);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::TimedOut), 4_000);
    wait.timer(4_100);
    assert_eq!(wait.answered(held(60), 4_000, 4_110), granted, "the reply was lost");
    let mut wait = Wait::in_line(Some(4_000), true);
    assert_eq!(wait.timer(4_000), "asks Last until 4030");
    assert_eq!(wait.answered(held(60), 4_000, 4_010), granted, "granted until its time was over");
    let mut wait = Wait::in_line(None, true);
    wait.waiter.target.strict = true;
    wait.timer(4_000);
    let other = AcquireAnswer::Held(grant(60, 9_000, 2_000), Usage { in_use: 1, limit: 2 });
    assert_eq!(wait.answered(other, 4_000, 4_010), "LimitMismatch, gives back now true, later false");
    let mut wait = Wait::<PermitTarget>::new(None, true, false);
    wait.start(false);
    assert_eq!(wait.answered(held(60), 0, 10), "AlreadyHeld");
    let mut wait = Wait::<PermitTarget>::new(None, true, false);
    wait.start(true);
    wait.timer(0);
    assert_eq!(wait.answered(held(60), 0, 10), "AlreadyHeld");
    // The same if an earlier attempt of its first call was not answered, unless the permit is older.
    for (fence, outcome) in
        [(1_990_000, "granted 1990000 until Some(6999), ticket None"), (1_989_999, "AlreadyHeld")]
    {
        let mut wait = Wait::<PermitTarget>::new(None, true, false);
        wait.start(true);
        wait.timer(0);
        assert_eq!(wait.answered_at_last(held(fence), 0, 10), outcome);
    }
    // A fence that is not above the ticket is of an earlier permit. It is not released, even if a call
    // without a reply may still bring a grant.
    let mut wait = Wait::in_line(None, true);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::Disconnected), 4_000);
    wait.timer(4_100);
    assert_eq!(wait.answered(held(50), 4_100, 4_110), "AlreadyHeld");
}

/// At the timeout one last call takes a grant that was on its way, or leaves the line.
fn timeouts() {
    let mut wait = Wait::in_line(Some(500), false);
    assert_eq!(wait.timer(499), "asks InLine until 530");
    assert_eq!(wait.answered(queued(50, 1, 4_000, 1_500), 499, 501), "sleeps until 500");
    // The thread woke up late. The wait ends in time all the same, but a process that was stopped gets the
    // reply.
    for (now, until) in [(510, 530), (515, 530), (516, 531), (9_000, 9_015)] {
        assert_eq!(wait.clone().timer(now), format!("asks Last until {until}"));
    }
    wait.timer(510);
    assert_eq!(wait.answered(denied(), 510, 520), "TimedOut");
    let last = || {
        let mut wait = Wait::in_line(Some(500), false);
        assert_eq!(wait.timer(500), "asks Last until 530");
        wait
    };
    // A release at the end does not take longer either.
    let give_back_ends = |now| ms(last().waiter.give_back_ends(at(now).instant()));
    assert_eq!([100, 500, 525, 9_000].map(give_back_ends), [130, 530, 530, 530]);
    let answer = AcquireAnswer::Granted(grant(60, 9_000, 6_000), USAGE);
    assert_eq!(last().answered(answer, 500, 510), "granted 60 until Some(3499), ticket Some(50)");
    // The wait timed out before the reply came: what it may have granted is released later.
    let given_back = "TimedOut, gives back now false, later true";
    for kind in [FailureKind::TimedOut, FailureKind::Unreachable] {
        assert_eq!(last().unanswered(unknown(kind), 530), given_back);
        assert_eq!(last().unanswered(failed(kind), 530), given_back);
    }
    let error = last().unanswered(failed(FailureKind::Permission), 530);
    assert!(error.starts_with("Failed") && error.ends_with("later true"), "{error}");
    let invalid = CallError::Invalid(Keys::mutex("luagate", "").unwrap_err());
    let error = last().unanswered(invalid, 530);
    assert!(error.starts_with("Invalid") && error.ends_with("later true"), "{error}");
    // The same if the wait timed out during a call before the last one.
    let mut wait = Wait::in_line(Some(500), false);
    wait.timer(499);
    assert_eq!(wait.unanswered(unknown(FailureKind::TimedOut), 530), given_back);
    // An outage is reported, unless it began within the last call. So is the failure of a wait without a
    // place in line.
    for (began, reported) in [(510, "TimedOut"), (509, "Failed")] {
        let mut wait = Wait::in_line(Some(540), false);
        wait.timer(began);
        wait.unanswered(failed(FailureKind::Unreachable), began);
        wait.timer(540);
        let given_back = format!("{reported}, gives back now false, later true");
        assert_eq!(wait.unanswered(failed(FailureKind::Unreachable), 540), given_back);
    }
    let mut wait = Wait::<PermitTarget>::new(Some(500), false, false);
    wait.start(true);
    wait.timer(510);
    assert_eq!(wait.unanswered(failed(FailureKind::Unreachable), 520), "Failed");
}

/// While the server is unreachable, a waiter in line asks every 100 ms, up to its outage limit.
fn outages() {
    let mut wait = Wait::in_line(None, false);
    for now in [4_000, 4_100, 4_999] {
        assert_eq!(wait.timer(now), "asks InLine");
        assert_eq!(
            wait.unanswered(unknown(FailureKind::Disconnected), now),
            format!("sleeps until {}", now + 100)
        );
    }
    wait.timer(5_000);
    let over = wait.unanswered(failed(FailureKind::Unreachable), 5_000);
    assert!(over.starts_with("Failed") && over.ends_with("now false, later true"), "{over}");
    // A grant is kept, although a call had no reply.
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::Disconnected), 4_000);
    wait.timer(4_100);
    let answer = AcquireAnswer::Granted(grant(60, 8_000, 5_000), USAGE);
    assert_eq!(wait.answered(answer, 4_100, 4_200), "granted 60 until Some(7099), ticket Some(50)");
    // A waiter that did not ask ignores a failure.
    let failure = failed(FailureKind::Permission);
    assert_eq!(Wait::in_line(None, false).unanswered(failure, 100), "sleeps until 4000");
    // A reply ends the outage.
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    wait.unanswered(failed(FailureKind::Disconnected), 4_000);
    wait.timer(4_100);
    wait.answered(queued(50, 1, 4_000, 5_000), 4_100, 4_100);
    wait.timer(8_100);
    assert_eq!(wait.unanswered(failed(FailureKind::Disconnected), 8_100), "sleeps until 8200");
    // A failure that a retry cannot fix ends the wait; so does any failure before the waiter is in line.
    wait.timer(8_200);
    let denied = wait.unanswered(failed(FailureKind::Permission), 8_200);
    assert!(denied.starts_with("Failed") && denied.ends_with("later true"), "{denied}");
    let mut first = Wait::<PermitTarget>::new(None, false, false);
    first.start(true);
    first.timer(0);
    assert_eq!(first.unanswered(failed(FailureKind::Unreachable), 0), "Failed");
    let mut first = Wait::<PermitTarget>::new(None, false, false);
    first.start(true);
    first.timer(0);
    let unknown = first.unanswered(unknown(FailureKind::Disconnected), 0);
    assert!(unknown.starts_with("Unknown") && unknown.ends_with("now false, later true"), "{unknown}");
}

fn cancellations() {
    // The lowest possible ticket counts too.
    let mut wait = Wait::<PermitTarget>::new(None, false, false);
    wait.start(true);
    assert_eq!(wait.called(5), "sleeps until 0");
    wait.timer(0);
    assert_eq!(wait.answered(queued(1, 1, 4_000, 1_000), 0, 10), "sleeps until 4000");
    assert_eq!(wait.called(300), "sleeps until 300");
    assert_eq!(wait.cancelled(), "Cancelled, gives back now true, later false");
    assert_eq!(Wait::in_line(None, false).cancelled(), "Cancelled, gives back now true, later false");
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::Disconnected), 4_000);
    assert_eq!(wait.cancelled(), "Cancelled, gives back now true, later true");
    let mut early = Wait::<PermitTarget>::new(None, false, false);
    early.start(true);
    assert_eq!(early.cancelled(), "Cancelled");
}

/// A strict limit is checked in every reply, and before a grant message is accepted.
fn limits() {
    let other = Usage { in_use: 1, limit: 2 };
    for (strict, reported) in [
        (true, "LimitMismatch, gives back now true, later false"),
        (false, "granted 60 until Some(2999), ticket None"),
    ] {
        let mut wait = Wait::<PermitTarget>::new(None, false, strict);
        wait.start(true);
        wait.timer(0);
        let answer = AcquireAnswer::Granted(grant(60, 8_000, 5_000), other);
        assert_eq!(wait.answered(answer, 0, 5), reported);
    }
    let mut wait = Wait::<PermitTarget>::new(None, false, true);
    wait.start(true);
    wait.timer(0);
    assert_eq!(wait.answered(queued(50, 1, 4_000, 1_000), 0, 5), "sleeps until 4000");
    assert_eq!(wait.message(60, Some(9_000), 1_500, 600), "sleeps until 600");
    let queued =
        AcquireAnswer::Queued { ticket: 50, position: 1, retry_after: 4_000, usage: other, now: 1_600 };
    wait.timer(600);
    assert_eq!(wait.answered(queued, 600, 610), "LimitMismatch, gives back now true, later false");
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    let above = AcquireAnswer::AboveLimit { limit: 0, now: 5_000 };
    assert_eq!(wait.answered(above, 4_000, 4_010), "AboveLimit");
}

/// Each call contains the bound on the line and the minimum hold. A caller that does not join a full line has
/// nothing to release, unless an earlier call may still be executed.
fn full_lines() {
    let target = |max_waiting, at_least_ms| {
        let target = Wait::<PermitTarget>::new(None, false, false).waiter.target;
        PermitTarget { max_waiting, lease: LeaseOptions { at_least_ms, ..target.lease }, ..target }
    };
    for (max_waiting, at_least_ms, lease_ms) in [(0, 0, 3_000), (2, 2_999, 3_000), (3, 3_001, 3_001)] {
        let target = target(max_waiting, at_least_ms);
        for ask in [AskKind::First, AskKind::InLine, AskKind::Last] {
            let asked = target.acquire(ask, "").ask;
            let reported = (asked.max_waiting, asked.at_least_ms, asked.lease_ms);
            assert_eq!(reported, (max_waiting, at_least_ms, lease_ms));
        }
    }
    let new = || {
        let mut wait = Wait::<PermitTarget>::new(None, false, false);
        wait.start(true);
        assert_eq!(wait.timer(0), "asks InLine");
        wait
    };
    assert_eq!(new().answered(denied(), 0, 10), "LineFull");
    // The line was full although it had been in line: the server forgot it and its ticket.
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::Disconnected), 4_000);
    wait.timer(4_100);
    assert_eq!(wait.answered(denied(), 4_100, 4_110), "LineFull, gives back now false, later true");
}

/// A permit that has ended when its grant arrives, by reply or by message, is given back.
fn late_grants() {
    let given_back = |error: String| {
        let is_late = error.starts_with("Failed") && error.ends_with("gives back now true, later false");
        assert!(is_late, "{error}");
    };
    let granted = AcquireAnswer::Granted(grant(60, 5_100, 5_000), USAGE);
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    assert_eq!(wait.clone().answered(granted, 4_000, 4_098), "granted 60 until Some(4099), ticket Some(50)");
    given_back(wait.answered(granted, 4_000, 4_099));

    let mut last = Wait::in_line(Some(500), false);
    last.timer(501);
    given_back(last.answered(granted, 501, 601));

    let mut wait = Wait::in_line(None, true);
    given_back(wait.message(60, Some(1_100), 1_050, 5_000));
}

/// A first call that is refused for now is made again. Under a fixed id, only if it has not run.
fn refused_for_now() {
    for (own_id, error, expected) in [
        (true, failed(FailureKind::NotReady), "sleeps until 100"),
        (true, unknown(FailureKind::NotReady), "Unknown"),
        (false, unknown(FailureKind::NotReady), "sleeps until 100"),
    ] {
        let mut wait = Wait::<PermitTarget>::new(None, own_id, false);
        wait.start(false);
        let next = wait.unanswered(error, 0);
        assert!(next.starts_with(expected), "{next}");
    }
}

/// The driver asks whether a late release would change an answer, and whether one has run after the call.
fn doubts() {
    let mut target = Wait::<PermitTarget>::new(None, true, false).waiter.target;
    let sent = Sent { at: at(0), repeated: None };
    let doubted = [AskKind::First, AskKind::InLine].map(|ask| target.doubts(ask, &denied(), sent));
    assert_eq!(doubted, [false, true]);
    let held = AcquireAnswer::Held(grant(60, 8_000, 5_000), USAGE);
    assert!(!target.is_overtaken(&held));
    target.has_released(60);
    assert!(target.is_overtaken(&held));
}
