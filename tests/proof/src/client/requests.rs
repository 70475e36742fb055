//! Calls of a thread until each has its outcome: what `src/engine/servers.rs` does around
//! `protocol::routing`.

use super::flights::{Answered, Connection, Flight, Purpose, Unanswered};
use super::{Client, READ_TIMEOUT, Thread};
use crate::call::{Command, Sent, parse};
use crate::protocol::call::Packed;
use crate::protocol::exchange::{Exchange, RawReply, error_in, missing};
use crate::protocol::failure::{CallError, Failure};
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::Moment;
use crate::protocol::routing::route::{Route, RouteStep};
use crate::protocol::routing::slots::{Learning, LearningStep};
use crate::protocol::routing::{NodeId, by_node};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Calls that a thread makes together. It waits for all of them.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    number: u64,
    calls: Calls,
    attempts: Vec<Attempt>,
    /// What is not sent yet.
    parts: VecDeque<Part>,
    until: Option<Instant>,
    /// The end of a pause, or of a wait for the thread that asks for the slots.
    pub(super) pause: Option<Instant>,
    /// The thread asks for the slots, or waits while another one does.
    learning: Option<Learning>,
}

#[derive(Clone)]
struct Calls(Arc<Vec<Packed>>);

impl Calls {
    fn of(&self, indexes: &[usize]) -> Vec<&Packed> {
        indexes.iter().map(|index| &self.0[*index]).collect()
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls", self.0.len())
    }
}

/// Calls of a request, by their indexes.
#[derive(Clone, Debug)]
enum Part {
    /// Probably for the same node: sent in one packet.
    Together(NodeId, Vec<usize>),
    /// This one follows its route.
    Alone(usize),
}

/// A call of a request.
#[derive(Clone, Debug)]
struct Attempt {
    route: Route,
    /// After this time no redirect is followed.
    latest: Instant,
    /// The connection of the last attempt, if it still works.
    late: Option<Connection>,
    /// How many connections to the same node broke one after the other.
    breaks: u32,
    node: NodeId,
    /// It was redirected when it had no more time.
    has_no_time: bool,
    outcome: Option<Answered>,
}

impl Client {
    fn attempt(&self, call: &Packed, until: Option<Instant>, now: Moment) -> Attempt {
        let latest = now.instant() + self.read_timeout.unwrap_or(READ_TIMEOUT);
        let route = match self.slots {
            Some(_) => Route::of_cluster(call.key(), until, latest),
            None => Route::of_one(),
        };
        let route = route.begun(now);
        let latest = until.map_or(latest, |until| until.min(latest));
        Attempt { route, latest, late: None, breaks: 0, node: 0, has_no_time: false, outcome: None }
    }

    /// The server of a key, as far as it is known.
    pub(super) fn node_of(&self, key: &[u8]) -> NodeId {
        self.slots.as_ref().map_or(0, |slots| slots.node_of(key))
    }

    /// Sends calls.
    pub(crate) fn send(&mut self, thread: Thread, calls: &[Packed], until: Option<Instant>, now: Moment) {
        let parts = match calls {
            [_] => VecDeque::from([Part::Alone(0)]),
            _ => {
                let groups = by_node(calls.iter().map(|call| self.node_of(call.key())));
                groups.into_iter().map(|(node, indexes)| Part::Together(node, indexes)).collect()
            }
        };
        self.last_request += 1;
        let request = Request {
            number: self.last_request,
            attempts: calls.iter().map(|call| self.attempt(call, until, now)).collect(),
            parts,
            calls: Calls(Arc::new(calls.to_vec())),
            until,
            pause: None,
            learning: None,
        };
        self.requests.insert(thread, request);
        self.go_on(thread, now);
    }

    /// Sends the first packet of an attempt.
    fn launch(&mut self, mut flight: Flight, indexes: Vec<usize>, request: Request) {
        flight.request = request.number;
        flight.is_repeated =
            indexes.iter().any(|index| request.attempts[*index].route.repeated(|| flight.sent).is_some());
        flight.indexes = indexes;
        let all = request.calls.clone();
        let calls = all.of(&flight.indexes);
        let packet = Exchange::new(&calls).asking(flight.asking).packet().expect("a packet");
        (flight.packet, flight.calls) = parse(&packet.bytes);
        let now = flight.sent;
        self.push(flight, request, now);
    }

    fn push(&mut self, mut flight: Flight, request: Request, now: Moment) {
        flight.latest = self.latest(&request, now);
        self.requests.extend(flight.thread.map(|thread| (thread, request)));
        self.flights.push(flight);
    }

    /// Until when the thread waits for what it needs now.
    fn latest(&self, request: &Request, now: Moment) -> Option<Instant> {
        let latest = self.read_timeout.map(|time| now.instant() + time);
        latest.into_iter().chain(request.until).min()
    }

    /// The next step of a thread's calls.
    fn go_on(&mut self, thread: Thread, now: Moment) {
        let Some(mut request) = self.requests.remove(&thread) else {
            return;
        };
        while let Some(part) = request.parts.pop_front() {
            let index = match part {
                Part::Together(node, indexes) => {
                    let connection = self.connection(node, self.purpose(&request, indexes[0]));
                    let flight = self.flight(thread, connection, now);
                    return self.launch(flight, indexes, request);
                }
                Part::Alone(index) => index,
            };
            match request.attempts[index].route.next(self.slots.as_mut(), now.instant()) {
                RouteStep::Send { node, asking } => {
                    self.check_attempt(&request, index, node);
                    let connection = self.connection(node, self.purpose(&request, index));
                    let flight = Flight { asking, ..self.flight(thread, connection, now) };
                    return self.launch(flight, vec![index], request);
                }
                RouteStep::Failed(error) => {
                    self.check_failure(&error);
                    request.fail(index, error, now);
                }
                RouteStep::Pause(pause) => {
                    request.parts.push_front(part);
                    request.pause = Some(now.instant() + pause);
                    self.requests.insert(thread, request);
                    return;
                }
                RouteStep::Learn { learning, waits } => {
                    request.parts.push_front(part);
                    if self.asker.is_some() && !waits {
                        request.learned(Ok(()));
                        continue;
                    }
                    request.learning = Some(learning);
                    request.pause = self.latest(&request, now);
                    self.requests.insert(thread, request);
                    return self.take_turn(now);
                }
            }
        }
        let outcomes = request.attempts.into_iter().filter_map(|attempt| attempt.outcome);
        self.hand_over(thread, outcomes.collect(), now);
    }

    fn purpose(&self, request: &Request, index: usize) -> Purpose {
        let is_refresh = Sent::new(&request.calls.0[index]).script == "semaphore/refresh";
        if self.has_replicas && is_refresh { Purpose::Confirmations } else { Purpose::Calls }
    }

    /// Without a fault, the server of each call is found.
    fn check_failure(&mut self, error: &CallError) {
        use FailureKind::{Disconnected, Moved, NotReady, TimedOut, Unreachable};
        if let CallError::Failed(failure) | CallError::Unknown(failure) = error
            && self.is_calm
            && matches!(failure.kind(), Disconnected | Moved | NotReady | TimedOut | Unreachable)
        {
            self.break_promise("attempts", format!("a call fails, although no fault happened: {error:?}"));
        }
    }

    /// Promises about each attempt: no call is repeated or redirected without an end.
    fn check_attempt(&mut self, request: &Request, index: usize, node: NodeId) {
        let (attempt, call) = (&request.attempts[index], &request.calls.0[index]);
        if attempt.has_no_time {
            self.break_promise(
                "timeout",
                format!("{} is redirected although its time is over", Sent::new(call)),
            );
        }
        if attempt.breaks > 1 && attempt.node == node {
            let text =
                format!("{} is sent again after {} connections broke", Sent::new(call), attempt.breaks);
            self.break_promise("attempts", text);
        }
    }

    /// If no thread asks for the slots, one that waits for its turn begins.
    fn take_turn(&mut self, now: Moment) {
        let mut waiting = self.requests.iter_mut().filter(|(_, request)| request.learning.is_some());
        if self.asker.is_none()
            && let Some((thread, request)) = waiting.next()
        {
            let thread = *thread;
            (self.asker, request.pause) = (Some(thread), None);
            self.ask_nodes(thread, now);
        }
    }

    /// The thread asks the next node for the slots.
    fn ask_nodes(&mut self, thread: Thread, now: Moment) {
        let (Some(request), Some(slots)) = (self.requests.get_mut(&thread), &mut self.slots) else {
            return;
        };
        let Some(next) = request.learning.as_mut().map(|learning| learning.next(slots, now.instant())) else {
            return;
        };
        match next {
            LearningStep::Ask { node, until } => {
                let connection = self.connection(node, Purpose::Calls);
                let flight = self.flight(thread, connection, now);
                self.flights.push(Flight { packet: vec![Command::Slots], latest: Some(until), ..flight });
            }
            LearningStep::Over(result) => {
                request.learned(result);
                self.asker = None;
                self.go_on(thread, now);
                self.take_turn(now);
            }
        }
    }

    /// A packet has its replies, or there are none.
    pub(super) fn received(
        &mut self,
        mut flight: Flight,
        replies: Result<Vec<RawReply>, CallError>,
        now: Moment,
    ) {
        let Some(thread) = flight.thread else {
            return;
        };
        if let Some(post) = flight.post.take() {
            return self.posted(post, replies, now);
        }
        if flight.packet == [Command::Slots] {
            return self.reported(thread, &flight, replies, now);
        }
        let Some(mut request) = self.requests.remove(&thread) else {
            return;
        };
        let all = request.calls.clone();
        let calls = all.of(&flight.indexes);
        let mut exchange = Exchange::new(&calls).asking(flight.asking);
        let ended = match replies {
            Ok(replies) => {
                flight.rounds.push(replies);
                None
            }
            Err(error) => Some(error),
        };
        flight.rounds.iter().for_each(|replies| exchange.receive(replies.clone()));
        if ended.is_none()
            && let Some(packet) = exchange.packet()
        {
            flight.number = self.next_number();
            (flight.packet, flight.calls) = parse(&packet.bytes);
            // The library sends the first packet of one call separately.
            if flight.rounds.len() == 1 && calls.len() == 1 && !flight.asking {
                flight.sent = now;
            }
            return self.push(flight, request, now);
        }
        let (results, _) = exchange.results(None, ended);
        for (index, result) in flight.indexes.iter().zip(results).rev() {
            match result {
                Ok(reply) => request.answered(*index, reply, &flight, now),
                Err(error) => self.unanswered(&mut request, *index, &flight, error, now),
            }
        }
        self.requests.insert(thread, request);
        self.go_on(thread, now);
    }

    fn unanswered(
        &mut self,
        request: &mut Request,
        index: usize,
        flight: &Flight,
        error: CallError,
        now: Moment,
    ) {
        let (attempt, node) = (&mut request.attempts[index], flight.connection.node);
        attempt.late = flight.is_late.then_some(flight.connection);
        let (is_redirect, is_break) = match &error {
            CallError::Failed(failure) => (is_redirect(failure), false),
            CallError::Unknown(failure) => (false, failure.kind() == FailureKind::Disconnected),
            _ => (false, false),
        };
        attempt.has_no_time = is_redirect && attempt.latest <= now.instant();
        attempt.breaks = if is_break && attempt.node == node { attempt.breaks + 1 } else { is_break.into() };
        if is_break {
            self.keeper.hasten(0, usize::MAX, now); // as after a reconnect
        }
        attempt.node = node;
        attempt.route = attempt.route.clone().sent_to(node);
        attempt.route.unanswered(self.slots.as_mut(), error, now.instant());
        request.parts.push_front(Part::Alone(index));
    }

    /// A node has reported the slots, or has not.
    fn reported(
        &mut self,
        thread: Thread,
        flight: &Flight,
        replies: Result<Vec<RawReply>, CallError>,
        now: Moment,
    ) {
        self.changes += 1;
        let reply = match replies {
            Ok(mut replies) => error_in(replies.pop().unwrap_or_else(missing))
                .map_err(|error| Failure::new(FailureKind::Other, format!("{error:?}"))),
            Err(_) => Err(Failure::new(FailureKind::TimedOut, "no answer")),
        };
        let learning = self.requests.get_mut(&thread).and_then(|request| request.learning.as_mut());
        if let (Some(learning), Some(slots)) = (learning, &mut self.slots) {
            learning.answered(slots, flight.connection.node, reply, now.instant());
        }
        self.ask_nodes(thread, now);
    }

    /// The calls that are not sent yet, or have to be sent again.
    pub(crate) fn unsent(&self) -> impl Iterator<Item = Sent> {
        self.requests.values().flat_map(|request| {
            let indexes = request.parts.iter().flat_map(|part| match part {
                Part::Together(_, indexes) => indexes.as_slice(),
                Part::Alone(index) => std::slice::from_ref(index),
            });
            indexes.map(|index| Sent::new(&request.calls.0[*index]))
        })
    }

    /// If the thread has calls that wait for a reply or a pause: when it acts without a reply.
    pub(super) fn awaits(&self, thread: Thread) -> Option<Option<Instant>> {
        let mut flights = self.flights.iter();
        match flights.find(|flight| flight.thread == Some(thread)) {
            Some(flight) => Some(flight.latest),
            None => self.requests.get(&thread).map(|request| request.pause),
        }
    }

    /// A thread with calls acts without a reply. Returns whether it has calls.
    pub(super) fn act_on_calls(&mut self, thread: Thread, now: Moment) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now.instant());
        let mut flights = self.flights.iter();
        if let Some(flight) = flights.find(|flight| flight.thread == Some(thread)) {
            if is_due(flight.latest) {
                self.give_up_call(flight.number, true, now);
            }
            return true;
        }
        let Some(request) = self.requests.get_mut(&thread) else {
            return false;
        };
        if is_due(request.pause) {
            request.pause = None;
            if request.learning.is_some() {
                request.learned(Err(Failure::new(
                    FailureKind::TimedOut,
                    "another call still asks for the slots",
                )));
            }
            self.go_on(thread, now);
        }
        true
    }
}

/// Whether a node of a cluster has not run the call, because of its slot.
fn is_redirect(failure: &Failure) -> bool {
    failure.kind() == FailureKind::Moved
        || failure.refusal().is_some_and(|refusal| refusal.code() == "TRYAGAIN")
}

impl Request {
    /// The thread waits for the slots no longer.
    fn learned(&mut self, result: Result<(), Failure>) {
        self.learning = None;
        if let Some(Part::Alone(index)) = self.parts.front() {
            self.attempts[*index].route.learned(result);
        }
    }

    fn answered(&mut self, index: usize, reply: crate::protocol::value::Value, flight: &Flight, now: Moment) {
        let attempt = &mut self.attempts[index];
        let repeated = attempt.route.repeated(|| now);
        let (sent, on) = (flight.sent, Some(flight.connection));
        attempt.outcome = Some(Answered { outcome: Ok(reply), sent, repeated, on });
    }

    fn fail(&mut self, index: usize, error: CallError, now: Moment) {
        let attempt = &mut self.attempts[index];
        let (connection, repeated) = (attempt.late.take(), attempt.route.repeated(|| now));
        let outcome = Err(Unanswered { error, connection });
        attempt.outcome = Some(Answered { outcome, sent: now, repeated, on: None });
    }
}
