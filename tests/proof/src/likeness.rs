//! Which situations are alike: those that only differ in what makes no difference. Everything that can happen in one
//! can then happen in the other, and leads to situations that are alike again.
//!
//! - **Times** count from the moment; what is over is over. No script and no client compares times with anything
//!   but each other, and each adds a lease or a wait to what it reads.
//! - **Tickets** count by their rank among all tickets that anybody knows, **fences** by their rank among the numbers
//!   that the same client knows. The next number is above all that were given, whatever they are, and only a ticket
//!   is ever compared with what another client has.
//! - **Clients** are interchangeable: they may want the same, and their names are compared by nobody. So a situation is
//!   the set of what each has, without its name, in an order of its own.
//!
//! `likeness_loses_nothing` in the test checks this claim where it can be: in a small setting, in which everything
//! that can be told apart is explored.

use crate::carrier::hash_of;
use crate::client::{Call, Client, Phase};
use crate::scripts::Reply;
use crate::situation::{Flight, Party, Setting, Situation, TICK};
use std::collections::BTreeSet;

/// No time is later: what scripts and clients take for never.
const NEVER: u64 = 9_000_000_000_000_000;

/// A number that is the same for situations that are alike.
pub fn print(situation: &Situation, setting: &Setting) -> u64 {
    let known = known(situation);
    if setting.exact {
        let sealed = situation.sealed.print;
        return hash_of(&(known, sealed, &situation.parties));
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

/// All tickets that anybody knows.
fn tickets(situation: &Situation) -> BTreeSet<u64> {
    let queue = situation.sealed.kept.gate.model.queue.iter();
    let mut tickets: BTreeSet<u64> = queue.map(|waiter| waiter.ticket).collect();
    for party in &situation.parties {
        if let Phase::Asking { ask, .. } = &party.client.phase {
            tickets.insert(ask.ticket);
        }
        for call in party
            .late
            .iter()
            .chain(party.flight.iter().map(|f| &f.call))
        {
            if let Call::Acquire(ask) = call {
                tickets.insert(ask.ticket);
            }
        }
        if let Some(Flight { reply, .. }) = &party.flight
            && let Some(("queued", words)) = first_word(reply.as_ref())
        {
            tickets.insert(number(words, 1));
        }
    }
    tickets.remove(&0);
    tickets
}

fn first_word(reply: Option<&Reply>) -> Option<(&str, &[String])> {
    match reply {
        Some(Ok(words)) => words.first().map(|word| (word.as_str(), words.as_slice())),
        _ => None,
    }
}

fn number(words: &[String], at: usize) -> u64 {
    words
        .get(at)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// A time, counted from the moment.
fn from(moment: u64, at: u64) -> u64 {
    if at < NEVER {
        at.saturating_sub(moment)
    } else {
        NEVER
    }
}

struct Moment {
    mono: u64,
    now: u64,
    /// The longest delay that makes a difference.
    most: u64,
    tickets: BTreeSet<u64>,
}

/// What one client has, in numbers. Fences are ranked at the end, when all are known.
struct View<'a> {
    moment: &'a Moment,
    client: &'a Client,
    numbers: Vec<u64>,
    /// Where in `numbers` a fence or a ticket stands that is to be ranked among the client's own.
    own: Vec<usize>,
}

impl Moment {
    fn rank(&self, ticket: u64) -> u64 {
        self.tickets.range(..=ticket).count() as u64
    }

    /// What belongs to nobody.
    fn shared(&self, situation: &Situation) -> Vec<u64> {
        let kept = &situation.sealed.kept;
        let model = &kept.gate.model;
        let mut shared = vec![
            u64::from(model.limit),
            model.exists.into(),
            from(self.now, kept.gate.ledger.latest),
        ];
        let bounds = kept.times.iter().take(3);
        shared.extend(bounds.map(|time| from(self.now, *time)));
        shared
    }

    fn view(&self, situation: &Situation, party: &Party) -> Vec<u64> {
        let mut view = View {
            moment: self,
            client: &party.client,
            numbers: Vec::with_capacity(48),
            own: Vec::new(),
        };
        view.phase();
        view.flight(party);
        view.mail(party);
        view.server(situation);
        view.ranked()
    }
}

impl View<'_> {
    fn add(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.extend(numbers);
    }

    /// A fence or a ticket, which only its client compares.
    fn add_own(&mut self, number: u64) {
        self.own.push(self.numbers.len());
        self.numbers.push(number);
    }

    /// A ticket, which others compare too.
    fn add_ticket(&mut self, ticket: u64) {
        self.add([self.moment.rank(ticket)]);
        self.add_own(ticket);
    }

    /// A time on the client's clock.
    fn add_mono(&mut self, at: u64) {
        self.add([from(self.moment.mono, at)]);
    }

    fn add_ms(&mut self, at: u64) {
        self.add([from(self.moment.now, at)]);
    }

    /// How long ago a name was in use, counted in names.
    fn add_id(&mut self, id: &str) {
        let count = id.rsplit('/').next().and_then(|count| count.parse().ok());
        self.add([self.client.count as u64 - count.unwrap_or(0)]);
    }

    fn phase(&mut self) {
        match &self.client.phase {
            Phase::Idle => self.add([0, self.client.count as u64]),
            Phase::Asking {
                ask,
                next,
                answered,
                ..
            } => {
                self.add([1, self.client.count as u64]);
                self.ask(ask);
                match next {
                    Some(at) => {
                        // Being late is bounded.
                        let late = self.moment.mono.saturating_sub(*at).min(self.moment.most);
                        self.add([1, late]);
                        self.add_mono(*at);
                    }
                    None => self.add([0]),
                }
                let took = answered.map(|(sent, then)| self.delay(sent, then));
                self.add([took.map_or(0, |took| took + 1)]);
            }
            Phase::Holding {
                permits,
                fence,
                deadline,
                excused,
            } => {
                self.add([2, self.client.count as u64, u64::from(*permits)]);
                self.add_own(*fence);
                self.add_mono(deadline.unwrap_or(u64::MAX));
                self.add([(*excused).into()]);
            }
            Phase::Leaving { keep } => {
                self.add([3, self.client.count as u64, u64::from(*keep)]);
            }
            Phase::Dead => self.add([4]),
        }
    }

    /// From sending a call to when it was carried out: the two clocks are as far apart at all times.
    fn delay(&self, sent: u64, then: u64) -> u64 {
        let carried_out = self.moment.mono - (self.moment.now - then) * 1_000;
        (carried_out - sent).min(self.moment.most)
    }

    fn ask(&mut self, ask: &crate::model::Ask) {
        self.add([
            u64::from(ask.permits.unwrap_or(0)),
            ask.lease_ms,
            ask.wait_ms,
            u64::from(!ask.inbox.is_empty()),
        ]);
        self.add_ticket(ask.ticket);
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Acquire(ask) => {
                self.add([1]);
                self.add_id(&ask.id);
                self.ask(ask);
            }
            Call::Release { id, keep, .. } => {
                self.add([2, u64::from(*keep)]);
                self.add_id(id);
            }
            Call::Refresh { id, .. } => {
                self.add([3]);
                self.add_id(id);
            }
            _ => self.add([4]),
        }
    }

    fn flight(&mut self, party: &Party) {
        match &party.late {
            Some(call) => self.call(call),
            None => self.add([0]),
        }
        let Some(flight) = &party.flight else {
            self.add([0]);
            return;
        };
        self.call(&flight.call);
        self.add([(self.moment.mono - flight.sent).min(self.moment.most)]);
        match (first_word(flight.reply.as_ref()), &flight.reply) {
            (Some((word @ ("granted" | "held" | "refreshed"), words)), _) => {
                self.add([1, u64::from(word == "refreshed"), number(words, 1)]);
                self.add_own(number(words, 2));
                let ends = flight.sent + (number(words, 3) - number(words, 4)) * 1_000;
                self.add_mono(ends.saturating_sub(1_000));
            }
            (Some(("queued", words)), _) => {
                self.add([2, number(words, 2), number(words, 3)]);
                self.add([self.delay(flight.sent, number(words, 6))]);
                self.add_ticket(number(words, 1));
            }
            (Some(("released", words)), _) => self.add([3, number(words, 1)]),
            (Some(("lost", _)), _) => self.add([4]),
            (Some(_), _) => self.add([5]), // denied, cancelled, gone: the client is idle again
            (None, Some(_)) => self.add([6]),
            (None, None) => self.add([7]),
        }
    }

    fn mail(&mut self, party: &Party) {
        self.add([party.mail.len() as u64]);
        for text in &party.mail {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            self.add_id(&words[0]);
            self.add([number(&words, 1)]);
            self.add_own(number(&words, 2));
            let (at, now) = (number(&words, 3), number(&words, 4));
            self.add([at.saturating_sub(now)]);
            self.add_ms(at);
        }
    }

    /// What the server has of it.
    fn server(&mut self, situation: &Situation) {
        let kept = &situation.sealed.kept;
        let is_own = |id: &str| {
            id.strip_prefix('c')
                .and_then(|rest| rest.split('/').next())
                .and_then(|name| name.parse().ok())
                == Some(self.client.name)
        };
        let holders = kept.gate.model.holders.iter();
        let holders: Vec<_> = holders.filter(|(id, _)| is_own(id)).collect();
        let queue = kept.gate.model.queue.iter().zip(kept.times.iter().skip(3));
        let queue: Vec<_> = queue.filter(|(waiter, _)| is_own(&waiter.id)).collect();
        self.add([holders.len() as u64]);
        for (id, holder) in holders {
            self.add_id(id);
            self.add([u64::from(holder.permits)]);
            self.add_own(holder.fence);
            self.add_ms(holder.ends.unwrap_or(u64::MAX));
        }
        for (waiter, ask_at) in queue {
            self.add_id(&waiter.id);
            self.add([
                u64::from(waiter.permits),
                waiter.lease_ms,
                u64::from(!waiter.inbox.is_empty()),
            ]);
            self.add_ticket(waiter.ticket);
            self.add_ms(waiter.patience_until);
            self.add_ms(*ask_at);
        }
    }

    fn ranked(mut self) -> Vec<u64> {
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
