//! Which situations are alike: those that only differ in what makes no difference. Everything that can happen in one
//! can then happen in the other, and leads to situations that are alike again.
//!
//! - **Times** count from the moment; what is over is over. No script and no client compares times with anything
//!   but each other, and each adds a lease or a wait to what it reads.
//! - **Tickets** count by their rank among all tickets that anybody knows, **fences** by their rank among the numbers
//!   that the same client knows. The next number is above all that were given, whatever they are, and only a ticket
//!   is ever compared with what another client has.
//! - **Clients** are interchangeable: they may want the same, and their names are compared by nobody. So a situation is
//!   the set of what each has, without its name, in an order of its own. So are the numbers of calls and connections.
//!
//! `likeness_loses_nothing` in the test checks this claim where it can be: in a small setting, in which everything
//! that can be told apart is explored.

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

/// A number that is the same for situations that are alike.
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

/// The same, however situations are told apart.
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
    /// What belongs to nobody.
    fn shared(&self, situation: &Situation) -> Vec<u64> {
        let kept = &situation.sealed.kept;
        let model = &kept.gate.model;
        let mut shared = vec![u64::from(model.limit), model.exists.into(), from(self.now, kept.gate.ledger.latest)];
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
