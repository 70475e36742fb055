//! A client with its permits, and each of its callers.

use super::view::View;
use crate::client::held::Change;
use crate::client::waits::{Caller, Then, Waiting};
use crate::protocol::waiter::{PermitTarget, WaiterState};

impl View<'_> {
    pub(super) fn client(&mut self) {
        let client = &self.party.client;
        self.add([
            client.is_alive.into(),
            client.opened.into(),
            client.is_up.into(),
            self.party.stray.len() as u64,
            self.party.late.len() as u64,
            self.party.asked as u64,
            client.permits.len() as u64,
            client.callers.len() as u64,
            client.flights.len() as u64,
        ]);
        let party = self.party;
        let ids = party.stray.iter().chain(&party.late);
        ids.for_each(|id| self.add_id(id));
        let mut keeper = client.keeper.clone();
        for (number, permit) in &client.permits {
            self.add([u64::from(permit.least), permit.is_had.into()]);
            self.add([permit.seen_lost.into()]);
            self.add_id(&permit.identity.id);
            self.add_own(permit.identity.fence);
            if let Some(held) = keeper.held(*number) {
                self.add([
                    (!held.is_valid()).into(),
                    u64::from(held.permits),
                    held.longest().is_some().into(),
                ]);
                self.add_instant(held.deadline().instant());
            }
        }
    }

    pub(super) fn caller(&mut self, caller: &Caller) {
        match caller {
            Caller::Waits(waiting, _) => {
                self.add([1]);
                self.waiting(waiting);
            }
            Caller::Tries { want, is_again, mark, .. } => {
                let is_delayed = mark.delays != self.party.client.outbox.mark().delays;
                self.add([(*is_again).into(), is_delayed.into()]);
                self.add([
                    2,
                    u64::from(want.permits.unwrap_or(0)),
                    want.lease.lease_ms,
                    want.lease.at_least_ms,
                ]);
            }
            Caller::GivesBack { waiting, until, later, .. } => {
                self.add([3, (*later).into()]);
                self.add_instant(Some(*until));
                self.waiting(waiting);
            }
            Caller::Changes(Change::Drop(..)) => self.add([4]),
            Caller::Changes(Change::Keep(_, keep)) => self.add([5, u64::from(*keep)]),
            Caller::Changes(Change::Refresh { .. }) => self.add([6]),
            Caller::Settles(settles) => {
                self.add([8, settles.sends.is_some().into(), settles.after.is_some().into()]);
                self.add_instant(settles.until);
                if let Then::AskAgain(waiting) = &settles.then {
                    self.waiting(waiting);
                }
            }
            Caller::TriesAll(_) | Caller::Watches { .. } => self.add([7]),
        }
    }

    fn waiting(&mut self, waiting: &Waiting<PermitTarget>) {
        let (waiter, mailbox) = (&waiting.waiter, &waiting.mailbox);
        let (target, place) = (&waiter.target, &waiter.target.entry);
        self.add_id(&target.id);
        let ask = match waiter.state {
            WaiterState::Sleeps => 0,
            WaiterState::Asks(ask) => 1 + ask as u64,
        };
        self.add([
            ask,
            u64::from(target.permits.unwrap_or(0)),
            target.lease.lease_ms,
            target.lease.at_least_ms,
            u64::from(target.max_waiting),
            target.head_start_ms,
            waiter.may_come_late.into(),
            waiting.is_unsure.into(),
            mailbox.called.into(),
            mailbox.cancelled.into(),
            mailbox.messages.len() as u64,
            place.received_fences.len() as u64,
        ]);
        self.add_instant(waiter.deadline);
        self.add_instant(waiter.deadline.and(Some(waiter.next_ask)));
        self.add_past(Some(waiter.next_ask));
        self.add_instant(Some(waiter.next_ask));
        self.add_past(waiter.unreachable_since);
        let (until, wakes) = waiting.sleeps.unzip();
        self.add_instant(until);
        self.add_instant(wakes);
        self.add_past(wakes);
        self.add_connection(waiting.lost.first().copied());
        let is_delayed = waiting.mark.delays != self.party.client.outbox.mark().delays;
        self.add([waiting.lost.len() as u64, waiting.is_again.into(), is_delayed.into()]);
        self.add_own(place.floor);
        self.add_ticket(place.ticket);
        let asked = place.asked.map(|(sent, then)| self.delay(sent.instant(), then));
        self.add([asked.map_or(0, |took| took + 1)]);
        place.received_fences.iter().for_each(|fence| self.add_own(*fence));
        for (message, received) in &mailbox.messages {
            self.message(message);
            self.add_past(Some(received.instant()));
        }
    }
}
