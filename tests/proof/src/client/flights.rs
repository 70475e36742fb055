//! Packets on their way, and their results: what `src/engine` does with connections.

use super::{Client, Thread};
use crate::call::{Command, Sent};
use crate::protocol::exchange::RawReply;
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::{self, Moment};
use crate::protocol::outbox::Post;
use crate::protocol::release::LostCalls;
use crate::protocol::routing::NodeId;
use crate::protocol::value::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// The calls that share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Calls,
    /// Refreshes that replicas must confirm.
    Confirmations,
}

/// A connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    /// The server, by the client's number, and by its port.
    pub(super) node: NodeId,
    pub(crate) port: u16,
}

/// The commands of one packet, or the replies to them.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) number: u64,
    /// Packets on one connection are executed in the order in which they were sent.
    pub(crate) connection: Connection,
    /// The thread that awaits the reply. `None`: no thread does any more, but the calls may still be
    /// executed.
    pub(crate) thread: Option<Thread>,
    /// The number of the thread's request, and the indexes of its calls that have no outcome before this
    /// attempt.
    pub(crate) request: u64,
    pub(super) indexes: Vec<usize>,
    pub(crate) packet: Vec<Command>,
    /// The calls in the packet.
    pub(crate) calls: Vec<Sent>,
    /// The slot is still moving to the server.
    pub(super) asking: bool,
    /// The replies to earlier packets of this attempt.
    pub(super) rounds: Vec<Vec<RawReply>>,
    pub(crate) sent: Moment,
    /// When the thread stops waiting.
    pub(crate) latest: Option<Instant>,
    pub(crate) replies: Option<Vec<RawReply>>,
    /// An earlier attempt may have run.
    pub(crate) is_repeated: bool,
    /// It uses the connection of an earlier call.
    pub(crate) is_behind: bool,
    /// The release that it belongs to, if it is posted.
    pub(crate) post: Option<Post<Connection>>,
    /// The thread has stopped waiting. The connection still works, and the reply may come.
    pub(super) is_late: bool,
}

/// A call without a reply.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// Its connection, if that still works.
    pub(crate) connection: Option<Connection>,
}

/// The outcome of a call, when it was sent, and the time since the first attempt if an earlier one may have
/// run.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) outcome: Result<Value, Unanswered>,
    pub(crate) sent: Moment,
    pub(crate) repeated: Option<Duration>,
    /// The connection of the reply.
    pub(crate) on: Option<Connection>,
}

impl Answered {
    pub(crate) fn sent(&self) -> lease::Sent {
        lease::Sent { at: self.sent, repeated: self.repeated }
    }

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
        match self.packet.first() {
            Some(Command::Slots) => write!(f, "the slots, from node {}", self.connection.port),
            _ => f.write_str(&calls.join(", ")),
        }
    }
}

/// A call whose answer is missing, if its connection still works.
pub(super) fn lost(connection: Option<Connection>) -> LostCalls<Connection> {
    let mut lost = LostCalls::default();
    connection.into_iter().for_each(|connection| lost.sent_on(connection));
    lost
}

impl Client {
    /// The shared connection to this server for these calls, or a new one.
    pub(super) fn connection(&mut self, node: NodeId, purpose: Purpose) -> Connection {
        let address = self.slots.as_ref().and_then(|slots| slots.nodes().get(node));
        let port = address.map_or(0, |(_, port)| *port);
        let new = Connection { number: self.next_number(), node, port };
        if self.shares_connections { *self.connections.entry((node, purpose)).or_insert(new) } else { new }
    }

    /// An empty packet of this thread.
    pub(super) fn flight(&mut self, thread: Thread, connection: Connection, now: Moment) -> Flight {
        Flight {
            number: self.next_number(),
            connection,
            thread: Some(thread),
            request: 0,
            indexes: Vec::new(),
            packet: Vec::new(),
            calls: Vec::new(),
            asking: false,
            rounds: Vec::new(),
            sent: now,
            latest: None,
            replies: None,
            is_repeated: false,
            is_behind: false,
            post: None,
            is_late: false,
        }
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
    pub(crate) fn carried_out(&mut self, number: u64, replies: Vec<RawReply>) {
        let mut flights = self.flights.iter_mut();
        if let Some(flight) = flights.find(|flight| flight.number == number) {
            match flight.thread {
                Some(_) => flight.replies = Some(replies),
                None => {
                    let connection = flight.connection;
                    self.take(number);
                    self.end_silence(connection);
                }
            }
        }
    }

    /// The server was silent on this connection. When all its calls have run, it is closed.
    fn end_silence(&mut self, connection: Connection) {
        let is_silent = self.silent.contains(&connection.number);
        if is_silent && self.flights.iter().all(|flight| flight.connection != connection) {
            self.close(connection);
        }
    }

    /// The flight whose replies are delivered next on the connection of this one, if they have arrived.
    pub(crate) fn first_answered(&self, number: u64) -> Option<&Flight> {
        let mut flights = self.flights.iter();
        let this = flights.clone().find(|flight| flight.number == number)?;
        flights.find(|flight| flight.connection == this.connection && flight.replies.is_some())
    }

    /// The replies are delivered.
    pub(crate) fn come_back(&mut self, number: u64, now: Moment) {
        let has_arrived = |flight: &Flight| flight.number == number && flight.replies.is_some();
        if self.flights.iter().any(has_arrived)
            && let Some(mut flight) = self.take(number)
            && let Some(replies) = flight.replies.take()
        {
            let connection = flight.connection;
            self.received(flight, Ok(replies), now);
            self.end_silence(connection);
        }
    }

    /// The thread stops waiting. The connection is closed, or kept for a call that must follow this one. The
    /// calls may still be executed.
    pub(crate) fn give_up_call(&mut self, number: u64, is_kept: bool, now: Moment) {
        if let Some(mut flight) = self.take(number) {
            self.changes += 1;
            if !is_kept {
                self.close(flight.connection);
            } else if self.read_timeout.is_some_and(|time| flight.sent.instant() + time <= now.instant()) {
                self.connections.retain(|_, other| *other != flight.connection); // it is silent: later calls use another one
                self.silent.insert(flight.connection.number);
            }
            let given_up = Flight { thread: None, ..flight.clone() };
            if flight.replies.take().is_none() {
                self.flights.push(given_up);
                self.flights.sort_by_key(|flight| flight.number);
            }
            self.fail(Flight { is_late: is_kept, ..flight }, FailureKind::TimedOut, now);
        }
    }

    pub(crate) fn is_closed(&self, connection: Connection) -> bool {
        self.closed.contains(&connection.number)
    }

    fn close(&mut self, connection: Connection) {
        self.connections.retain(|_, other| *other != connection);
        self.closed.insert(connection.number);
    }

    /// A connection breaks. Calls on it that were not executed may be executed later, or are lost.
    pub(crate) fn break_connection(&mut self, connection: Connection, is_lost: bool, now: Moment) {
        let mut awaited = Vec::new();
        self.changes += 1;
        self.close(connection);
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
            self.fail(flight, FailureKind::Disconnected, now);
        }
    }

    /// The calls cannot be sent.
    pub(crate) fn refuse(&mut self, number: u64, kind: FailureKind, now: Moment) {
        let mut flights = self.flights.iter();
        // What is posted is sent as long as its connection is open.
        let is_waiting = |flight: &Flight| {
            flight.number == number
                && flight.replies.is_none()
                && flight.thread.is_some()
                && flight.post.is_none()
        };
        if flights.any(is_waiting)
            && let Some(flight) = self.take(number)
        {
            self.changes += 1;
            self.refusals += 1;
            self.received(flight, Err(CallError::Failed(Failure::new(kind, "not sent"))), now);
        }
    }

    /// No reply arrives.
    fn fail(&mut self, flight: Flight, kind: FailureKind, now: Moment) {
        self.received(flight, Err(CallError::Unknown(Failure::new(kind, "no answer"))), now);
    }

    /// Hands the outcomes to the thread that waited.
    pub(super) fn hand_over(&mut self, thread: Thread, answered: Vec<Answered>, now: Moment) {
        let answered = answered.into_iter();
        match thread {
            Thread::Caller(number) => {
                self.answered(number, answered.collect(), now);
            }
            Thread::Renewal => self.renewed(answered.collect(), now),
            Thread::Releases(node) => self.released(node, answered.collect(), now),
            Thread::Losses | Thread::Worker | Thread::Posted(_) => {}
        }
    }
}
