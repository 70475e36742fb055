//! A wait for a latch, event by event: what it does next.

use super::at;
use crate::client::micros;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::machines::releases::reply;
use crate::protocol::keys::LatchKeys;
use crate::protocol::message::Message;
use crate::protocol::waiter::{Action, ActionOf, Ask, Event, LatchTarget, State, Target, Waiter};
use std::time::{Duration, Instant};

struct Wait {
    waiter: Waiter<LatchTarget>,
}

fn words(action: ActionOf<LatchTarget>) -> String {
    let ms = |instant: Instant| (micros(instant) - 1_000_000) / 1_000;
    match action {
        Action::Ask { ask, until } => format!("asks {ask:?} until {:?}", until.map(ms)),
        Action::Sleep { until, .. } => format!("sleeps until {}", ms(until)),
        Action::Done { result: Ok(()), .. } => "open".to_owned(),
        Action::Done { result: Err(error), give_back } => match give_back.now {
            true => format!("{error}, gives back"),
            false => error.to_string(),
        },
    }
}

impl Wait {
    /// One for a latch of 3.
    fn new(deadline: Option<u64>) -> Wait {
        let keys = LatchKeys::new("luagate", "latch").unwrap();
        let target = LatchTarget::new(&keys, 3, 60_000, at(0).instant());
        let deadline = deadline.map(|ms| at(ms).instant());
        let mut waiter = Waiter::new(target, deadline, Duration::from_millis(1_000), at(0).instant());
        assert_eq!(words(waiter.start(true)), "sleeps until 0");
        Wait { waiter }
    }

    fn on(&mut self, event: Event<<LatchTarget as Target>::Answer>, now: u64) -> String {
        words(self.waiter.on(event, at(now)))
    }

    fn timer(&mut self, now: u64) -> String {
        self.on(Event::Timer, now)
    }

    fn answered(&mut self, text: &str, sent: u64) -> String {
        let State::Asks(ask) = self.waiter.state else { panic!("it did not ask") };
        let answer = self.waiter.target.answer(ask, reply(text)).unwrap();
        self.on(Event::Answered { answer, sent: at(sent) }, sent)
    }

    /// Asks, and is told that the latch is closed.
    fn asks(&mut self, now: u64) -> String {
        self.timer(now);
        self.answered("closed 2 3 4000 1000", now)
    }
}

pub(super) fn check() {
    let none = "asks InLine until None";
    let mut wait = Wait::new(None);
    assert_eq!(wait.timer(0), none);
    assert_eq!(wait.answered("closed 2 3 9000 1000", 10), "sleeps until 5010", "five seconds at most");
    assert_eq!(wait.asks(5_010), "sleeps until 9010");
    assert_eq!(wait.timer(9_010), none);
    assert_eq!(wait.answered("open 3 1000", 9_010), "open");
    let mut wait = Wait::new(None);
    assert_eq!(words(wait.waiter.start(false)), "asks First until None");
    assert_eq!(wait.answered("closed 2 3 4000 1000", 5), "sleeps until 5");
    calls();
    ends();
}

/// A message makes it ask at once; each one that was wrong lets it take 10 ms more before it heeds the next, up to a second.
fn calls() {
    let mut wait = Wait::new(None);
    wait.asks(0);
    assert_eq!(wait.on(Event::Called, 50), "sleeps until 0");
    assert_eq!(wait.asks(100), "sleeps until 4100");
    let message = Message { id: "latch".to_owned(), permits: 0, fence: 0, at: None, now: 1_000 };
    assert_eq!(wait.on(Event::Message { message, received: at(105) }, 105), "sleeps until 110");
    assert_eq!(wait.asks(200), "sleeps until 4200");
    assert_eq!(wait.asks(4_200), "sleeps until 8200", "by itself");
    assert_eq!(wait.on(Event::Called, 4_300), "sleeps until 4220");
    for _ in 0..200 {
        wait.asks(5_000);
        wait.on(Event::Called, 5_000);
    }
    wait.asks(6_000);
    assert_eq!(wait.on(Event::Called, 6_100), "sleeps until 7000");
}

/// The last call only counts. While the server cannot be reached a wait that was answered before goes on.
fn ends() {
    let last = || {
        let mut wait = Wait::new(Some(500));
        wait.asks(0);
        assert_eq!(wait.timer(500), "asks Last until Some(540)");
        wait
    };
    assert_eq!(last().answered("closed 1 3 1000", 510), "timed out: 1 of 3 have still to count down");
    assert_eq!(last().answered("none 1000", 510), "timed out: 3 of 3 have still to count down");
    assert_eq!(last().answered("open 3 1000", 510), "open");
    assert_eq!(Wait::new(None).on(Event::Cancelled, 10), "the wait was cancelled");
    let mut wait = Wait::new(None);
    wait.asks(0);
    assert_eq!(wait.on(Event::Cancelled, 10), "the wait was cancelled, gives back");
    let away = || Event::Unanswered(CallError::Failed(Failure::new(FailureKind::Disconnected, "no answer")));
    let mut wait = Wait::new(None);
    wait.asks(0);
    wait.timer(4_000);
    assert_eq!(wait.on(away(), 4_000), "sleeps until 4100");
    let mut first = Wait::new(None);
    first.timer(0);
    assert!(first.on(away(), 0).contains("no answer"));
    assert_eq!(first.waiter.state, State::Asks(Ask::InLine));
}
