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

use crate::call::{Call, Sent};
use crate::carrier::hash_of;
use crate::client::flights::Flight;
use crate::client::held::Change;
use crate::client::micros;
use crate::client::pending::Released;
use crate::client::waits::{Caller, Waiting};
use crate::protocol::message::Message;
use crate::protocol::releases::{Next, PendingRelease, Target};
use crate::protocol::waiter::{PermitTarget, State};
use crate::scripts::words_of;
use crate::situation::{Party, Setting, Situation, TICK};
use std::collections::BTreeSet;
use std::time::Instant;

/// No time is later: what scripts and clients take for never.
const NEVER: u64 = 9_000_000_000_000_000;

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

/// All tickets that anybody knows.
fn tickets(situation: &Situation) -> BTreeSet<u64> {
    let queue = situation.sealed.kept.gate.model.queue.iter();
    let mut tickets: BTreeSet<u64> = queue.map(|waiter| waiter.ticket).collect();
    for party in &situation.parties {
        let callers = party.client.callers.values();
        tickets.extend(callers.filter_map(|caller| match caller {
            Caller::Waits(waiting, _) | Caller::GivesBack { waiting, .. } => Some(waiting.waiter.target.entry.ticket),
            _ => None,
        }));
        for flight in &party.client.flights {
            for sent in &flight.calls {
                if let Call::Acquire(ask) = sent.call() {
                    tickets.insert(ask.ticket);
                }
            }
            for reply in flight.replies.iter().flatten() {
                if let Ok(words) = words_of(reply)
                    && words[0] == "queued"
                {
                    tickets.insert(number(&words, 1));
                }
            }
        }
    }
    tickets.remove(&0);
    tickets
}

fn number(words: &[String], at: usize) -> u64 {
    words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A time, counted from the moment.
fn from(moment: u64, at: u64) -> u64 {
    if at < NEVER { at.saturating_sub(moment) } else { NEVER }
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
    party: &'a Party,
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
        let mut shared = vec![u64::from(model.limit), model.exists.into(), from(self.now, kept.gate.ledger.latest)];
        let bounds = kept.times.iter().take(3);
        shared.extend(bounds.map(|time| from(self.now, *time)));
        shared
    }

    fn view(&self, situation: &Situation, party: &Party) -> Vec<u64> {
        let mut view = View { moment: self, party, numbers: Vec::with_capacity(64), own: Vec::new() };
        view.client();
        party.client.callers.values().for_each(|c| view.caller(c));
        party.client.flights.iter().for_each(|f| view.flight(f));
        view.mail();
        view.releases();
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

    /// An instant of the client's clock, which may be over.
    fn add_instant(&mut self, at: Option<Instant>) {
        let at = at.map_or(NEVER, |at| from(self.moment.mono, micros(at)));
        self.add([at]);
    }

    /// An instant of which it makes a difference how long it is over.
    fn add_past(&mut self, at: Option<Instant>) {
        let ago = at.map_or(NEVER, |at| {
            let ago = self.moment.mono.saturating_sub(micros(at));
            ago.min(self.moment.most)
        });
        self.add([ago]);
    }

    fn add_ms(&mut self, at: u64) {
        self.add([from(self.moment.now, at)]);
    }

    /// How long ago a name was in use, counted in names.
    fn add_id(&mut self, id: &str) {
        let count = id.rsplit('/').next().and_then(|count| count.parse().ok());
        self.add([self.party.asked as u64 - count.unwrap_or(0)]);
    }

    /// A connection, by the first call on it that is still on its way.
    fn add_connection(&mut self, connection: Option<u64>) {
        let mut flights = self.party.client.flights.iter();
        let at = flights.position(|flight| Some(flight.connection) == connection);
        self.add([connection.is_some().into(), at.map_or(NEVER, |at| at as u64)]);
    }

    fn client(&mut self) {
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
                self.add([held.is_over().into(), u64::from(held.permits())]);
                self.add_instant(held.deadline().instant());
            }
        }
    }

    fn caller(&mut self, caller: &Caller) {
        match caller {
            Caller::Waits(waiting, _) => {
                self.add([1]);
                self.waiting(waiting);
            }
            Caller::Tries { want, .. } => {
                self.add([2, u64::from(want.permits.unwrap_or(0)), want.lease.lease_ms]);
            }
            Caller::GivesBack { waiting, released, until, later, .. } => {
                self.add([3, (*later).into()]);
                self.add_instant(Some(*until));
                self.released(released);
                self.waiting(waiting);
            }
            Caller::Changes(Change::Drop(..)) => self.add([4]),
            Caller::Changes(Change::Keep(_, keep)) => self.add([5, u64::from(*keep)]),
            Caller::Changes(Change::Refresh { .. }) => self.add([6]),
            Caller::Settles(_) | Caller::Watches { .. } => self.add([7]),
        }
    }

    fn waiting(&mut self, waiting: &Waiting<PermitTarget>) {
        let (waiter, mailbox) = (&waiting.waiter, &waiting.mailbox);
        let (target, place) = (&waiter.target, &waiter.target.entry);
        self.add_id(&target.id);
        let ask = match waiter.state {
            State::Sleeps => 0,
            State::Asks(ask) => 1 + ask as u64,
            State::Confirms => 4,
        };
        self.add([
            ask,
            u64::from(target.permits.unwrap_or(0)),
            target.lease.lease_ms,
            waiter.may_come_late.into(),
            mailbox.called.into(),
            mailbox.cancelled.into(),
            mailbox.messages.len() as u64,
            place.heard.len() as u64,
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
        self.add_connection(waiting.connection);
        self.add_ticket(place.ticket);
        let asked = place.asked.map(|(sent, then)| self.delay(sent.instant(), then));
        self.add([asked.map_or(0, |took| took + 1)]);
        place.heard.iter().for_each(|fence| self.add_own(*fence));
        for (message, received) in &mailbox.messages {
            self.message(message);
            self.add_past(Some(received.instant()));
        }
    }

    /// From sending a call to when it was carried out: the two clocks are as far apart at all times.
    fn delay(&self, sent: Instant, then: u64) -> u64 {
        let carried_out = self.moment.mono - (self.moment.now - then) * 1_000;
        (carried_out - micros(sent)).min(self.moment.most)
    }

    fn call(&mut self, sent: &Sent) {
        match sent.call() {
            Call::Acquire(ask) => {
                self.add([1]);
                self.add_id(&ask.id);
                self.add([
                    u64::from(ask.permits.unwrap_or(0)),
                    ask.lease_ms,
                    ask.wait_ms,
                    u64::from(!ask.inbox.is_empty()),
                ]);
                self.add_ticket(ask.ticket);
            }
            Call::Release { id, keep, fence } => {
                self.add([2, u64::from(keep)]);
                self.add_id(&id);
                self.add_own(fence);
            }
            Call::Refresh { id, lease_ms, .. } => {
                self.add([3, lease_ms]);
                self.add_id(&id);
            }
            _ => self.add([4]),
        }
    }

    fn flight(&mut self, flight: &Flight) {
        self.add([
            match flight.thread {
                None => 0,
                Some(crate::client::Thread::Caller(_)) => 1,
                Some(_) => 2,
            },
            flight.is_repeated.into(),
            flight.is_behind.into(),
        ]);
        self.add_connection(Some(flight.connection));
        if flight.thread.is_some() {
            self.add_past(Some(flight.sent.instant()));
            self.add_instant(flight.latest);
        }
        flight.calls.iter().for_each(|sent| self.call(sent));
        let replies = flight.replies.as_deref().unwrap_or_default();
        for words in replies.iter().map(words_of) {
            let words = words.unwrap_or_default();
            match words.first().map(String::as_str) {
                Some(word @ ("granted" | "held" | "refreshed")) => {
                    let word = ["granted", "held", "refreshed"].iter().position(|w| *w == word);
                    self.add([1, word.unwrap_or(0) as u64, number(&words, 1)]);
                    self.add_own(number(&words, 2));
                    let left = (number(&words, 3) - number(&words, 4)) * 1_000;
                    let end = micros(flight.sent.instant()) + left.saturating_sub(1_000);
                    self.add([from(self.moment.mono, end)]);
                }
                Some("queued") => {
                    self.add([2, number(&words, 2), number(&words, 3)]);
                    let delay = self.delay(flight.sent.instant(), number(&words, 6));
                    self.add([delay]);
                    self.add_ticket(number(&words, 1));
                }
                Some("released") => self.add([3, number(&words, 1)]),
                Some("lost") => self.add([4]),
                Some("cancelled") => self.add([5]),
                Some("gone") => self.add([6]),
                Some(_) => self.add([7]), // denied, above the limit: the client is idle again
                None => self.add([8]),
            }
        }
    }

    fn message(&mut self, message: &Message) {
        self.add_id(&message.id);
        self.add([u64::from(message.permits)]);
        self.add_own(message.fence);
        let left = message.at.map_or(NEVER, |at| at.saturating_sub(message.now));
        self.add([left]);
        self.add_ms(message.at.unwrap_or(NEVER));
        // What is older than an answer is not heeded.
        self.add([(self.moment.now - message.now).min(self.moment.most / 1_000)]);
    }

    fn mail(&mut self) {
        let mail = &self.party.client.mail;
        self.add([mail.len() as u64]);
        for text in mail {
            if let Some(received) = crate::protocol::message::Received::read(text.as_bytes()) {
                self.message(&received.message);
            }
        }
    }

    fn pending(&mut self, pending: &PendingRelease<u64>) {
        self.add_id(&pending.id);
        match pending.target {
            Target::Whatever => self.add([1]),
            Target::Fence(fence) => {
                self.add([2]);
                self.add_own(fence);
            }
            Target::LookUp => self.add([3]),
        }
        self.add_connection(pending.connection);
        self.add_instant(pending.until);
    }

    fn released(&mut self, released: &Released) {
        self.pending(&released.pending);
        self.add([u64::from(released.steps.lookups)]);
        match released.steps.next {
            Next::LookUp => self.add([1]),
            Next::Release(fence) => {
                self.add([2]);
                self.add_own(fence.unwrap_or(0));
            }
            Next::Nothing => self.add([3]),
        }
    }

    fn releases(&mut self) {
        let client = &self.party.client;
        self.add([
            client.releases.pending.len() as u64,
            client.releasing.len() as u64,
            client.inbox.given_up.len() as u64,
        ]);
        self.add_instant(client.releases_at);
        self.add_past(client.releases_at);
        for (end, pause) in client.releases.pauses.values() {
            self.add_instant(Some(*end));
            self.add([pause.as_millis() as u64]);
        }
        client.releases.pending.iter().for_each(|p| self.pending(p));
        client.releasing.iter().for_each(|r| self.released(r));
        for (id, given_up) in &client.inbox.given_up {
            self.add_id(id);
            given_up.iter().for_each(|wait| self.add_instant(Some(wait.until)));
        }
    }

    /// What the server has of it.
    fn server(&mut self, situation: &Situation) {
        let kept = &situation.sealed.kept;
        let name = self.party.client.name;
        let is_own = |id: &str| {
            id.strip_prefix('c').and_then(|rest| rest.split('/').next()).and_then(|name| name.parse().ok())
                == Some(name)
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
            self.add([u64::from(waiter.permits), waiter.lease_ms, u64::from(!waiter.inbox.is_empty())]);
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
