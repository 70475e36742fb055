//! Calls on their way, and their results: what `src/transport` does with connections.

use super::{Client, Thread};
use crate::call::Sent;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::call::Packed;
use crate::protocol::lease::Moment;
use crate::protocol::reply::error_of;
use redis::{RedisResult, Value};
use std::fmt;
use std::time::Instant;

/// The calls of one packet, or the replies to them.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) number: u64,
    /// Calls on one connection are executed in the order in which they were sent.
    pub(crate) connection: u64,
    /// The thread that awaits the reply. `None`: no thread does any more, but the calls may still be executed.
    pub(crate) thread: Option<Thread>,
    pub(crate) calls: Vec<Sent>,
    pub(crate) sent: Moment,
    /// When the thread stops waiting.
    pub(crate) latest: Option<Instant>,
    pub(crate) replies: Option<Vec<RedisResult<Value>>>,
    /// It was sent before, on a connection that broke.
    pub(crate) is_repeated: bool,
    /// It uses the connection of an earlier call.
    pub(crate) is_behind: bool,
}

/// A call without a reply.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// Its connection, if that still works.
    pub(crate) connection: Option<u64>,
}

/// The outcome of a call, when it was sent, and whether it was sent twice.
pub(crate) struct Answered {
    pub(crate) outcome: Result<Value, Unanswered>,
    pub(crate) sent: Moment,
    pub(crate) is_repeated: bool,
}

impl Answered {
    /// Parses the reply.
    pub(crate) fn read<T>(self, read: impl FnOnce(Value) -> Result<T, CallError>) -> Result<T, Unanswered> {
        let connection = None;
        let unanswered = |error| Unanswered { error, connection };
        read(self.outcome?).map_err(unanswered)
    }
}

impl fmt::Display for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.calls.iter().map(ToString::to_string).collect();
        f.write_str(&calls.join(", "))
    }
}

impl Client {
    /// Sends calls in one packet, on this connection or on a new one.
    pub(crate) fn send(
        &mut self,
        thread: Thread,
        calls: &[Packed],
        until: Option<Instant>,
        connection: Option<u64>,
        now: Moment,
    ) {
        let number = self.next_number();
        let latest = self.read_timeout.map(|time| now.instant() + time);
        self.flights.push(Flight {
            number,
            connection: connection.unwrap_or(number),
            thread: Some(thread),
            calls: calls.iter().map(Sent::new).collect(),
            sent: now,
            latest: latest.into_iter().chain(until).min(),
            replies: None,
            is_repeated: false,
            is_behind: connection.is_some(),
        });
    }

    fn take(&mut self, number: u64) -> Option<Flight> {
        let mut flights = self.flights.iter();
        let at = flights.position(|flight| flight.number == number)?;
        Some(self.flights.remove(at))
    }

    /// The flight that is executed next on the connection of this one.
    pub(crate) fn first_on_connection(&self, number: u64) -> Option<&Flight> {
        let mut flights = self.flights.iter();
        let this = flights.clone().find(|flight| flight.number == number)?;
        flights.find(|flight| flight.connection == this.connection && flight.replies.is_none())
    }

    /// The server executed the calls.
    pub(crate) fn carried_out(&mut self, number: u64, replies: Vec<RedisResult<Value>>) {
        let mut flights = self.flights.iter_mut();
        if let Some(flight) = flights.find(|flight| flight.number == number) {
            match flight.thread {
                Some(_) => flight.replies = Some(replies),
                None => drop(self.take(number)),
            }
        }
    }

    /// The replies are delivered.
    pub(crate) fn come_back(&mut self, number: u64, now: Moment) {
        let mut flights = self.flights.iter();
        let is_answered = |flight: &&Flight| flight.number == number && flight.replies.is_some();
        if flights.any(|flight| is_answered(&flight))
            && let Some(mut flight) = self.take(number)
            && let Some(replies) = flight.replies.take()
        {
            let may_have_run = flight.is_repeated;
            let outcomes = replies.into_iter().map(|reply| {
                let error = match reply.map_err(error_of) {
                    Ok(value) => return Ok(value),
                    Err(CallError::Failed(failure)) if may_have_run => CallError::Unknown(failure),
                    Err(error) => error,
                };
                let connection = None;
                Err(Unanswered { error, connection })
            });
            self.hand_over(flight, outcomes.collect(), now);
        }
    }

    /// The thread stops waiting. The connection is closed, or kept for a call that must follow this one. The calls may
    /// still be executed.
    pub(crate) fn give_up_call(&mut self, number: u64, is_kept: bool, now: Moment) {
        if let Some(mut flight) = self.take(number) {
            let connection = is_kept.then_some(flight.connection);
            let given_up = Flight { thread: None, ..flight.clone() };
            if flight.replies.take().is_none() {
                self.flights.push(given_up);
                self.flights.sort_by_key(|flight| flight.number);
            }
            self.fail(flight, FailureKind::TimedOut, connection, now);
        }
    }

    /// A connection breaks. Calls on it that were not executed may be executed later, or are lost.
    pub(crate) fn break_connection(&mut self, connection: u64, is_lost: bool, now: Moment) {
        let mut awaited = Vec::new();
        self.flights.retain_mut(|flight| {
            if flight.connection != connection {
                return true;
            }
            let is_over = flight.replies.is_some() || is_lost;
            if flight.thread.is_some() {
                awaited.push(flight.clone());
            }
            flight.thread = None;
            !is_over
        });
        for flight in awaited {
            self.fail(flight, FailureKind::Disconnected, None, now);
        }
    }

    /// The calls cannot be sent.
    pub(crate) fn refuse(&mut self, number: u64, kind: FailureKind, now: Moment) {
        let mut flights = self.flights.iter();
        let is_waiting =
            |flight: &Flight| flight.number == number && flight.replies.is_none() && flight.thread.is_some();
        if flights.any(is_waiting)
            && let Some(flight) = self.take(number)
        {
            let may_have_run = flight.is_repeated;
            let failure = Failure::new(kind, "not sent");
            let error = match may_have_run || flight.is_behind && kind == FailureKind::TimedOut {
                true => CallError::Unknown(failure),
                false => CallError::Failed(failure),
            };
            let kept = flight.is_behind && kind == FailureKind::TimedOut;
            let connection = kept.then_some(flight.connection);
            let unanswered = Unanswered { error, connection };
            let outcomes = flight.calls.iter().map(|_| Err(unanswered.clone()));
            let outcomes = outcomes.collect();
            self.hand_over(flight, outcomes, now);
        }
    }

    /// No reply arrives. A call whose connection broke is sent once more.
    fn fail(&mut self, flight: Flight, kind: FailureKind, connection: Option<u64>, now: Moment) {
        let is_again = kind == FailureKind::Disconnected && !flight.is_repeated && !flight.is_behind;
        if is_again {
            let number = self.next_number();
            self.flights.push(Flight {
                number,
                connection: number,
                sent: now,
                replies: None,
                is_repeated: true,
                ..flight
            });
            return;
        }
        let error = CallError::Unknown(Failure::new(kind, "no answer"));
        let unanswered = Unanswered { error, connection };
        let outcomes = flight.calls.iter().map(|_| Err(unanswered.clone()));
        let outcomes = outcomes.collect();
        self.hand_over(flight, outcomes, now);
    }

    /// Hands the outcomes to the thread that waited.
    fn hand_over(&mut self, flight: Flight, outcomes: Vec<Result<Value, Unanswered>>, now: Moment) {
        let (sent, is_repeated) = (flight.sent, flight.is_repeated);
        let answered = |outcome| Answered { outcome, sent, is_repeated };
        let mut answered = outcomes.into_iter().map(answered);
        match flight.thread {
            Some(Thread::Caller(number)) => {
                if let Some(answered) = answered.next() {
                    self.answered(number, answered, now);
                }
            }
            Some(Thread::Renewal) => self.renewed(answered.collect(), now),
            Some(Thread::Releases) => self.released(answered.collect(), now),
            Some(Thread::Losses) | None => {}
        }
    }
}
