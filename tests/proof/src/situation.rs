//! A situation of the model checking: what the server keeps, some clients, and what is on its way between them. What
//! can happen in it is an [`Event`].

use crate::call::{Call, Sent};
use crate::carrier::{Carrier, Kept, Sealed};
use crate::client::flights::Flight;
use crate::client::waits::Caller;
use crate::client::{Client, Outcome, Patience, Thread, Want as Wanted, micros, moment};
use crate::error::failure::FailureKind;
use crate::gate::Gate;
use crate::ledger::{Check, Violation, broken};
use crate::likeness;
use crate::model::channel;
use crate::protocol::keeper::Number;
use crate::protocol::lease::{LeaseOptions, Moment};
use crate::protocol::releases::{PendingRelease, Target};
use crate::scripts::words_of;
use luagate_memory::Store;
use redis::{RedisResult, Value};
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
        self.wants.iter().map(|want| want.lease).max().unwrap_or(0)
    }
}

/// A client, and how much it wanted.
#[derive(Clone, Debug)]
pub struct Party {
    pub(crate) client: Client,
    pub asked: usize,
    /// Ids whose call was carried out when nobody waited for its answer any more.
    pub stray: BTreeSet<String>,
    /// Those for which no release came behind that call: its client sent the release before, or was answered when it sent the
    /// call again. What such a call got ends by itself.
    pub late: BTreeSet<String>,
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

impl Party {
    /// Who waits in line.
    pub(crate) fn waiting(&self) -> Option<&Wanted> {
        let mut callers = self.client.callers.values();
        callers.find_map(|caller| match caller {
            Caller::Waits(_, want) => Some(want),
            _ => None,
        })
    }

    /// Whether its wait is about to end.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut callers = self.client.callers.values();
        callers.any(|caller| match caller {
            Caller::Waits(waiting, _) => waiting.mailbox.cancelled,
            _ => false,
        })
    }

    /// What is due.
    pub(crate) fn due(&self, mono: u64) -> impl Iterator<Item = (Thread, u64)> {
        let plans = self.client.plans().map(|(thread, at)| (thread, micros(at)));
        plans.filter(move |(_, at)| *at <= mono)
    }

    /// The permit that its holder has.
    fn permit(&self) -> Option<(Number, u32)> {
        let mut permits = self.client.permits.iter();
        let had = permits.find(|(_, permit)| permit.is_had);
        had.map(|(number, permit)| (*number, permit.least))
    }

    /// Nobody wants or has anything, and nothing is on its way.
    pub(crate) fn is_at_rest(&self) -> bool {
        let client = &self.client;
        client.callers.is_empty()
            && client.permits.is_empty()
            && client.flights.is_empty()
            && client.mail.is_empty()
            && client.releases.is_empty()
            && client.releasing.is_empty()
    }

    /// Whether it wants what this id has, or will give it back, whatever it is, by another call than this one.
    fn releases(&self, id: &str, this: u64, now: Moment) -> bool {
        let client = &self.client;
        let mut wants = client.callers.values().filter_map(Caller::asks_for);
        let mut pending = client.releases.pending.iter();
        let is_whatever =
            |pending: &PendingRelease<u64>| pending.target == Target::Whatever && !pending.is_over(now.instant());
        let pending = pending.any(|pending| pending.id == id && is_whatever(pending));
        let other = |flight: &&Flight| flight.number != this && flight.replies.is_none();
        let mut calls = client.flights.iter().filter(other).flat_map(|flight| &flight.calls);
        let releases = |sent: &Sent| match sent.call() {
            Call::Release { id: other, keep, fence } => other == id && keep == 0 && fence == 0,
            _ => false,
        };
        pending || wants.any(|want| want.id == id) || calls.any(releases)
    }

    /// Those of its messages that it would heed.
    fn tidy(&mut self) {
        let client = &mut self.client;
        let Client { inbox, mail, .. } = client;
        mail.retain(|text| {
            let id = text.split(' ').next().unwrap_or_default();
            !inbox.of(id).is_empty() || inbox.given_up.contains_key(id)
        });
        mail.truncate(MAIL);
    }
}

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
        let mono = self.mono();
        for (who, party) in self.parties.iter().enumerate() {
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
        if self.may_tick(setting) {
            events.push(Event::Tick);
        } else if self.is_at_rest() && self.sealed.kept.gate.model.exists {
            events.push(Event::Rest);
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

    /// What a client does.
    fn with<T>(&mut self, who: usize, work: impl FnOnce(&mut Party, Moment) -> T) -> T {
        let now = self.moment();
        let party = Arc::make_mut(&mut self.parties[who]);
        let result = work(party, now);
        for outcome in std::mem::take(&mut party.client.outcomes) {
            if let Outcome::Nothing { id, unknown: false, .. } = outcome
                && party.stray.remove(&id)
            {
                party.late.insert(id);
            }
        }
        party.tidy();
        result
    }

    fn let_happen(&mut self, setting: &Setting, carrier: &Carrier, event: Event, tell: Tell) -> Check {
        match event {
            Event::Want(who, want) => {
                let keys = self.sealed.kept.gate.keys.clone();
                self.with(who, |party, now| {
                    party.asked += 1;
                    let want = Wanted {
                        keys,
                        id: format!("c{who}/{}", party.asked),
                        permits: Some(want.permits),
                        limit: setting.limit,
                        strict: false,
                        lease: LeaseOptions { lease_ms: want.lease * TICK / 1_000, renewed: false, own_id: false },
                        patience: match want.wait {
                            None => Patience::Forever,
                            Some(0) => Patience::None,
                            Some(ticks) => Patience::For(ticks * TICK / 1_000),
                        },
                        on_lost: false,
                    };
                    party.client.is_up = true;
                    party.client.want(want, now);
                });
                if !want.inbox {
                    self.with(who, |party, _| party.client.is_up = false);
                }
            }
            Event::Act(who, thread) => self.with(who, |party, now| party.client.act(thread, now)),
            Event::Arrive(who, number) => self.arrive(carrier, who, number, tell)?,
            Event::Return(who, number) => {
                self.with(who, |party, now| party.client.come_back(number, now));
            }
            Event::Break(who, number) => {
                self.faults -= 1;
                self.with(who, |party, now| {
                    let mut flights = party.client.flights.iter();
                    let flight = flights.find(|flight| flight.number == number);
                    if let Some(connection) = flight.map(|flight| flight.connection) {
                        party.client.break_connection(connection, false, now);
                    }
                });
            }
            Event::GiveUp(who, number, is_kept) => {
                self.faults -= 1;
                self.with(who, |party, now| {
                    party.client.give_up_call(number, is_kept, now);
                });
            }
            Event::Refuse(who, number) => {
                self.faults -= 1;
                let kind = FailureKind::Unreachable;
                self.with(who, |party, now| party.client.refuse(number, kind, now));
            }
            Event::Read(who) => self.with(who, |party, now| {
                let text = party.client.mail.remove(0);
                tell(format!("    {text}"));
                party.client.read(&text, now);
            }),
            Event::LoseMail(who) => {
                self.faults -= 1;
                self.with(who, |party, _| {
                    let text = party.client.mail.remove(0);
                    tell(format!("    {text}"));
                });
            }
            Event::Refresh(who) => {
                self.renewals -= 1;
                let lease_ms = setting.longest_lease() * TICK / 1_000;
                self.with(who, |party, now| {
                    if let Some((number, _)) = party.permit() {
                        party.client.refresh(number, Some(lease_ms), now);
                    }
                });
            }
            Event::Leave(who, keep) => self.with(who, |party, now| match party.permit() {
                Some((number, _)) if keep == 0 => party.client.drop_permit(number, now),
                Some((number, _)) => party.client.keep_less(number, keep, now),
                None => {}
            }),
            Event::Cancel(who) => {
                self.faults -= 1;
                self.with(who, |party, now| {
                    let callers = party.client.callers.values_mut();
                    callers.for_each(|caller| caller.cancel(now));
                });
            }
            Event::Die(who) => {
                self.faults -= 1;
                self.with(who, |party, _| party.client.die());
            }
            Event::Tick => self.sealed = carrier.pass(&self.sealed, TICK)?,
            Event::Rest => {
                self.sealed = carrier.pass(&self.sealed, REST * TICK)?;
                if carrier.is_there(&self.sealed) {
                    return broken("nothing left behind", "a key outlives all leases");
                }
                for who in 0..self.parties.len() {
                    self.with(who, |party, _| {
                        party.stray.clear();
                        party.late.clear();
                    });
                }
            }
        }
        Ok(())
    }

    /// The server carries out a call.
    fn arrive(&mut self, carrier: &Carrier, who: usize, number: u64, tell: Tell) -> Check {
        let mut flights = self.parties[who].client.flights.iter();
        let Some(flight) = flights.find(|flight| flight.number == number) else {
            return Ok(());
        };
        let (calls, is_awaited) = (flight.calls.clone(), flight.thread.is_some());
        let mut replies = Vec::new();
        for sent in calls {
            replies.push(self.carry_out(carrier, &sent, tell)?);
            let kept = self.sealed.kept.clone();
            self.with(who, |party, now| {
                if let Call::Acquire(ask) = sent.call()
                    && !is_awaited
                {
                    if !party.releases(&ask.id, number, now) {
                        party.late.insert(ask.id.clone());
                    }
                    party.stray.insert(ask.id);
                }
                let model = &kept.gate.model;
                let is_there = |id: &String| model.holders.contains_key(id) || model.queue.iter().any(|w| w.id == *id);
                party.late.retain(is_there);
                party.stray.retain(is_there);
            });
        }
        self.with(who, |party, _| party.client.carried_out(number, replies));
        Ok(())
    }

    fn carry_out(&mut self, carrier: &Carrier, sent: &Sent, tell: Tell) -> Result<RedisResult<Value>, Violation> {
        let listening = self.parties.iter().map(|party| &party.client);
        let listening = listening.filter(|client| client.listens);
        let listening: Vec<&str> = listening.map(|client| client.channel.as_str()).collect();
        let carried = carrier.carry_out(&self.sealed, sent, &listening)?;
        let words = words_of(&carried.raw);
        tell(match &words {
            Ok(words) => format!("    {}", words.join(" ")),
            Err(text) => format!("    {text}"),
        });
        for (to, text) in &carried.messages {
            tell(format!("    {to} < {text}"));
            for who in 0..self.parties.len() {
                if self.parties[who].client.channel == *to && self.parties[who].client.hears {
                    self.with(who, |party, _| party.client.mail.push(text.clone()));
                }
            }
        }
        self.sealed = carried.sealed;
        // A refresh takes nothing back, and nor does who is only told what it holds.
        let looks = ["semaphore/acquire", "semaphore/release"].contains(&sent.script.as_str());
        if looks && words.is_ok_and(|words| words[0] != "held") {
            self.check_wake_up()?;
        }
        Ok(carried.raw)
    }

    /// Invariant 10: a script that frees permits, or finds them free, leaves nothing free for a waiter that lives.
    fn check_wake_up(&self) -> Check {
        let kept = &self.sealed.kept;
        let now = kept.now();
        let in_use: u32 = kept.gate.ledger.live(now).map(|(_, entry)| entry.permits).sum();
        let model = &kept.gate.model;
        let listens = |inbox: &str| {
            self.parties.iter().any(|party| party.client.listens && party.client.channel == channel(inbox))
        };
        let first = model.queue.iter().find(|waiter| {
            let lives = waiter.inbox.is_empty() || listens(&waiter.inbox);
            lives && waiter.patience_until > now
        });
        match first {
            // What is free is kept for who has no inbox.
            Some(waiter) if !waiter.inbox.is_empty() && in_use + waiter.permits <= model.limit => {
                let text = format!("{} waits, though enough is free: {model:?}", waiter.id);
                broken("wake-up", text)
            }
            _ => Ok(()),
        }
    }

    /// Whoever believes to hold does, for as long as it believes, and they are not too many. Who has given up has nothing.
    fn check(&mut self) -> Check {
        let (now, kept) = (self.moment(), self.sealed.kept.clone());
        let mut believed = 0;
        for party in &mut self.parties {
            if let Some(violation) = &party.client.violation {
                return Err(violation.clone());
            }
            if !party.client.permits.is_empty() {
                let client = &mut Arc::make_mut(party).client;
                let numbers: Vec<Number> = client.permits.keys().copied().collect();
                for number in numbers {
                    let left = client.left(number, now);
                    let permit = &client.permits[&number];
                    let identity = &permit.identity;
                    if !permit.is_had || permit.seen_lost || left.is_some_and(|l| l.is_zero()) {
                        continue;
                    }
                    let (id, fence) = (&identity.id, identity.fence);
                    kept.gate.check_belief(id, permit.least, fence, left, kept.micros())?;
                    believed += permit.least;
                }
            }
            if party.client.is_alive && party.is_at_rest() {
                let own = format!("c{}/", party.client.name);
                let is_own = |id: &str| id.starts_with(&own) && !party.late.contains(id);
                let model = &kept.gate.model;
                let holders = model.holders.iter();
                let mut holders = holders.filter(|(_, holder)| holder.lives(kept.now()));
                let mut queue = model.queue.iter();
                let has = holders.any(|(id, _)| is_own(id)) || queue.any(|w| is_own(&w.id));
                if has {
                    let text = format!("c{} has given up: {model:?}", party.client.name);
                    return broken("nothing left behind", text);
                }
            }
        }
        if kept.gate.model.exists && believed > kept.gate.model.limit {
            return broken("limit", format!("{believed} are believed to be held"));
        }
        Ok(())
    }
}
