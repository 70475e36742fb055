//! A situation of the model checking: what the server keeps, some clients, and what is on its way between them. What
//! can happen in it is an [`Event`].

mod check;
mod happen;
mod party;

use crate::carrier::{Carrier, Kept, Sealed};
use crate::client::{Client, Thread, micros, moment};
use crate::gate::Gate;
use crate::ledger::Violation;
use crate::likeness;
use crate::protocol::lease::Moment;
use luagate_memory::Store;
pub use party::Party;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The time goes by in steps of so many µs: as long as the longest sleep of a waiter. What is due in between is done a little
/// later, at the next step.
pub const TICK: u64 = 5_000_000;

/// The clocks of the server and of the clients at first.
const SERVER_START: u64 = 2_000_000_000_000_000;
const CLIENT_START: u64 = 1_000_000;

/// Longer than keys outlive the last lease, in ticks.
const REST: u64 = 20;

/// How many messages can be on their way to one client; more are lost.
const MAIL: usize = 2;

/// How long ago the clock of the clients began, in µs.
fn since_start(mono: u64) -> u64 {
    mono.saturating_sub(CLIENT_START)
}

/// Something that a client may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    pub permits: u32,
    /// In ticks.
    pub lease: u64,
    /// The minimum hold, in ticks.
    pub at_least: u64,
    /// Joins only a line in which fewer wait; 0: any.
    pub max_waiting: u32,
    /// How long it waits, in ticks; `None`: for as long as it takes; 0: not at all.
    pub wait: Option<u64>,
    /// Whether it hears of its grant, or only asks again.
    pub inbox: bool,
}

/// Who there is, what they may want, and the bounds within which everything is explored.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub clients: usize,
    pub limit: u32,
    pub wants: Vec<Want>,
    /// How many times each client wants something.
    pub asks: usize,
    /// Whether clients have waited before: then they have a subscription, and do not ask once without waiting first.
    pub opened: bool,
    /// How many times anybody refreshes what it holds.
    pub renewals: u8,
    /// How many things go wrong: a connection that breaks, an answer that does not come in time, a call that cannot be sent, a
    /// message that is lost, a wait that is cancelled, a client that dies.
    pub faults: u8,
    /// How many ticks a call may be on its way, or a client late.
    pub delay: u64,
    /// Whether situations are told apart by everything, rather than by what makes a difference.
    pub exact: bool,
}

impl Setting {
    pub fn longest_lease(&self) -> u64 {
        self.wants.iter().map(|want| want.lease.max(want.at_least)).max().unwrap_or(0)
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks for what it wants.
    Want(usize, Want),
    /// A thread of a client does what is due.
    Act(usize, Thread),
    /// The server carries out a call, or the answer comes back.
    Arrive(usize, u64),
    Return(usize, u64),
    /// A connection breaks. The call on it may still be carried out, or never.
    Break(usize, u64),
    /// No answer comes in time, and the connection is kept, or not.
    GiveUp(usize, u64, bool),
    /// A call cannot be sent.
    Refuse(usize, u64),
    /// A message is read, or lost.
    Read(usize),
    LoseMail(usize),
    /// A holder refreshes, or gives back all but so many.
    Refresh(usize),
    Leave(usize, u32),
    /// A wait is cancelled.
    Cancel(usize),
    /// Its subscription ends with it.
    Die(usize),
    Tick,
    /// Nobody wants anything until the keys end.
    Rest,
}

#[derive(Clone, Debug)]
pub struct Situation {
    pub sealed: Sealed,
    pub parties: Vec<Arc<Party>>,
    /// How many more things may go wrong.
    pub faults: u8,
    /// How many times somebody may still refresh.
    pub renewals: u8,
    pub violation: Option<Arc<Violation>>,
    /// Tells it from others, by what makes a difference.
    pub print: u64,
}

impl Hash for Situation {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl PartialEq for Situation {
    fn eq(&self, other: &Situation) -> bool {
        self.print == other.print
    }
}

/// Where a story is told, if somebody wants to read it.
pub type Tell<'a> = &'a mut dyn FnMut(String);

impl Situation {
    pub fn first(setting: &Setting) -> Situation {
        let mut store = Store::default();
        store.set_micros(SERVER_START);
        let kept = Kept { store, gate: Gate::new("semaphore", "s"), times: Vec::new() };
        let party = |name| {
            Arc::new(Party {
                client: Client { opened: setting.opened, read_timeout: None, ..Client::new(name, 0) },
                asked: 0,
                stray: BTreeSet::new(),
                late: BTreeSet::new(),
            })
        };
        let mut first = Situation {
            sealed: kept.seal(),
            parties: (0..setting.clients).map(party).collect(),
            faults: setting.faults,
            renewals: setting.renewals,
            violation: None,
            print: 0,
        };
        first.print = likeness::print(&first, setting);
        first
    }

    /// The clock of the clients.
    pub fn mono(&self) -> u64 {
        self.sealed.kept.micros() - SERVER_START + CLIENT_START
    }

    fn moment(&self) -> Moment {
        moment(self.mono(), self.sealed.kept.micros())
    }

    /// What can happen.
    pub fn events(&self, setting: &Setting, events: &mut Vec<Event>) {
        if self.violation.is_some() {
            return;
        }
        for who in 0..self.parties.len() {
            self.events_of(who, setting, events);
        }
        if self.may_tick(setting) {
            events.push(Event::Tick);
        } else if self.is_at_rest() && self.sealed.kept.gate.model.exists {
            events.push(Event::Rest);
        }
    }

    /// What a client can do, and what can happen to it.
    fn events_of(&self, who: usize, setting: &Setting, events: &mut Vec<Event>) {
        let party = &self.parties[who];
        let mono = self.mono();
        let client = &party.client;
        let is_idle = client.callers.is_empty() && client.permits.is_empty();
        if client.is_alive && is_idle && party.asked < setting.asks {
            events.extend(setting.wants.iter().map(|want| Event::Want(who, *want)));
        }
        if let Some((_, permits)) = party.permit() {
            events.push(Event::Leave(who, 0));
            if permits > 1 {
                events.push(Event::Leave(who, 1));
            }
            if self.renewals > 0 && client.callers.is_empty() {
                events.push(Event::Refresh(who));
            }
        }
        events.extend(party.due(mono).map(|(thread, _)| Event::Act(who, thread)));
        self.events_of_calls(who, events);
        if !client.mail.is_empty() {
            events.push(Event::Read(who));
        }
        if self.faults > 0 {
            if !client.mail.is_empty() {
                events.push(Event::LoseMail(who));
            }
            if party.waiting().is_some() {
                events.push(Event::Cancel(who));
            }
            if client.is_alive && !is_idle {
                events.push(Event::Die(who));
            }
        }
    }

    /// What can happen to the calls of a client that are on their way.
    fn events_of_calls(&self, who: usize, events: &mut Vec<Event>) {
        let client = &self.parties[who].client;
        for flight in &client.flights {
            let number = flight.number;
            let first = client.first_on_connection(number);
            if first.is_some_and(|first| first.number == number) {
                events.push(Event::Arrive(who, number));
            }
            if flight.thread.is_none() {
                continue;
            }
            if flight.replies.is_some() {
                events.push(Event::Return(who, number));
            } else if self.faults > 0 {
                events.push(Event::Refuse(who, number));
            }
            if self.faults > 0 {
                events.push(Event::Break(who, number));
                events.push(Event::GiveUp(who, number, true));
                events.push(Event::GiveUp(who, number, false));
            }
        }
    }

    /// Whether time makes a difference, and nobody would be later by it than is explored.
    fn may_tick(&self, setting: &Setting) -> bool {
        let (mono, now) = (self.mono(), self.sealed.kept.now());
        let delay = setting.delay * TICK;
        let in_time = self.parties.iter().all(|party| {
            let mut flights = party.client.flights.iter();
            let in_time = flights.all(|flight| {
                let latest = flight.latest.map_or(u64::MAX, micros);
                let sent = micros(flight.sent.instant());
                flight.thread.is_none() || sent + delay > mono && latest > mono + TICK
            });
            // What was due in between is done at the next step.
            let mut due = party.due(mono);
            in_time && due.all(|(_, at)| since_start(at).next_multiple_of(TICK) + delay > since_start(mono))
        });
        let model = &self.sealed.kept.gate.model;
        let matters = model.holders.values().any(|holder| holder.lives(now))
            || model.queue.iter().any(|waiter| waiter.patience_until > now)
            || self.parties.iter().any(|party| {
                let client = &party.client;
                let mut flights = client.flights.iter();
                client.plans().next().is_some() || flights.any(|flight| flight.thread.is_some())
            });
        in_time && matters
    }

    /// Nobody wants anything, and nothing is on its way.
    pub fn is_at_rest(&self) -> bool {
        self.parties.iter().all(|party| party.is_at_rest())
    }

    /// What comes of it.
    pub fn after(&self, setting: &Setting, carrier: &Carrier, event: Event, tell: Option<Tell>) -> Situation {
        let mut next = self.clone();
        let mut ignore = |_| {};
        let checked = next.let_happen(setting, carrier, event, tell.unwrap_or(&mut ignore));
        let checked = checked.and_then(|()| next.check());
        next.violation = checked.err().map(Arc::new);
        next.print = likeness::print(&next, setting);
        next
    }
}
