//! One wait, event by event: its next action in words, with times in ms from 0.

use super::at;
use crate::client::micros;
use crate::protocol::failure::CallError;
use crate::protocol::inbox::{Mail, Message};
use crate::protocol::lease::Sent;
use crate::protocol::waiter::{Action, ActionOf, Event, WaitTarget, Waiter};
use std::time::{Duration, Instant};

/// A target whose result can be shown in words.
pub(super) trait Shown: WaitTarget {
    fn show(result: Result<Self::Granted, Self::Error>) -> String;
}

#[derive(Clone)]
pub(super) struct Wait<T> {
    pub(super) waiter: Waiter<T>,
}

pub(super) fn ms(instant: Instant) -> u64 {
    (micros(instant) - 1_000_000) / 1_000
}

impl<T: Shown> Wait<T> {
    /// A wait that continues for 1 s while the server is unreachable.
    pub(super) fn of(target: T, deadline: Option<u64>) -> Wait<T> {
        let deadline = deadline.map(|ms| at(ms).instant());
        Wait { waiter: Waiter::new(target, deadline, Duration::from_millis(1_000), at(0).instant()) }
    }

    pub(super) fn start(&mut self, listens: bool) -> String {
        words::<T>(self.waiter.start(listens))
    }

    pub(super) fn timer(&mut self, now: u64) -> String {
        self.on(Event::Mail(Mail::Timer), now)
    }

    pub(super) fn answered(&mut self, answer: T::Answer, sent: u64, now: u64) -> String {
        self.on(Event::Answered { answer, sent: Sent { at: at(sent), repeated: None } }, now)
    }

    /// As `answered`, by an attempt after one without an answer. The first one was sent at 0.
    pub(super) fn answered_at_last(&mut self, answer: T::Answer, sent: u64, now: u64) -> String {
        let repeated = Some(Duration::from_millis(now));
        self.on(Event::Answered { answer, sent: Sent { at: at(sent), repeated } }, now)
    }

    pub(super) fn unanswered(&mut self, error: CallError, now: u64) -> String {
        self.on(Event::Unanswered(error), now)
    }

    pub(super) fn message(&mut self, fence: u64, end: Option<u64>, reported: u64, now: u64) -> String {
        let message =
            Message { id: "id".to_owned(), permits: u32::from(fence > 0), fence, at: end, now: reported };
        self.on(Event::Mail(Mail::Message { message, received: at(now) }), now)
    }

    pub(super) fn cancelled(&mut self) -> String {
        self.on(Event::Mail(Mail::Cancelled), 20)
    }

    pub(super) fn called(&mut self, now: u64) -> String {
        self.on(Event::Mail(Mail::Called), now)
    }

    fn on(&mut self, event: Event<T::Answer>, now: u64) -> String {
        words::<T>(self.waiter.on(event, at(now)))
    }
}

fn words<T: Shown>(action: ActionOf<T>) -> String {
    match action {
        Action::Ask { ask, until: None } => format!("asks {ask:?}"),
        Action::Ask { ask, until: Some(until) } => format!("asks {ask:?} until {}", ms(until)),
        Action::Sleep { until } => format!("sleeps until {}", ms(until)),
        Action::Done { result, give_back } => match (give_back.now, give_back.later) {
            (false, false) => T::show(result),
            (now, later) => format!("{}, gives back now {now}, later {later}", T::show(result)),
        },
    }
}
