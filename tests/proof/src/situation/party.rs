//! A client of a situation.

use super::{Event, MAIL, Tell};
use crate::call::{Call, Sent};
use crate::client::flights::{Connection, Flight};
use crate::client::waits::Caller;
use crate::client::{Client, Thread, Want, micros};
use crate::protocol::keeper::Number;
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::Moment;
use crate::protocol::outbox::{Entry, EntryState};
use crate::protocol::release::ReleaseTarget;
use std::collections::BTreeSet;

/// A client, and how many times it asked.
#[derive(Clone, Debug)]
pub struct Party {
    pub(crate) client: Client,
    pub asked: usize,
    /// Ids whose call was executed when its reply was no longer awaited.
    pub stray: BTreeSet<String>,
    /// Such ids without a release after that call: the client sent the release before, or had the reply to a
    /// repetition of the call. The grant to such a call ends with its lease or its deadline.
    pub late: BTreeSet<String>,
}

impl Party {
    /// The permits for which a caller waits in line.
    pub(crate) fn waiting(&self) -> Option<&Want> {
        let mut callers = self.client.callers.values();
        callers.find_map(|caller| match caller {
            Caller::Waits(_, want) => Some(want),
            _ => None,
        })
    }

    /// Whether it got a place in line.
    pub(crate) fn is_in_line(&self) -> bool {
        let mut callers = self.client.callers.values();
        callers.any(|caller| match caller {
            Caller::Waits(waiting, _) => waiting.waiter.target.entry.ticket > 0,
            _ => false,
        })
    }

    /// Whether its wait is being cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut callers = self.client.callers.values();
        callers.any(|caller| match caller {
            Caller::Waits(waiting, _) => waiting.mailbox.cancelled,
            _ => false,
        })
    }

    /// Whether it gives back a permit that had ended when the grant arrived.
    pub(crate) fn gives_back_late(&self) -> bool {
        let mut callers = self.client.callers.values();
        callers.any(|caller| match caller {
            Caller::GivesBack { waiting, .. } => waiting.waiter.target.entry.came_late,
            _ => false,
        })
    }

    /// The due actions.
    pub(crate) fn due(&self, mono: u64) -> impl Iterator<Item = (Thread, u64)> {
        let plans = self.client.plans().map(|(thread, at)| (thread, micros(at)));
        plans.filter(move |(_, at)| *at <= mono)
    }

    /// The permit that its holder has.
    pub(super) fn permit(&self) -> Option<(Number, u32)> {
        let mut permits = self.client.permits.iter();
        let had = permits.find(|(_, permit)| permit.is_had);
        had.map(|(number, permit)| (*number, permit.least))
    }

    /// The client wants and has nothing, and nothing is on its way.
    pub(crate) fn is_at_rest(&self) -> bool {
        let client = &self.client;
        client.callers.is_empty()
            && client.permits.is_empty()
            && client.flights.is_empty()
            && client.mail.is_empty()
            && client.outbox.is_empty()
    }

    /// Whether it wants what this id has, or will release all of it by another call than this one.
    pub(super) fn releases(&self, id: &str, this: u64, now: Moment) -> bool {
        let client = &self.client;
        let mut wants = client.callers.values().filter_map(Caller::asks_for);
        let is_whatever = |entry: &Entry<Connection>| {
            let is_due = matches!(entry.state, EntryState::Due);
            is_due && entry.release.target == ReleaseTarget::Whatever && !entry.release.is_over(now.instant())
        };
        let mut entries = client.outbox.entries.values();
        let pending = entries.any(|entry| entry.release.id == id && is_whatever(entry));
        let other = |flight: &&Flight| flight.number != this && flight.replies.is_none();
        let mut calls = client.flights.iter().filter(other).flat_map(|flight| &flight.calls);
        let releases = |sent: &Sent| match sent.call() {
            Call::Release { id: other, keep, fence } => other == id && keep == 0 && fence == 0,
            _ => false,
        };
        pending || wants.any(|want| want.id == id) || calls.any(releases)
    }

    /// A release is repeated until the lease would have ended if the call had been executed when it was sent.
    /// If the call was executed later, its grant ends with its lease.
    pub(super) fn note_releases_that_end(&mut self, now: Moment) {
        let entries = self.client.outbox.entries.values();
        let over = entries
            .filter(|entry| matches!(entry.state, EntryState::Due) && entry.release.is_over(now.instant()));
        let over: Vec<&String> = over.map(|entry| &entry.release.id).collect();
        let ended = self.stray.iter().filter(|id| over.contains(id)).cloned();
        self.late.extend(ended);
    }

    /// Keeps the messages that it would react to.
    pub(super) fn tidy(&mut self) {
        let client = &mut self.client;
        let Client { inbox, mail, .. } = client;
        mail.retain(|text| {
            let id = text.split(' ').next().unwrap_or_default();
            !inbox.of(id).is_empty() || inbox.given_up.values().any(|wait| *wait.id == *id)
        });
        mail.truncate(MAIL);
    }

    /// A fault happens.
    pub(super) fn suffer(&mut self, event: Event, now: Moment, tell: Tell) {
        let client = &mut self.client;
        match event {
            Event::Break(_, number) => {
                let mut flights = client.flights.iter();
                let flight = flights.find(|flight| flight.number == number);
                if let Some(connection) = flight.map(|flight| flight.connection) {
                    client.break_connection(connection, false, now);
                }
            }
            Event::GiveUp(_, number, is_kept) => {
                client.give_up_call(number, is_kept, now);
            }
            Event::Refuse(_, number) => client.refuse(number, FailureKind::Unreachable, now),
            Event::LoseMail(_) => tell(format!("    {}", client.mail.remove(0))),
            Event::Cancel(_) => client.callers.values_mut().for_each(|caller| caller.cancel(now)),
            Event::Die(_) => client.die(),
            _ => {}
        }
    }
}
