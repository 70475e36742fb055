//! Permits that are asked for once: the result for the caller, and whether the grant is released.

use super::at;
use super::waits::{USAGE, denied, grant};
use crate::client::micros;
use crate::protocol::keys::Keys;
use crate::protocol::lease::{LeaseOptions, Sent};
use crate::protocol::semaphore::{AcquireAnswer, Usage};
use crate::protocol::waiter::{AskKind, NotGranted, PermitTarget, QueueEntry, WaitTarget};
use std::time::Duration;

const OTHER: Usage = Usage { in_use: 1, limit: 2 };

pub(super) fn check() {
    arguments();
    answers();
    late_grants();
    own_ids();
    doubts();
}

fn target(permits: Option<u32>, id: &str, own_id: bool, strict: bool) -> PermitTarget {
    let keys = Keys::mutex("luagate", "m").unwrap();
    let lease = LeaseOptions { lease_ms: 3_000, renewed: false, own_id, at_least_ms: 0 };
    let (id, entry) = (id.to_owned(), QueueEntry::default());
    PermitTarget { keys, id, permits, limit: 3, strict, max_waiting: 0, head_start_ms: 0, lease, entry }
}

/// The result of a reply, in words.
fn reported(target: PermitTarget, answer: AcquireAnswer) -> String {
    reported_of(target, answer, None)
}

/// The same for a call that was repeated, so many ms after the first attempt.
fn reported_of(mut target: PermitTarget, answer: AcquireAnswer, repeated: Option<u64>) -> String {
    let repeated = repeated.map(Duration::from_millis);
    let (result, gives_back) = target.at_once(answer, Sent { at: at(10), repeated }, at(20));
    let reported = match result {
        Ok(granted) => {
            let end = granted.deadline.instant().map(|end| (micros(end) - 1_000_000) / 1_000);
            format!("granted {} until {end:?}, ticket {:?}", granted.grant.fence, granted.ticket)
        }
        Err(error) => format!("{error:?}"),
    };
    if gives_back { format!("{reported}, given back") } else { reported }
}

/// Invalid arguments are reported before anything is sent.
fn arguments() {
    let refused = |permits, id: &str| {
        let checked = target(permits, id, true, false).check();
        checked.map_err(|invalid| invalid.what().to_owned())
    };
    assert_eq!(refused(Some(0), "me"), Err("permits".to_owned()));
    assert_eq!(refused(Some(1), "two words"), Err("id".to_owned()));
    assert_eq!([refused(Some(1), "me"), refused(None, "me")], [Ok(()), Ok(())]);
}

/// A strict semaphore releases a permit that was granted under another limit. After a refusal there is
/// nothing to release.
fn answers() {
    let of = |strict| target(Some(1), "id", false, strict);
    let granted = |usage| AcquireAnswer::Granted(grant(60, 8_000, 5_000), usage);
    assert_eq!(reported(of(true), granted(USAGE)), "granted 60 until Some(3009), ticket None");
    assert_eq!(reported(of(false), granted(OTHER)), "granted 60 until Some(3009), ticket None");
    let error = reported(of(true), granted(OTHER));
    assert!(error.starts_with("LimitMismatch") && error.ends_with(", given back"), "{error}");
    let of_another = AcquireAnswer::Denied { next_expiry: None, usage: OTHER, waiting: 0, now: 0 };
    let error = reported(of(true), of_another);
    assert!(error.starts_with("LimitMismatch") && !error.ends_with("given back"), "{error}");
    let declared = |limit| PermitTarget { limit, ..of(true) };
    assert!(reported(declared(1), granted(OTHER)).starts_with("LimitMismatch"));
    assert!(reported(declared(0), granted(OTHER)).starts_with("granted "), "no limit is declared");
    let error = reported(of(true), denied());
    assert!(error.starts_with("TimedOut(") && !error.ends_with("given back"), "{error}");
    // A caller that does not wait never gets `LineFull`.
    let full = PermitTarget { max_waiting: 1, ..of(false) };
    assert!(reported(full, denied()).starts_with("TimedOut("));
    let queued = AcquireAnswer::Queued { ticket: 50, position: 1, retry_after: 0, usage: USAGE, now: 0 };
    assert!(reported(of(false), queued).starts_with("Unanswered(Unknown("), "the caller did not ask to wait");
    // "All that are free" means at least one.
    let mut all = target(None, "id", false, false);
    let above = AcquireAnswer::AboveLimit { limit: 0, now: 0 };
    let (result, _) = all.at_once(above, Sent { at: at(10), repeated: None }, at(20));
    assert!(matches!(result, Err(NotGranted::AboveLimit { permits: 1, limit: 0 })));
}

/// A permit that has ended when its reply is read is given back. The call was sent at 10 and its reply is
/// read at 20; 1 ms is subtracted from each lease.
fn late_grants() {
    let of = |end| {
        reported(target(Some(1), "id", false, false), AcquireAnswer::Granted(grant(60, end, 5_000), USAGE))
    };
    assert_eq!(of(5_012), "granted 60 until Some(21), ticket None");
    let error = of(5_011);
    assert!(
        error.starts_with("Unanswered(Failed(")
            && error.contains("EndedBeforeGrant")
            && error.ends_with(", given back"),
        "{error}"
    );
}

/// A permit that a fixed id already holds was granted to another caller. If an earlier attempt was not
/// answered, it was granted to this one, unless it is older than that attempt.
fn own_ids() {
    // A permit that this client is releasing was not granted to another caller: the call overtook the
    // release.
    let held = |fence| AcquireAnswer::Held(grant(fence, 9_000, 2_000), USAGE);
    let of_released = |own_id, fence| target(Some(1), "me", own_id, false).is_of_released(&held(fence), 60);
    assert_eq!(
        [(true, 60), (true, 61), (false, 60)].map(|(own, fence)| of_released(own, fence)),
        [true, false, false]
    );
    let of = |fence, repeated| {
        let held = AcquireAnswer::Held(grant(fence, 9_000, 2_000), USAGE);
        reported_of(target(Some(1), "me", true, false), held, repeated)
    };
    // The server's time is 2,000 ms, up to 2,000,999 microseconds.
    let others = [(60, None), (2_000_000, None), (1_899_999, Some(100)), (2_001_000, Some(100))];
    for (fence, repeated) in others {
        let error = of(fence, repeated);
        assert!(error.starts_with("AlreadyHeld") && !error.ends_with("given back"), "{error}");
    }
    for (fence, repeated) in [(1_900_000, 100), (2_000_000, 0), (2_000_999, 0)] {
        assert_eq!(of(fence, Some(repeated)), format!("granted {fence} until Some(7009), ticket None"));
    }
}

/// An answer that a late release would change: a refusal, or a permit that is not this caller's. It is not,
/// if the client has released its fence.
fn doubts() {
    let target = target(Some(1), "me", true, false);
    let doubts =
        |ask, answer, floor| target.is_doubtful(ask, &answer, Some(Duration::from_millis(100)), floor);
    assert!(doubts(AskKind::Last, denied(), 0) && doubts(AskKind::InLine, denied(), 0));
    assert!(!doubts(AskKind::First, denied(), 0), "it joins the line next");
    let held = || AcquireAnswer::Held(grant(2_000_000, 9_000, 2_000), USAGE);
    assert!(!doubts(AskKind::Last, held(), 1_999_999));
    assert!(doubts(AskKind::Last, held(), 2_000_000));
    assert!(!doubts(AskKind::Last, AcquireAnswer::Granted(grant(2_000_000, 9_000, 2_000), USAGE), 2_000_000));
    let mut target = target.clone();
    target.has_released(2_000_000);
    target.has_released(5);
    assert!(reported_of(target, held(), Some(100)).starts_with("AlreadyHeld"));
}
