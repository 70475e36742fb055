//! A situation of the model checking: the server's data, some clients, and the calls and messages on their
//! way. An
//! [`Event`] leads from one situation to another.

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

/// Time passes in steps of this many µs: the longest sleep of a waiter. Actions that are due in between
/// happen a little later, at the next step.
pub const TICK: u64 = 5_000_000;

/// The initial clocks of the server and of the clients.
const SERVER_START: u64 = 2_000_000_000_000_000;
const CLIENT_START: u64 = 1_000_000;

/// Longer than keys outlive the last lease, in ticks.
const REST: u64 = 20;

/// How many messages to one client can be on their way; further ones are lost.
const MAIL: usize = 2;

/// The µs since the start, on the clients' clock.
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
    /// Joins only a line with fewer waiters; 0: any line.
    pub max_waiting: u32,
    /// Its head start, in ticks.
    pub head_start: u64,
    /// How long it waits, in ticks; `None`: without a time limit; 0: does not wait.
    pub wait: Option<u64>,
    /// Whether it receives its grant by a message, or only polls.
    pub inbox: bool,
}

/// The clients, what they may want, and the bounds of the exploration.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub clients: usize,
    pub limit: u32,
    pub wants: Vec<Want>,
    /// How many times each client wants something.
    pub asks: usize,
    /// Whether clients have waited before. If so, they have a subscription, and skip the first call without
    /// waiting.
    pub opened: bool,
    /// How many refreshes there are in total.
    pub renewals: u8,
    /// How many faults happen: a connection that breaks, a reply that does not arrive in time, a call that
    /// cannot be sent, a lost message, a cancelled wait, a client that dies.
    pub faults: u8,
    /// How many ticks a call may be on its way, or a client late.
    pub delay: u64,
    /// Whether all situations count as different, instead of only those that differ in effect.
    pub exact: bool,
}

impl Setting {
    pub fn longest_lease(&self) -> u64 {
        self.wants.iter().map(|want| want.lease.max(want.at_least)).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client makes its request.
    Want(usize, Want),
    /// A thread of a client does what is due.
    Act(usize, Thread),
    /// The server executes a call, or the reply is delivered.
    Arrive(usize, u64),
    Return(usize, u64),
    /// A connection breaks. The call on it may still be executed, or never.
    Break(usize, u64),
    /// No reply arrives in time; the connection is kept, or not.
    GiveUp(usize, u64, bool),
    /// A call cannot be sent.
    Refuse(usize, u64),
    /// A message is read, or lost.
    Read(usize),
    LoseMail(usize),
    /// A holder refreshes, or releases all but this many permits.
    Refresh(usize),
    Leave(usize, u32),
    /// A wait is cancelled.
    Cancel(usize),
    /// A client dies; its subscription ends.
    Die(usize),
    Tick,
    /// Nobody wants anything until the keys expire.
    Rest,
}

#[derive(Clone, Debug)]
pub struct Situation {
    pub sealed: Sealed,
    pub parties: Vec<Arc<Party>>,
    /// How many more faults may happen.
    pub faults: u8,
    /// How many more refreshes may happen.
    pub renewals: u8,
    pub violation: Option<Arc<Violation>>,
    /// The hash of everything that has an effect.
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

/// Receives the lines of a story, if the story is wanted.
pub type Tell<'a> = &'a mut dyn FnMut(String);

impl Situation {
    pub fn first(setting: &Setting) -> Situation {
        let mut store = Store::default();
        store.set_micros(SERVER_START);
        let kept = Kept { store, gate: Gate::semaphore("s"), times: Vec::new() };
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

    /// All events that are possible.
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

    /// The possible events of one client.
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

    /// The possible events of the calls that a client has on their way.
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

    /// Whether time has an effect, and no client or call would become later than the setting allows.
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
            // Actions that were due in between happen at the next step.
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

    /// No client wants anything, and nothing is on its way.
    pub fn is_at_rest(&self) -> bool {
        self.parties.iter().all(|party| party.is_at_rest())
    }

    /// The situation after an event.
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
