//! Whether each waiter is served once no more faults happen.

use super::{SHARDS, World};
use crate::client::Patience;
use crate::situation::{Event, Situation};

impl World {
    /// The next event if no fault happens and clients only wait: each holder keeps its permits to the end of
    /// its lease. `None` once no client waits.
    pub(super) fn calm(&self, situation: &Situation) -> Option<Event> {
        let mono = situation.mono();
        let parties = || situation.parties.iter().enumerate();
        let next = parties().find_map(|(who, party)| {
            let client = &party.client;
            let mut flights = client.flights.iter();
            if let Some(flight) = flights.next() {
                return Some(match flight.replies {
                    None => Event::Arrive(who, flight.number),
                    Some(_) => Event::Return(who, flight.number),
                });
            }
            if !client.mail.is_empty() {
                return Some(Event::Read(who));
            }
            let due = party.due(mono).next();
            due.map(|(thread, _)| Event::Act(who, thread))
        });
        let waits = parties().any(|(_, party)| party.waiting().is_some());
        next.or(waits.then_some(Event::Tick))
    }

    /// Within how many fault-free ticks every waiter must be served. All ids that can be ahead, late calls
    /// included, hold for a whole lease, one after the other. The end of the last lease is noticed one tick
    /// later.
    pub(super) fn patience(&self) -> u64 {
        let ids = (self.setting.clients * self.setting.asks) as u64 + u64::from(self.setting.faults);
        (ids - 1) * self.setting.longest_lease() + 1
    }

    pub(super) fn longest_wait(&self) -> u64 {
        let shards = self.served.iter().filter_map(|shard| shard.lock().ok());
        let most = shards.filter_map(|shard| shard.values().max().copied());
        most.max().unwrap_or(0)
    }

    /// Whether each waiter is served if no more faults happen.
    pub(super) fn is_served(&self, situation: &Situation) -> bool {
        let shard = |print: u64| self.served[print as usize % SHARDS].lock();
        let mut seen = Vec::new();
        let mut situation = situation.clone();
        let mut ticks = 0;
        loop {
            let known = shard(situation.print).ok();
            if let Some(more) = known.and_then(|known| known.get(&situation.print).copied()) {
                ticks += more;
                break;
            }
            seen.push((situation.print, ticks));
            let Some(event) = self.calm(&situation) else {
                break;
            };
            ticks += u64::from(event == Event::Tick);
            let next = situation.after(&self.setting, &self.carrier, event, None);
            if next.violation.is_some() {
                return true; // another property reports it
            }
            if ticks > self.patience() || self.is_turned_away(&situation, &next) {
                return false;
            }
            situation = next;
        }
        for (print, then) in seen {
            if let Ok(mut known) = shard(print) {
                known.insert(print, ticks - then);
            }
        }
        ticks <= self.patience()
    }

    /// Whether a caller that waited in line, for no more than the limit, has stopped waiting without a
    /// permit.
    fn is_turned_away(&self, then: &Situation, now: &Situation) -> bool {
        then.parties.iter().zip(&now.parties).any(|(then, now)| {
            let client = &now.client;
            let is_served = client.permits.len() > then.client.permits.len();
            let is_over = now.waiting().is_none() && client.is_alive && !is_served;
            then.waiting().is_some_and(|want| {
                let can_be = want.permits <= Some(self.setting.limit);
                let may_be_full = want.max_waiting > 0 && !then.is_in_line();
                let may_end = then.is_cancelled() || now.gives_back_late() || may_be_full;
                want.patience == Patience::Forever && can_be && is_over && !may_end
            })
        })
    }
}
