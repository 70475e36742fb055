//! What holds in a world at every moment, beyond what each call answers.

use super::World;
use crate::client::{Client, Phase};
use crate::ledger::{Check, broken};

impl World {
    /// Who has something to do at once: what is due by its clock, or a call again whose answer is lost.
    pub fn due(&self) -> Option<usize> {
        self.clients.iter().position(|client| {
            let lost = |number| !self.flights.iter().any(|flight| flight.number == number);
            client.awaits.is_some_and(lost) || client.due(self.mono).is_some()
        })
    }

    /// Whether all that is due until then was done, and nothing is on its way.
    pub(super) fn is_prompt(&self, until: u64) -> bool {
        let mut alive = self.clients.iter().filter(|client| client.is_alive());
        let is_later = alive.all(|client| client.due_at().is_none_or(|at| at >= until));
        is_later && self.due().is_none() && self.flights() == 0 && self.mails() == 0
    }

    /// Invariant 10: whoever is first of those who live and could have what is free is served within this many ms; where dead
    /// ones stand in front, or stood there when it asked last, within a second for each.
    pub(super) fn check_liveness(&mut self) -> Check {
        const SOON: u64 = 50;
        let calm = self
            .calm_since
            .is_some_and(|since| self.mono > since + 6_000_000);
        if !calm {
            return Ok(());
        }
        for (place, gate) in self.gates.iter().enumerate() {
            let now = self.now();
            let first = gate.model.queue.iter().position(|waiter| {
                let client = self.clients.iter().find(|client| client.id == waiter.id);
                client.is_some_and(Client::is_alive)
            });
            let could = first.filter(|first| {
                let waiter = &gate.model.queue[*first];
                let client = self.clients.iter().find(|client| client.id == waiter.id);
                let waits = client.is_some_and(|client| {
                    client.hears && client.listens && matches!(client.phase, Phase::Asking { .. })
                });
                let in_use: u32 = gate.ledger.live(now).map(|(_, entry)| entry.permits).sum();
                // Who has no inbox may come back until its patience ends: what is free is kept for it.
                let mut up_to_it = gate.model.queue.iter().take(*first + 1);
                let hears = waits
                    && up_to_it.all(|waiter| !waiter.inbox.is_empty())
                    && waiter.patience_until > now;
                hears && !gate.is_in_doubt() && in_use + waiter.permits <= gate.model.limit
            });
            let Some(first) = could else {
                self.waits[place] = None;
                continue;
            };
            let id = gate.model.queue[first].id.clone();
            let since = match &self.waits[place] {
                Some((same, since)) if *same == id => *since,
                _ => self.mono,
            };
            // It knows of those that stood in front when it asked last.
            let client = self.clients.iter().position(|client| client.id == id);
            let in_front = client.map_or(first, |client| self.in_front[client].max(first));
            let bound = SOON + 1_000 * (in_front as u64).min(5);
            if self.mono > since + bound * 1_000 {
                let text = format!(
                    "{id} could be served since {since} µs, at place {first}: {:?}",
                    gate.model
                );
                return broken("wake-up", text);
            }
            self.waits[place] = Some((id, since));
        }
        Ok(())
    }

    /// Invariant 6: nothing is left but what was to stay.
    pub(super) fn end(&mut self) -> Check {
        for place in 0..self.gates.len() {
            let gate = &self.gates[place];
            let stays = gate.model.pinned
                || gate
                    .model
                    .holders
                    .values()
                    .any(|holder| holder.ends.is_none());
            let over = self.now() > gate.ledger.latest + 62_000;
            if over && !stays && !gate.is_in_doubt() && gate.is_there(&mut self.server) {
                return broken(
                    "nothing left behind",
                    format!("{:?} is there still", self.gates[place].keys.all()),
                );
            }
        }
        Ok(())
    }

    /// Whoever believes to hold does.
    pub(super) fn check_beliefs(&self) -> Check {
        let believe =
            |client: &Client| self.gates[client.gate].check_belief(client, self.mono, self.now());
        self.clients.iter().try_for_each(believe)
    }
}
