//! Model checking of acquiring several semaphores at once: everything that clients can do with
//! `try_acquire_several` on two of them, for few permits or many, in every order, with one fault: a call or a
//! reply that is lost or late, or a client that dies.
//!
//! A client with a grant releases one semaphore after the other. After each call the caller has all
//! semaphores, or as many as the reply says: those that an earlier run of the call was granted. Then it
//! releases them. From every situation a new client can acquire both once the leases have ended. There is no
//! waiting, and leases are whole ticks. [`checking`](crate::checking) lists what else is not covered.

mod properties;

use crate::call::SCRIPTS;
use crate::call::Sent as Wire;
use crate::carrier::{Carrier, hash_of};
use crate::checking::{Explored, explore};
use crate::gate::Gate;
use crate::ledger::{Check, Violation, broken};
use crate::protocol::call::Call;
use crate::protocol::keys::Keys;
use crate::protocol::semaphore::{AskOne, Grant, Release, TryAcquireSeveral, TryAcquireSeveralAnswer};
use crate::run::Run;
use crate::scripts::Scripts;
use luagate_memory::Store;
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

const START: u64 = 2_000_000_000_000_000;
/// Time passes in steps of this many µs.
const TICK: u64 = 1_000_000;

const SEMAPHORES: usize = 2;
/// How long permits of each semaphore are held, in ticks.
const LEASES: [u64; SEMAPHORES] = [1, 2];
/// The limit of each semaphore, and how many permits of each are asked for: few or many.
const LIMITS: [u32; SEMAPHORES] = [2, 3];
const WEIGHTS: [[u32; SEMAPHORES]; 2] = [[1, 1], [2, 2]];

/// The clients and the bounds.
#[derive(Clone)]
pub struct Several {
    pub clients: usize,
    /// How many times each client asks.
    pub asks: usize,
    pub faults: u8,
    /// How many ticks pass.
    pub ticks: u8,
    /// The minimum hold of the first semaphore, in ticks.
    pub at_least: u64,
    carrier: Carrier,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    /// Holds each until its deadline, by the reply: the fences and the deadlines.
    Holding(Vec<(u64, u64)>),
    /// Releases this semaphore, then the following ones.
    Leaving(usize),
    Dead,
}

/// A call of a client: for all semaphores, or a release of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sent {
    /// Few permits of each, or many.
    All(usize),
    Back(usize),
}

/// A reply: its first word, the fences and the rest of each lease, and how many an earlier run was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reported {
    word: String,
    grants: Vec<(u64, Duration)>,
    still_held: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    id: String,
    asks: usize,
    phase: Phase,
    /// The call whose reply it awaits, when it was sent, and the reply.
    flight: Option<(Sent, u64, Option<Reported>)>,
    /// A call whose reply is no longer awaited, and the id in it.
    late: Option<(Sent, String)>,
}

#[derive(Clone, Debug)]
pub struct Moment {
    store: Arc<Store>,
    gates: Arc<Vec<Gate>>,
    callers: Vec<Caller>,
    faults: u8,
    ticks: u8,
    violation: Option<Violation>,
    print: u64,
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Moment) -> bool {
        self.print == other.print
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Which client asks, for few permits or many.
    Ask(usize, usize),
    Arrive(usize),
    ArriveLate(usize),
    Return(usize),
    Repeat(usize),
    Leave(usize),
    Die(usize),
    Tick,
}

/// Clients with an even number want few permits, the others many; the first client can want either.
fn weights_of(who: usize) -> impl Iterator<Item = usize> {
    (0..WEIGHTS.len()).filter(move |weight| who == 0 || who.is_multiple_of(2) == (*weight == 1))
}

impl Moment {
    fn micros(&self) -> u64 {
        self.store.micros()
    }

    fn seal(mut self) -> Moment {
        let rule = self.violation.as_ref().map(|violation| violation.rule);
        let budget = (self.faults, self.ticks, rule);
        self.print = hash_of(&(&self.store, &self.gates, &self.callers, budget));
        self
    }

    /// Checks that a client holds what it believes to hold.
    fn check(&self) -> Check {
        for caller in &self.callers {
            let Phase::Holding(grants) = &caller.phase else {
                continue;
            };
            for (gate, (fence, deadline)) in self.gates.iter().zip(grants) {
                let mut live = gate.ledger.live(self.micros() / 1_000);
                if *deadline > self.micros()
                    && !live.any(|(id, entry)| *id == caller.id && entry.fence == *fence)
                {
                    let text = format!("{} believes that it holds {fence}", caller.id);
                    return broken("belief", text);
                }
            }
        }
        Ok(())
    }

    fn holds(&self, id: &str) -> usize {
        let now = self.micros() / 1_000;
        let holds = |gate: &&Gate| gate.ledger.live(now).any(|(other, _)| other == id);
        self.gates.iter().filter(holds).count()
    }

    fn carry_out(&mut self, of: &Several, sent: Sent, id: &str) -> Result<Reported, Violation> {
        let mut gates = (*self.gates).clone();
        let micros = self.micros();
        let keys: Vec<Keys> = gates.iter().map(|gate| gate.keys.clone()).collect();
        let weights = if let Sent::All(weight) = sent { WEIGHTS[weight] } else { WEIGHTS[0] };
        let asked = keys.iter().enumerate().map(|(place, keys)| AskOne {
            keys,
            permits: weights[place],
            limit: LIMITS[place],
            lease_ms: LEASES[place] * TICK / 1_000,
            at_least_ms: if place == 0 { of.at_least * TICK / 1_000 } else { 0 },
        });
        let asked: Vec<AskOne> = asked.collect();
        let all = TryAcquireSeveral { id, asked: &asked };
        let (done, store) = of.carrier.with_server(|server, loaded| {
            server.set_store((*self.store).clone());
            let run = Run { server, loaded, micros, listens: &|_| false, full: false };
            let done = match sent {
                Sent::All(_) => run.several(&mut gates, &Wire::new(&all.pack(&SCRIPTS))),
                Sent::Back(place) => {
                    let (keep, fence) = (0, None);
                    let release = Release { keys: &keys[place], id, keep, fence };
                    run.one(&mut gates[place], &Wire::new(&release.pack(&SCRIPTS)))
                }
            };
            (done, server.store())
        });
        let done = done?;
        (self.gates, self.store) = (Arc::new(gates), Arc::new(store));
        let word = done.reply.map_or(String::new(), |words| words[0].clone());
        let mut reported = Reported { word, grants: Vec::new(), still_held: 0 };
        let (Sent::All(_), Ok(reply)) = (sent, done.raw) else { return Ok(reported) };
        match all.answer(reply) {
            Ok(TryAcquireSeveralAnswer::Granted(grants) | TryAcquireSeveralAnswer::Held(grants)) => {
                let left = |grant: &Grant| grant.left().unwrap_or_default();
                reported.grants = grants.iter().map(|(grant, _)| (grant.fence, left(grant))).collect();
            }
            Ok(TryAcquireSeveralAnswer::Denied { still_held, .. })
            | Ok(TryAcquireSeveralAnswer::AboveLimit { still_held, .. }) => reported.still_held = still_held,
            Err(error) => return broken("reply", format!("{error:?}")),
        }
        let (has, should) = (self.holds(id), reported.grants.len() + reported.still_held);
        if has != should {
            return broken("all or nothing", format!("{id} has {has} of {SEMAPHORES}, not {should}"));
        }
        Ok(reported)
    }
}

impl Caller {
    fn send(&mut self, sent: Sent, micros: u64) {
        self.flight = Some((sent, micros, None));
    }

    fn displace(&mut self) {
        if let Some((sent, _, None)) = self.flight.take() {
            self.late = Some((sent, self.id.clone()));
        }
    }

    fn answer(&mut self, sent: Sent, at: u64, reported: Reported, micros: u64) {
        match sent {
            Sent::All(_) if !reported.grants.is_empty() => {
                let deadline = |left: Duration| at + (left.as_micros() as u64).saturating_sub(1_000);
                let grants = reported.grants.into_iter().map(|(fence, left)| (fence, deadline(left)));
                self.phase = Phase::Holding(grants.collect());
            }
            Sent::All(_) if reported.still_held > 0 => {
                self.phase = Phase::Leaving(0);
                self.send(Sent::Back(0), micros);
            }
            Sent::Back(place) if place + 1 < SEMAPHORES => {
                self.phase = Phase::Leaving(place + 1);
                self.send(Sent::Back(place + 1), micros);
            }
            _ => self.phase = Phase::Idle,
        }
    }
}

impl Several {
    /// # Errors
    /// When a script is not valid Lua.
    pub fn new(
        clients: usize,
        faults: u8,
        ticks: u8,
        at_least: u64,
        scripts: &Scripts,
    ) -> Result<Several, String> {
        let carrier = Carrier::new(scripts)?;
        Ok(Several { clients, asks: 1, faults, ticks, at_least, carrier })
    }

    /// Explores everything; stops at the first broken promise.
    pub fn explore(&self, threads: usize) -> Explored {
        explore(self, threads, |rule, events| self.story(rule, events))
    }

    fn story(&self, rule: &str, events: Vec<Event>) -> String {
        let mut moment = self.init_states().remove(0);
        let mut lines = Vec::new();
        for event in events {
            let tick = (moment.micros() - START) / TICK;
            lines.push(format!("{tick:3}  {event:?}"));
            moment = self.after(&moment, event);
            for caller in &moment.callers {
                lines.push(format!("     {} {:?} {:?}", caller.id, caller.phase, caller.flight));
            }
        }
        let text =
            moment.violation.map_or("no client can acquire all".to_owned(), |violation| violation.text);
        format!("{rule} is broken: {text}\n\n{}\n", lines.join("\n"))
    }

    fn after(&self, moment: &Moment, event: Event) -> Moment {
        let mut next = moment.clone();
        let checked = self.let_happen(&mut next, event).and_then(|()| next.check());
        next.violation = checked.err();
        next.seal()
    }

    fn let_happen(&self, next: &mut Moment, event: Event) -> Check {
        let micros = next.micros();
        match event {
            Event::Ask(who, weight) => {
                let caller = &mut next.callers[who];
                caller.asks += 1;
                caller.id = format!("c{who}/{}", caller.asks);
                caller.phase = Phase::Asking;
                caller.send(Sent::All(weight), micros);
            }
            Event::Arrive(who) => {
                if let Some((sent, at, None)) = next.callers[who].flight.clone() {
                    let id = next.callers[who].id.clone();
                    let reply = next.carry_out(self, sent, &id)?;
                    next.callers[who].flight = Some((sent, at, Some(reply)));
                }
            }
            Event::ArriveLate(who) => {
                if let Some((sent, id)) = next.callers[who].late.take() {
                    let _ = next.carry_out(self, sent, &id)?;
                }
            }
            Event::Return(who) => {
                if let Some((sent, at, Some(reply))) = next.callers[who].flight.take() {
                    next.callers[who].answer(sent, at, reply, micros);
                }
            }
            Event::Repeat(who) => {
                next.faults -= 1;
                if let Some((sent, ..)) = next.callers[who].flight {
                    next.callers[who].displace();
                    next.callers[who].send(sent, micros);
                }
            }
            Event::Leave(who) => {
                next.callers[who].phase = Phase::Leaving(0);
                next.callers[who].send(Sent::Back(0), micros);
            }
            Event::Die(who) => {
                next.faults -= 1;
                next.callers[who].displace();
                next.callers[who].phase = Phase::Dead;
            }
            Event::Tick => {
                next.ticks -= 1;
                let mut store = (*next.store).clone();
                store.set_micros(micros + TICK);
                next.store = Arc::new(store);
            }
        }
        Ok(())
    }
}

impl Model for Several {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        let mut store = Store::default();
        store.set_micros(START);
        let caller =
            |who| Caller { id: format!("c{who}/0"), asks: 0, phase: Phase::Idle, flight: None, late: None };
        let first = Moment {
            store: Arc::new(store),
            gates: Arc::new(vec![Gate::semaphore("{g}:a"), Gate::semaphore("{g}:b")]),
            callers: (0..self.clients).map(caller).collect(),
            faults: self.faults,
            ticks: self.ticks,
            violation: None,
            print: 0,
        };
        vec![first.seal()]
    }

    fn actions(&self, moment: &Moment, events: &mut Vec<Event>) {
        if moment.violation.is_some() {
            return;
        }
        for (who, caller) in moment.callers.iter().enumerate() {
            match &caller.phase {
                Phase::Idle if caller.asks < self.asks => {
                    events.extend(weights_of(who).map(|weight| Event::Ask(who, weight)));
                }
                Phase::Holding(_) => events.push(Event::Leave(who)),
                _ => {}
            }
            match &caller.flight {
                Some((.., None)) => events.push(Event::Arrive(who)),
                Some(_) => events.push(Event::Return(who)),
                None => {}
            }
            if caller.late.is_some() {
                events.push(Event::ArriveLate(who));
            }
            if moment.faults > 0 && caller.flight.is_some() {
                events.push(Event::Repeat(who));
            }
            if moment.faults > 0 && !matches!(caller.phase, Phase::Idle | Phase::Dead) {
                events.push(Event::Die(who));
            }
        }
        if moment.ticks > 0 && moment.callers.iter().any(|caller| caller.phase != Phase::Idle) {
            events.push(Event::Tick);
        }
    }

    fn next_state(&self, moment: &Moment, event: Event) -> Option<Moment> {
        Some(self.after(moment, event))
    }

    fn properties(&self) -> Vec<Property<Several>> {
        self.promises()
    }
}
