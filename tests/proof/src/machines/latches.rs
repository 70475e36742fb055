//! A wait for a latch, event by event: its next action.

use super::at;
use super::releases::reply;
use super::wait::{Shown, Wait};
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::invalid::Invalid;
use crate::protocol::keys::LatchKeys;
use crate::protocol::kind::FailureKind;
use crate::protocol::latch_target::{LatchTarget, NotOpen};
use crate::protocol::waiter::{WaitTarget, WaiterState};

impl Shown for LatchTarget {
    fn show(result: Result<(), NotOpen>) -> String {
        match result {
            Ok(()) => "open".to_owned(),
            Err(NotOpen::StillClosed(still)) => format!("timed out, {} of {} left", still.left, still.count),
            Err(error) => format!("{error:?}"),
        }
    }
}

impl Wait<LatchTarget> {
    /// A wait for a latch of 3.
    fn new(deadline: Option<u64>) -> Self {
        let keys = LatchKeys::new("luagate", "latch").unwrap();
        Wait::of(LatchTarget::new(&keys, 3, 60_000, at(0).instant()), deadline)
    }

    /// A reply that arrives at once.
    fn replied(&mut self, text: &str, sent: u64) -> String {
        let WaiterState::Asks(ask) = self.waiter.state else { panic!("the waiter did not ask") };
        let answer = self.waiter.target.answer(ask, reply(text)).unwrap();
        self.answered(answer, sent, sent)
    }

    /// Asks, and gets the reply that the latch is closed.
    fn asks(&mut self, now: u64) -> String {
        self.timer(now);
        self.replied("closed 2 3 4000 1000", now)
    }
}

pub(super) fn check() {
    let none = "asks InLine";
    let mut wait = Wait::<LatchTarget>::new(None);
    assert_eq!(wait.start(true), "sleeps until 0");
    assert_eq!(wait.timer(0), none);
    assert_eq!(wait.replied("closed 2 3 9000 1000", 10), "sleeps until 5010", "at most five seconds");
    assert_eq!(wait.asks(5_010), "sleeps until 9010");
    assert_eq!(wait.timer(9_010), none);
    assert_eq!(wait.replied("open 3 1000", 9_010), "open");
    let mut wait = Wait::<LatchTarget>::new(None);
    assert_eq!(wait.start(false), "asks First");
    assert_eq!(wait.replied("closed 2 3 4000 1000", 5), "sleeps until 5");
    calls();
    ends();
}

/// A message makes it ask at once. Each wrong message delays its reaction to the next one by 10 ms more, up
/// to 1 s.
fn calls() {
    let mut wait = Wait::<LatchTarget>::new(None);
    wait.asks(0);
    assert_eq!(wait.called(50), "sleeps until 0");
    assert_eq!(wait.asks(100), "sleeps until 4100");
    assert_eq!(wait.message(0, None, 1_000, 105), "sleeps until 110");
    assert_eq!(wait.asks(200), "sleeps until 4200");
    assert_eq!(wait.asks(4_200), "sleeps until 8200", "without a message");
    assert_eq!(wait.called(4_300), "sleeps until 4220");
    for _ in 0..200 {
        wait.asks(5_000);
        wait.called(5_000);
    }
    wait.asks(6_000);
    assert_eq!(wait.called(6_100), "sleeps until 7000");
}

/// Only the reply to the last call counts. While the server is unreachable, a wait that had a reply before
/// continues.
fn ends() {
    let last = || {
        let mut wait = Wait::<LatchTarget>::new(Some(500));
        wait.asks(0);
        assert_eq!(wait.timer(500), "asks Last until 530");
        wait
    };
    assert_eq!(last().replied("closed 1 3 1000", 510), timed_out(1));
    assert_eq!(last().replied("none 1000", 510), timed_out(3));
    assert_eq!(last().replied("open 3 1000", 510), "open");
    assert_eq!(Wait::<LatchTarget>::new(None).cancelled(), CANCELLED);
    let mut wait = Wait::<LatchTarget>::new(None);
    wait.asks(0);
    assert_eq!(wait.cancelled(), format!("{CANCELLED}, gives back now true, later false"));
    let away = || CallError::Failed(Failure::new(FailureKind::Disconnected, "no answer"));
    let mut wait = Wait::<LatchTarget>::new(None);
    wait.asks(0);
    wait.timer(4_000);
    assert_eq!(wait.unanswered(away(), 4_000), "sleeps until 4100");
    let mut first = Wait::<LatchTarget>::new(None);
    first.timer(0);
    assert!(first.unanswered(away(), 0).contains("no answer"));
    let mut first = Wait::<LatchTarget>::new(None);
    first.timer(0);
    let refused = CallError::Unknown(Failure::new(FailureKind::NotReady, "perhaps"));
    assert_eq!(first.unanswered(refused, 0), "sleeps until 100", "it can be asked again");
    let mut first = Wait::<LatchTarget>::new(None);
    first.timer(0);
    let invalid = CallError::Invalid(Invalid::new("count", "0"));
    assert!(first.unanswered(invalid, 0).contains("Invalid"));
}

const CANCELLED: &str = "Cancelled";

/// The error of a wait that ended with so many of three ids left.
fn timed_out(left: u32) -> String {
    format!("timed out, {left} of 3 left")
}
