//! What only async code uses: futures that are dropped or not polled, and releases that share a connection.

use super::releases::{Connection, lost, pending, reply};
use super::wait::Wait;
use super::waits::{denied, unknown};
use super::{at, keep};
use crate::protocol::inbox::{Mail, Mailbox, Received};
use crate::protocol::keeper::{Keeper, Task};
use crate::protocol::releases::{ReleaseCall, ReleaseTarget};
use crate::protocol::waiter::{PermitTarget, WaitTarget};
use luagate::errors::FailureKind;
use sha1_smol::Sha1;

pub(super) fn check() {
    leftovers();
    given_back();
    held();
    grants();
    reports();
}

/// A wait that is dropped gives back what the server may have stored for it, and nothing before its first call.
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
        let release = wait.waiter.target.undo(lost(&[2]), at(0).instant()).unwrap();
        assert_eq!((release.id.as_str(), release.target, release.is_own_id), ("id", target, own_id));
        assert_eq!(release.lost.first(), Some(&Connection(2)));
    }
}

/// A wait whose grant was given back asks again at once, with its ticket.
fn given_back() {
    let mut wait = Wait::in_line(None, false);
    wait.timer(4_000);
    assert_eq!(wait.given_back(6_000), "sleeps until 6000");
    assert_eq!(wait.waiter.target.entry.ticket, 50);
    assert_eq!(wait.timer(6_000), "asks InLine");
    let mut wait = Wait::in_line(Some(5_000), false);
    assert_eq!(wait.given_back(6_000), "sleeps until 5000", "its time is over");
    assert_eq!(wait.timer(6_000), "asks Last until 6015");
}

/// Only a permit is released, not a place in line.
fn held() {
    let after = |replies: &[&str]| {
        let release = pending("m", "id", ReleaseTarget::Held, &[]);
        let mut steps = release.steps();
        let mut taken = vec![steps.next];
        for words in replies {
            release.answered(&mut steps, reply(words)).unwrap();
            taken.push(steps.next);
        }
        taken
    };
    let (look_up, release, nothing) = (ReleaseCall::LookUp, ReleaseCall::Release(Some(7)), ReleaseCall::Nothing);
    let held = "held 1 7 9000 1000";
    assert_eq!(after(&[held, "released 0 0 3"]), [look_up, release, nothing]);
    assert_eq!(after(&[held, "gone"]), [look_up, release, nothing], "it does not look again");
    assert_eq!(after(&["queued 5 1 1000"]), [look_up, nothing]);
    assert_eq!(after(&["gone 1000"]), [look_up, nothing]);
}

/// Grants that are given back leave the mailbox. The waiter asks again, and keeps its other messages.
fn grants() {
    let mut mailbox = Mailbox::new(Some("secret".to_owned()));
    mailbox.inbox("channel");
    for words in ["id 0 0 9000 1000", "id 1 1 9000 1000"] {
        let signature = Sha1::from(format!("secret{words}")).digest();
        let message = format!("{words} {signature}");
        assert!(mailbox.put("channel", &Received::read(message.as_bytes()).unwrap(), at(0)));
    }
    assert_eq!(mailbox.take_grants(), [1]);
    let (later, now) = (at(1_000).instant(), at(0).instant());
    assert!(matches!(mailbox.take(later, now), Ok(Mail::Message { message, .. }) if message.fence == 0));
    assert!(matches!(mailbox.take(later, now), Ok(Mail::Called)));
    assert!(mailbox.take(later, now).is_err());
    assert!(mailbox.take_grants().is_empty());
    assert!(mailbox.take(later, now).is_err(), "nothing was given back");
}

/// The end of a lease is reported from when somebody waits for it, and renewals are planned for each server.
fn reports() {
    let mut keeper = Keeper::default();
    let first = keeper.keep(super::held(3_000, true), 4, false, at(0));
    assert_eq!(keeper.next(Task::Report), None);
    keeper.report(first);
    assert_eq!(super::next(&keeper, Task::Report), Some(2_999));
    keep(&mut keeper, 1_500);
    let renewals: Vec<_> = keeper.renewals().map(|(node, at)| (node, super::wait::ms(at))).collect();
    assert_eq!(renewals, [(0, 499), (4, 999)]);
    keeper.remove(first);
    assert_eq!(keeper.renewals().count(), 1);
}
