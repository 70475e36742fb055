//! Releases that the server has not confirmed: what `src/lease/releases.rs` does around the outbox.

use super::flights::{Answered, Connection, Flight, Purpose};
use super::{Client, Thread};
use crate::call::parse;
use crate::protocol::call::Packed;
use crate::protocol::exchange::RawReply;
use crate::protocol::failure::CallError;
use crate::protocol::keeper::Number;
use crate::protocol::lease::Moment;
use crate::protocol::outbox::{Next, OutboxWork, Post};
use crate::protocol::release::PendingRelease;
use std::collections::BTreeSet;
use std::time::Instant;

/// Whether this connection is open.
fn is_open(closed: &BTreeSet<u64>) -> impl Fn(&Connection) -> bool {
    |connection| !closed.contains(&connection.number)
}

impl Client {
    /// Posts a release, or leaves it to the gate's own thread. `dropped`: the permit that is released.
    pub(crate) fn release_later(
        &mut self,
        release: PendingRelease<Connection>,
        dropped: Option<Number>,
        now: Moment,
    ) {
        let node = self.node_of(release.keys.list()[0].as_bytes());
        let current = if self.shares_connections {
            self.connections.get(&(node, Purpose::Calls)).copied()
        } else {
            Some(self.connection(node, Purpose::Calls))
        };
        let (number, post) = self.outbox.post(release, current, now.instant(), is_open(&self.closed));
        self.dropped.extend(dropped.map(|permit| (number, permit)));
        match post {
            Some(post) => self.post(post, now),
            None => self.leave_to_worker(number, now),
        }
    }

    fn post(&mut self, post: Post<Connection>, now: Moment) {
        let flight = self.flight(Thread::Posted(post.number), post.on, now);
        let (packet, calls) = parse(&post.packet());
        self.flights.push(Flight { packet, calls, is_behind: true, post: Some(post), ..flight });
    }

    /// The reply to a posted call is here, or there will be none.
    pub(super) fn posted(
        &mut self,
        post: Post<Connection>,
        replies: Result<Vec<RawReply>, CallError>,
        now: Moment,
    ) {
        let reply = replies.ok().and_then(|replies| replies.into_iter().next());
        let number = post.number;
        match self.outbox.answered(post, reply, now.instant(), is_open(&self.closed)) {
            Next::Post(post) => self.post(post, now),
            Next::Confirmed { found } => {
                if let Some(permit) = self.dropped.remove(&number) {
                    self.dropped(permit, Some(found));
                }
                self.confirm(number);
            }
            Next::Due { closes } => {
                closes.into_iter().for_each(|connection| self.break_connection(connection, false, now));
                self.leave_to_worker(number, now);
            }
        }
        self.settle_all(now);
    }

    fn confirm(&mut self, number: u64) {
        let (shares, current) = (self.shares_connections, &self.connections);
        let is_left = |on: &Connection| !shares || current.get(&(on.node, Purpose::Calls)) != Some(on);
        if let Some(given_up) = self.outbox.confirm(number, is_left).given_up {
            self.inbox.forget(given_up);
        }
    }

    /// The gate's own thread sends it.
    fn leave_to_worker(&mut self, number: u64, now: Moment) {
        if let Some(permit) = self.dropped.remove(&number) {
            self.dropped(permit, None);
        }
        let slots = self.slots.clone();
        let node_of = |key: &[u8]| slots.as_ref().map_or(0, |slots| slots.node_of(key));
        if !self.outbox.waits(number, node_of, now.instant()) {
            self.call_worker(now);
        }
    }

    pub(super) fn call_worker(&mut self, now: Moment) {
        self.releases_at = self.releases_at.into_iter().chain([now.instant()]).min();
    }

    /// The gate's own thread sends what is due, one batch to each server.
    pub(super) fn send_releases(&mut self, now: Moment) {
        let slots = self.slots.clone();
        let node_of = |key: &[u8]| slots.as_ref().map_or(0, |slots| slots.node_of(key));
        self.releases_at = loop {
            match self.outbox.next(now.instant(), node_of, is_open(&self.closed)) {
                OutboxWork::Post(post) => self.post(post, now),
                OutboxWork::Send(node, numbers) => {
                    self.drive(Thread::Releases(node), &numbers, None, now);
                    self.releasing.insert(node, numbers);
                }
                OutboxWork::Close(connection) => self.break_connection(connection, false, now),
                OutboxWork::At(at) => break at,
                OutboxWork::Closed => break None,
            }
        };
        self.settle_all(now); // some may be over
    }

    /// Sends these releases, as their driver.
    pub(super) fn drive(&mut self, thread: Thread, numbers: &[u64], until: Option<Instant>, now: Moment) {
        let calls: Vec<Packed> = numbers.iter().filter_map(|number| self.outbox.call(*number)).collect();
        self.send(thread, &calls, until, now);
    }

    /// The driver of these releases has its replies. Returns whether it has ended, and whether all are
    /// confirmed. `node`: it is the gate's own thread.
    pub(super) fn driven(
        &mut self,
        thread: Thread,
        numbers: &[u64],
        answered: Vec<Answered>,
        until: Option<Instant>,
        now: Moment,
    ) -> Option<bool> {
        let mut is_confirmed = true;
        for (number, answered) in numbers.iter().zip(answered) {
            match answered.read(|reply| self.outbox.sent(*number, reply)) {
                Ok(Some(call)) => {
                    self.send(thread, &[call], until, now);
                    return None;
                }
                Ok(None) => self.confirm(*number),
                Err(_) => is_confirmed = false,
            }
        }
        let node = match thread {
            Thread::Releases(node) => Some(node),
            _ => None,
        };
        self.outbox.unsent(numbers, node, now.instant());
        self.call_worker(now);
        Some(is_confirmed)
    }

    /// A batch of the gate's own thread has its replies.
    pub(super) fn released(&mut self, node: usize, answered: Vec<Answered>, now: Moment) {
        let numbers = self.releasing.remove(&node).unwrap_or_default();
        match self.driven(Thread::Releases(node), &numbers, answered, None, now) {
            None => drop(self.releasing.insert(node, numbers)),
            Some(_) => self.settle_all(now),
        }
    }
}
