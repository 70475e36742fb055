//! Which situations are alike: those that differ only in what has no effect. Every event that is possible in
//! one is possible in the other, and leads to situations that are alike again.
//!
//! - **Times** count relative to now, and all past times are equal. Scripts and clients compare times only
//!   with each other, and each adds a lease or a wait to a time that it read.
//! - **Tickets** count by their rank among all tickets that any client knows, **fences** by their rank among
//!   the numbers that the same client knows. The next number is higher than all earlier ones, whatever they
//!   are. Only tickets are ever compared between clients.
//! - **Clients** are interchangeable: they may want the same, and their names are never compared. So a
//!   situation is the set of the clients' data without names, in canonical order. The same holds for the
//!   numbers of calls and connections.
//!
//! The test `alike_situations_have_alike_successors` checks this claim in a small setting that is also
//! explored with all differences.

mod caller;
mod flights;
mod moment;
mod releases;
mod server;
mod tickets;
mod view;

use crate::carrier::hash_of;
use crate::situation::{Party, Setting, Situation, TICK};
use moment::{Moment, from};
use tickets::tickets;
use view::View;

/// A hash that is equal for situations that are alike.
pub fn print(situation: &Situation, setting: &Setting) -> u64 {
    if setting.exact {
        let parties = format!("{:?}", situation.parties);
        return hash_of(&(known(situation), situation.sealed.print, parties));
    }
    alike(situation, setting)
}

fn known(situation: &Situation) -> impl std::hash::Hash {
    let rule = situation.violation.as_ref().map(|violation| violation.rule);
    (situation.faults, situation.renewals, rule)
}

/// The same, ignoring `exact`.
pub fn alike(situation: &Situation, setting: &Setting) -> u64 {
    let known = known(situation);
    let moment = Moment {
        mono: situation.mono(),
        now: situation.sealed.kept.now(),
        most: setting.longest_lease().max(setting.delay) * TICK,
        tickets: tickets(situation),
    };
    let parties = situation.parties.iter();
    let mut views: Vec<Vec<u64>> = parties.map(|party| moment.view(situation, party)).collect();
    views.sort_unstable();
    hash_of(&(known, views, moment.shared(situation)))
}

impl Moment {
    /// The part of the situation that belongs to no client.
    fn shared(&self, situation: &Situation) -> Vec<u64> {
        let kept = &situation.sealed.kept;
        let model = &kept.gate.model;
        let mut shared =
            vec![u64::from(model.limit), model.exists.into(), from(self.now, kept.gate.ledger.latest)];
        let bounds = kept.times.iter().take(3);
        shared.extend(bounds.map(|time| from(self.now, *time)));
        shared
    }

    fn view(&self, situation: &Situation, party: &Party) -> Vec<u64> {
        let mut view = View::new(self, party);
        view.client();
        party.client.callers.values().for_each(|c| view.caller(c));
        party.client.flights.iter().for_each(|f| view.flight(f));
        view.mail();
        view.releases();
        view.server(situation);
        view.ranked()
    }
}
