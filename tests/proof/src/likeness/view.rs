//! The data of one client as a list of numbers.

use super::moment::{Moment, NEVER, from};
use crate::client::flights::Connection;
use crate::client::micros;
use crate::situation::Party;
use std::time::Instant;

/// The data of one client as numbers. Fences are ranked at the end, when all are known.
pub(super) struct View<'a> {
    pub(super) moment: &'a Moment,
    pub(super) party: &'a Party,
    numbers: Vec<u64>,
    /// Positions in `numbers` of fences and tickets that are ranked among the client's own.
    own: Vec<usize>,
}

impl<'a> View<'a> {
    pub(super) fn new(moment: &'a Moment, party: &'a Party) -> View<'a> {
        View { moment, party, numbers: Vec::with_capacity(64), own: Vec::new() }
    }
}

impl View<'_> {
    pub(super) fn add(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.extend(numbers);
    }

    /// A fence or ticket that only its client compares.
    pub(super) fn add_own(&mut self, number: u64) {
        self.own.push(self.numbers.len());
        self.numbers.push(number);
    }

    /// A ticket that other clients compare too.
    pub(super) fn add_ticket(&mut self, ticket: u64) {
        self.add([self.moment.rank(ticket)]);
        self.add_own(ticket);
    }

    /// An instant of the client's clock; all past instants are equal.
    pub(super) fn add_instant(&mut self, at: Option<Instant>) {
        let at = at.map_or(NEVER, |at| from(self.moment.mono, micros(at)));
        self.add([at]);
    }

    /// An instant for which the time since then has an effect.
    pub(super) fn add_past(&mut self, at: Option<Instant>) {
        let ago = at.map_or(NEVER, |at| {
            let ago = self.moment.mono.saturating_sub(micros(at));
            ago.min(self.moment.most)
        });
        self.add([ago]);
    }

    pub(super) fn add_ms(&mut self, at: u64) {
        self.add([from(self.moment.now, at)]);
    }

    /// How long ago an id was in use, counted in ids.
    pub(super) fn add_id(&mut self, id: &str) {
        let count = id.rsplit('/').next().and_then(|count| count.parse().ok());
        self.add([self.party.asked as u64 - count.unwrap_or(0)]);
    }

    /// A connection, identified by the first call on it that is still on its way.
    pub(super) fn add_connection(&mut self, connection: Option<Connection>) {
        let mut flights = self.party.client.flights.iter();
        let at = flights.position(|flight| Some(flight.connection) == connection);
        self.add([connection.is_some().into(), at.map_or(NEVER, |at| at as u64)]);
    }

    /// The delay from sending a call to its execution. The two clocks always differ by the same amount.
    pub(super) fn delay(&self, sent: Instant, then: u64) -> u64 {
        let carried_out = self.moment.mono - (self.moment.now - then) * 1_000;
        (carried_out - micros(sent)).min(self.moment.most)
    }

    pub(super) fn ranked(mut self) -> Vec<u64> {
        let mut own: Vec<u64> = self.own.iter().map(|at| self.numbers[*at]).collect();
        own.push(0);
        own.sort_unstable();
        own.dedup();
        for at in &self.own {
            self.numbers[*at] = own.partition_point(|number| *number < self.numbers[*at]) as u64;
        }
        self.numbers
    }
}
