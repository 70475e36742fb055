//! What only async code uses: futures that are dropped or not polled, and releases that share a connection.

use super::releases::{Connection, lost};
use super::wait::Wait;
use super::waits::{denied, unknown};
use super::{at, keep};
use crate::protocol::keeper::{Keeper, KeeperTask};
use crate::protocol::kind::FailureKind;
use crate::protocol::release::ReleaseTarget;
use crate::protocol::waiter::{PermitTarget, WaitTarget};

pub(super) fn check() {
    leftovers();
    tickets();
    reports();
}

/// A wait that is dropped gives back what the server may have stored for it, and nothing before its first
/// call.
fn leftovers() {
    let mut wait = Wait::<PermitTarget>::new(None, false, false);
    assert!(!wait.waiter.may_leave_something());
    wait.start(false);
    assert!(wait.waiter.may_leave_something(), "the first call is in progress");
    wait.answered(denied(), 0, 5);
    assert!(!wait.waiter.may_leave_something(), "it was denied");
    wait.timer(5);
    assert!(wait.waiter.may_leave_something());
    assert!(Wait::in_line(None, false).waiter.may_leave_something(), "it has a place in line");
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    wait.unanswered(unknown(FailureKind::TimedOut), 4_010);
    assert!(wait.waiter.may_leave_something());
    for (own_id, target) in [(false, ReleaseTarget::Whatever), (true, ReleaseTarget::Other(0))] {
        let wait = Wait::in_line(None, own_id);
        let release = wait.waiter.target.give_back(lost(&[2]), at(0).instant()).unwrap();
        assert_eq!((release.id.as_str(), release.target, release.is_own_id), ("id", target, own_id));
        assert_eq!(release.lost.first(), Some(&Connection(2)));
    }
}

/// A wait that is stopped leaves its ticket to the next one, unless its id is used again.
fn tickets() {
    for (own_id, kept) in [(false, 50), (true, 0)] {
        assert_eq!(Wait::in_line(None, own_id).waiter.target.kept_ticket(), kept);
        assert_eq!(Wait::<PermitTarget>::new(None, own_id, false).waiter.target.kept_ticket(), 0);
    }
}

/// The end of a lease is reported from when somebody waits for it, and renewals are planned for each server.
fn reports() {
    let mut keeper = Keeper::default();
    let first = keeper.keep(super::held(3_000, true), 4, false, at(0));
    assert_eq!(keeper.next(KeeperTask::Report), None);
    keeper.report(first);
    assert_eq!(super::next(&keeper, KeeperTask::Report), Some(2_999));
    keep(&mut keeper, 1_500);
    let renewals: Vec<_> = keeper.renewals().map(|(node, at)| (node, super::wait::ms(at))).collect();
    assert_eq!(renewals, [(0, 499), (4, 999)]);
    keeper.remove(first);
    assert_eq!(keeper.renewals().count(), 1);
}
