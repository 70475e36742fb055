//! A situation of the model checking: what the server keeps, three clients, and what is on its way between them. What
//! can happen in it is an [`Event`].

use crate::carrier::{Carrier, Kept, Sealed};
use crate::client::{Call, Client, Phase};
use crate::gate::Gate;
use crate::ledger::{Check, Violation, broken};
use crate::likeness;
use crate::model::{Ask, channel};
use crate::scripts::Reply;
use luagate_memory::Store;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The time goes by in steps of so many µs. Clients sleep for whole seconds, so that nothing they do falls in between.
pub const TICK: u64 = 1_000_000;

/// The clocks of the server and of the clients at first.
const SERVER_START: u64 = 2_000_000_000_000_000;
const CLIENT_START: u64 = 1_000_000;

/// Longer than keys outlive the last lease, in ticks.
const REST: u64 = 70;

/// How many messages can be on their way to one client; more are lost.
const MAIL: usize = 2;

/// Something that a client may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    pub permits: u32,
    /// In ticks.
    pub lease: u64,
    /// How long it stays in line unless it asks again, in ticks; 0: asks at once.
    pub wait: u64,
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
    /// How many times anybody refreshes what it holds.
    pub renewals: u8,
    /// How many things go wrong: an answer that is lost or late, so that the call is repeated, a message that is lost,
    /// a waiter that gives up, a client that dies.
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

/// A call on its way, or its answer.
#[derive(Clone, Debug, Hash)]
pub struct Flight {
    pub call: Call,
    /// On the clock of the client, in µs.
    pub sent: u64,
    pub reply: Option<Reply>,
}

/// A client, and what is on its way from it and to it.
#[derive(Clone, Debug, Hash)]
pub struct Party {
    pub client: Client,
    /// The call whose answer it awaits.
    pub flight: Option<Flight>,
    /// An earlier one that nobody awaits any more, and that may still be carried out. It need never be, which is how
    /// calls are lost.
    pub late: Option<Call>,
    pub mail: Vec<String>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An idle client asks for what it wants.
    Want(usize, Want),
    /// A waiter asks again, as it planned.
    Ask(usize),
    /// A client has had no answer for too long, and repeats its call. The first one is lost, or late, or its answer is.
    Repeat(usize),
    /// The server carries out a call, and the answer comes back.
    Arrive(usize),
    Return(usize),
    /// The server carries out a call that nobody awaits any more.
    ArriveLate(usize),
    /// A message is read, or lost.
    Read(usize),
    LoseMail(usize),
    Refresh(usize),
    /// A client gives back all but so many, or abandons its wait.
    Leave(usize, u32),
    /// A waiter asks for the last time, without waiting.
    GiveUp(usize),
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
        let kept = Kept {
            store,
            gate: Gate::new("semaphore", "s"),
            times: Vec::new(),
        };
        let party = |name| {
            Arc::new(Party {
                client: Client::new(name),
                flight: None,
                late: None,
                mail: Vec::new(),
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

    /// What can happen.
    pub fn events(&self, setting: &Setting, events: &mut Vec<Event>) {
        if self.violation.is_some() {
            return;
        }
        let mono = self.mono();
        for (who, party) in self.parties.iter().enumerate() {
            let client = &party.client;
            let awaits = party.flight.is_some();
            match &client.phase {
                Phase::Idle if client.count < setting.asks => {
                    events.extend(setting.wants.iter().map(|want| Event::Want(who, *want)));
                }
                Phase::Asking { ask, .. } if self.faults > 0 => {
                    events.push(Event::Leave(who, 0));
                    if ask.wait_ms > 0 {
                        events.push(Event::GiveUp(who));
                    }
                }
                Phase::Holding { permits, .. } => {
                    events.push(Event::Leave(who, 0));
                    if *permits > 1 {
                        events.push(Event::Leave(who, 1));
                    }
                    if self.renewals > 0 && !awaits {
                        events.push(Event::Refresh(who));
                    }
                }
                _ => {}
            }
            if client.due(mono).is_some() {
                events.push(Event::Ask(who));
            }
            match &party.flight {
                Some(Flight { reply: None, .. }) => events.push(Event::Arrive(who)),
                Some(_) => events.push(Event::Return(who)),
                None => {}
            }
            if party.late.is_some() {
                events.push(Event::ArriveLate(who));
            }
            if !party.mail.is_empty() {
                events.push(Event::Read(who));
            }
            if self.faults > 0 {
                if awaits {
                    events.push(Event::Repeat(who));
                }
                if !party.mail.is_empty() {
                    events.push(Event::LoseMail(who));
                }
                if !matches!(client.phase, Phase::Idle | Phase::Dead) {
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
            let sent = party.flight.as_ref().map(|flight| flight.sent);
            let due = party.client.due(mono).and(party.client.due_at());
            sent.is_none_or(|sent| sent + delay > mono) && due.is_none_or(|at| at + delay > mono)
        });
        let model = &self.sealed.kept.gate.model;
        let matters = model.holders.values().any(|holder| holder.lives(now))
            || model.queue.iter().any(|waiter| waiter.patience_until > now)
            || self.parties.iter().any(|party| {
                party.flight.is_some() || party.client.due_at().is_some_and(|at| at > mono)
            });
        in_time && matters
    }

    /// Nobody wants anything, and nothing is on its way.
    pub fn is_at_rest(&self) -> bool {
        self.parties.iter().all(|party| {
            let gone = matches!(party.client.phase, Phase::Idle | Phase::Dead);
            gone && party.flight.is_none() && party.late.is_none()
        })
    }

    /// What comes of it.
    pub fn after(
        &self,
        setting: &Setting,
        carrier: &Carrier,
        event: Event,
        tell: Option<Tell>,
    ) -> Situation {
        let mut next = self.clone();
        let mut ignore = |_| {};
        let checked = next.let_happen(setting, carrier, event, tell.unwrap_or(&mut ignore));
        let checked = checked.and_then(|()| next.check());
        next.violation = checked.err().map(Arc::new);
        next.print = likeness::print(&next, setting);
        next
    }

    fn let_happen(
        &mut self,
        setting: &Setting,
        carrier: &Carrier,
        event: Event,
        tell: Tell,
    ) -> Check {
        let mono = self.mono();
        match event {
            Event::Want(who, want) => {
                let party = Arc::make_mut(&mut self.parties[who]);
                party.want(setting.limit, want);
                party.send_due(mono);
            }
            Event::Ask(who) => Arc::make_mut(&mut self.parties[who]).send_due(mono),
            Event::Repeat(who) => {
                self.faults -= 1;
                let party = Arc::make_mut(&mut self.parties[who]);
                if let Some(flight) = party.flight.clone() {
                    party.displace();
                    party.send(flight.call, mono);
                }
            }
            Event::Arrive(who) => {
                let call = self.parties[who].flight.as_ref().map(|f| f.call.clone());
                if let Some(call) = call {
                    let reply = self.carry_out(carrier, &call, tell)?;
                    let party = Arc::make_mut(&mut self.parties[who]);
                    if let Some(flight) = &mut party.flight {
                        flight.reply = Some(reply);
                    }
                }
            }
            Event::ArriveLate(who) => {
                if let Some(call) = Arc::make_mut(&mut self.parties[who]).late.take() {
                    let _ = self.carry_out(carrier, &call, tell)?;
                }
            }
            Event::Return(who) => {
                let party = Arc::make_mut(&mut self.parties[who]);
                if let Some(Flight {
                    call,
                    sent,
                    reply: Some(reply),
                }) = party.flight.take()
                {
                    party.client.awaits = None;
                    party.client.answer(&call, &reply, sent, mono);
                    party.tidy();
                }
            }
            Event::Read(who) => {
                let party = Arc::make_mut(&mut self.parties[who]);
                let text = party.mail.remove(0);
                tell(format!("    {text}"));
                party.client.read(&text, mono);
                if party.client.awaits.is_none() {
                    party.displace();
                }
                party.tidy();
            }
            Event::LoseMail(who) => {
                self.faults -= 1;
                let text = Arc::make_mut(&mut self.parties[who]).mail.remove(0);
                tell(format!("    {text}"));
            }
            Event::Refresh(who) => {
                self.renewals -= 1;
                Arc::make_mut(&mut self.parties[who]).refresh(setting, mono);
            }
            Event::Leave(who, keep) => {
                let party = Arc::make_mut(&mut self.parties[who]);
                if matches!(party.client.phase, Phase::Asking { .. }) {
                    self.faults -= 1;
                }
                party.displace();
                party.client.phase = Phase::Leaving { keep };
                party.tidy();
                party.send_due(mono);
            }
            Event::GiveUp(who) => {
                self.faults -= 1;
                let party = Arc::make_mut(&mut self.parties[who]);
                party.displace();
                if let Phase::Asking { ask, next, .. } = &mut party.client.phase {
                    (ask.wait_ms, *next) = (0, None);
                }
                party.send_due(mono);
            }
            Event::Die(who) => {
                self.faults -= 1;
                let party = Arc::make_mut(&mut self.parties[who]);
                party.displace();
                (party.client.phase, party.client.listens) = (Phase::Dead, false);
                party.client.hears = false;
                party.tidy();
            }
            Event::Tick => self.sealed = carrier.pass(&self.sealed, TICK)?,
            Event::Rest => {
                self.sealed = carrier.pass(&self.sealed, REST * TICK)?;
                if carrier.is_there(&self.sealed) {
                    return broken("nothing left behind", "a key outlives all leases");
                }
            }
        }
        Ok(())
    }

    /// The server carries out a call.
    fn carry_out(
        &mut self,
        carrier: &Carrier,
        call: &Call,
        tell: Tell,
    ) -> Result<Reply, Violation> {
        let listening = self.parties.iter().filter(|party| party.client.listens);
        let listening: Vec<&str> = listening.map(|party| party.client.inbox.as_str()).collect();
        let carried = carrier.carry_out(&self.sealed, call, &listening)?;
        tell(match &carried.reply {
            Ok(words) => format!("    {}", words.join(" ")),
            Err(text) => format!("    {text}"),
        });
        for (to, text) in &carried.messages {
            tell(format!("    {to} < {text}"));
            for party in &mut self.parties {
                let wants_it = matches!(party.client.phase, Phase::Asking { .. });
                if party.client.inbox == *to && wants_it && party.mail.len() < MAIL {
                    Arc::make_mut(party).mail.push(text.clone());
                }
            }
        }
        self.sealed = carried.sealed;
        // A refresh takes nothing back, and nor does who is only told what it holds.
        let looks = matches!(call, Call::Acquire(_) | Call::Release { .. });
        if looks && carried.reply.as_ref().is_ok_and(|words| words[0] != "held") {
            self.check_wake_up()?;
        }
        Ok(carried.reply)
    }

    /// Invariant 10: a script that frees permits, or finds them free, leaves nothing free for a waiter that lives.
    fn check_wake_up(&self) -> Check {
        let kept = &self.sealed.kept;
        let now = kept.now();
        let in_use: u32 = kept
            .gate
            .ledger
            .live(now)
            .map(|(_, entry)| entry.permits)
            .sum();
        let model = &kept.gate.model;
        let listens = |inbox: &str| {
            self.parties
                .iter()
                .any(|party| party.client.listens && party.client.inbox == channel(inbox))
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

    /// Whoever believes to hold does, and they are not too many.
    fn check(&self) -> Check {
        let (mono, kept) = (self.mono(), &self.sealed.kept);
        let mut believed = 0;
        for party in &self.parties {
            kept.gate.check_belief(&party.client, mono, kept.now())?;
            believed += party
                .client
                .believes(mono)
                .map_or(0, |(permits, _)| permits);
        }
        if kept.gate.model.exists && believed > kept.gate.model.limit {
            return broken("limit", format!("{believed} are believed to be held"));
        }
        Ok(())
    }
}

impl Party {
    fn want(&mut self, limit: u32, want: Want) {
        let client = &mut self.client;
        client.count += 1;
        client.id = format!("c{}/{}", client.name, client.count);
        client.phase = Phase::Asking {
            ask: Ask {
                id: client.id.clone(),
                permits: Some(want.permits),
                limit,
                lease_ms: want.lease * TICK / 1_000,
                wait_ms: want.wait * TICK / 1_000,
                inbox: match want.inbox {
                    true => format!("{}#secret-{}-{}", client.inbox, client.name, client.count),
                    false => String::new(),
                },
                ticket: 0,
            },
            next: None,
            answered: None,
            gives_up: u64::MAX,
        };
    }

    fn send(&mut self, call: Call, sent: u64) {
        self.client.awaits = Some(0);
        self.flight = Some(Flight {
            call,
            sent,
            reply: None,
        });
    }

    fn send_due(&mut self, mono: u64) {
        if let Some(call) = self.client.due(mono) {
            self.send(call, mono);
        }
    }

    /// Nobody awaits the answer any more: an answer on its way is passed over, a call on its way is late.
    fn displace(&mut self) {
        self.client.awaits = None;
        if let Some(Flight {
            call, reply: None, ..
        }) = self.flight.take()
        {
            self.late = Some(call);
        }
    }

    /// Messages are for those who wait.
    fn tidy(&mut self) {
        if !matches!(self.client.phase, Phase::Asking { .. }) {
            self.mail.clear();
        }
    }

    /// The refresh may be carried out without an answer, so the deadline is not later than by it.
    fn refresh(&mut self, setting: &Setting, mono: u64) {
        let lease_ms = setting.longest_lease() * TICK / 1_000;
        if let Phase::Holding { deadline, .. } = &mut self.client.phase {
            let end = mono + lease_ms * 1_000 - 1_000;
            *deadline = deadline.map(|before| before.min(end));
            let id = self.client.id.clone();
            let fence = 0;
            let refresh = Call::Refresh {
                id,
                lease_ms,
                fence,
            };
            self.send(refresh, mono);
        }
    }
}
