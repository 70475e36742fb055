//! A wait of a caller, run by the library's waiter.

use crate::client::flights::{Answered, Connection, Unanswered};
use crate::protocol::failure::CallError;
use crate::protocol::inbox::Mailbox;
use crate::protocol::lease::Moment;
use crate::protocol::outbox::Mark;
use crate::protocol::release::LostCalls;
use crate::protocol::waiter::{Action, ActionOf, Event, WaitTarget, Waiter, WaiterState};
use std::sync::Arc;
use std::time::Instant;

/// A wait and its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<T: WaitTarget> {
    pub(crate) waiter: Waiter<T>,
    pub(crate) mailbox: Mailbox,
    pub(super) number: Arc<u64>,
    pub(crate) since: Instant,
    /// Until when it sleeps, and when it checks again before that.
    pub(crate) sleeps: Option<(Instant, Instant)>,
    /// Its calls without a reply.
    pub(crate) lost: LostCalls<Connection>,
    /// A call without a reply was sent on a connection that is closed. It may still run.
    pub(crate) is_unsure: bool,
    /// When its last call was sent, and whether it was made once more because of a late release.
    pub(crate) mark: Mark,
    pub(crate) is_again: bool,
    /// A call had no reply.
    pub(crate) unknown: bool,
    /// Something happened to the server, so a message may be out of date. This ends with the reply to a call
    /// that is sent at this time or later.
    pub(crate) excused_until: Option<Instant>,
    /// How many calls it sent.
    pub(crate) asks: u64,
}

impl<T: WaitTarget> Waiting<T> {
    pub(super) fn new(waiter: Waiter<T>, mailbox: Mailbox, number: Arc<u64>, since: Instant) -> Waiting<T> {
        Waiting {
            waiter,
            mailbox,
            number,
            since,
            sleeps: None,
            lost: LostCalls::default(),
            is_unsure: false,
            mark: Mark::default(),
            is_again: false,
            unknown: false,
            excused_until: None,
            asks: 0,
        }
    }

    /// Performs the waiter's actions until it sends a call, sleeps, or is done.
    pub(super) fn go_on(&mut self, mut action: ActionOf<T>, now: Moment) -> ActionOf<T> {
        loop {
            let Action::Sleep { until } = action else {
                self.sleeps = None;
                return action;
            };
            let event = match self.mailbox.take(until, now.instant()) {
                Ok(mail) => Event::Mail(mail),
                Err(wakes) => {
                    self.sleeps = Some((until, wakes));
                    return action;
                }
            };
            action = self.waiter.on(event, now);
        }
    }

    /// Continues after a sleep.
    pub(super) fn wake(&mut self, now: Moment) -> ActionOf<T> {
        let until = self.sleeps.map_or(now.instant(), |(until, _)| until);
        self.go_on(Action::Sleep { until }, now)
    }

    /// Takes the reply to its call.
    pub(super) fn answered(&mut self, answered: Answered) -> Event<T::Answer> {
        let WaiterState::Asks(ask) = self.waiter.state else {
            panic!("it did not ask");
        };
        let (sent, on) = (answered.sent(), answered.on);
        self.is_unsure |= answered.repeated.is_some();
        if let Some(on) = &on {
            self.lost.answered_on(on);
        }
        match answered.read(|reply| self.waiter.target.answer(ask, reply)) {
            Ok(answer) => {
                self.excused_until = self.excused_until.filter(|until| sent.at.instant() < *until);
                Event::Answered { answer, sent }
            }
            Err(Unanswered { error, connection }) => {
                self.is_unsure |= connection.is_none() && matches!(error, CallError::Unknown(_));
                connection.into_iter().for_each(|connection| self.lost.sent_on(connection));
                self.unknown |= matches!(error, CallError::Unknown(_));
                Event::Unanswered(error)
            }
        }
    }

    /// Whether a late release would change this answer. Its call is made once more.
    pub(super) fn doubts(&self, event: &Event<T::Answer>) -> bool {
        match (event, self.waiter.state) {
            (Event::Answered { answer, sent }, WaiterState::Asks(ask)) => {
                !self.is_again && self.waiter.target.doubts(ask, answer, *sent)
            }
            _ => false,
        }
    }

    /// Whether a release that precedes the call has run after it.
    pub(super) fn is_overtaken(&self, event: &Event<T::Answer>) -> bool {
        matches!(event, Event::Answered { answer, .. } if self.waiter.target.is_overtaken(answer))
    }

    /// Continues after an event.
    pub(super) fn on(&mut self, event: Event<T::Answer>, now: Moment) -> ActionOf<T> {
        self.is_again = false;
        let action = self.waiter.on(event, now);
        self.go_on(action, now)
    }

    pub(super) fn rouse(&mut self, now: Moment) {
        if let Some((_, wakes)) = &mut self.sleeps {
            *wakes = now.instant();
        }
    }
}
