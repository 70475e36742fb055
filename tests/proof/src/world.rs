//! The world of a simulation: one server, its clients, and what is on its way between them. All that happens in it is an
//! [`Action`]; the same actions make the same world.

use crate::action::Action;
use crate::client::{Call, Client, Phase};
use crate::gate::Gate;
use crate::ledger::{Check, broken};
use crate::model::Ask;
use crate::run::Run;
use crate::scripts::{Loaded, Reply, Scripts};
use luagate::memory::{Server, Store};

/// A call on its way, or its answer.
struct Flight {
    number: u64,
    client: usize,
    gate: usize,
    call: Call,
    sent: u64,
    reply: Option<Reply>,
}

struct Mail {
    client: usize,
    text: String,
}

/// What a story's end tells of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub scripts: u64,
    pub grants: u64,
    pub losses: u64,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.scripts += other.scripts;
        self.grants += other.grants;
        self.losses += other.losses;
    }
}

pub struct World {
    server: Server,
    scripts: Scripts,
    loaded: Loaded,
    pub gates: Vec<Gate>,
    pub clients: Vec<Client>,
    flights: Vec<Flight>,
    mail: Vec<Mail>,
    calls: u64,
    /// The clock of the clients in µs, and what the server's is ahead of it.
    pub mono: u64,
    ahead: u64,
    full: bool,
    backup: Option<(Store, Vec<Gate>)>,
    pub count: Count,
    /// Since when nothing was lost or late.
    calm_since: Option<u64>,
    /// For each gate, who could be served and since when.
    waits: Vec<Option<(String, u64)>>,
    /// What happened, where somebody wants to read it.
    pub story: Option<Vec<String>>,
}

/// 2033: no clock is there yet, and steps of an hour back stay after 1970.
const START: u64 = 2_000_000_000_000_000;

/// Which of the gates are mutexes.
const MUTEXES: std::ops::Range<usize> = 1..3;

impl World {
    /// A world of so many clients.
    ///
    /// # Errors
    /// When a script is no Lua.
    pub fn new(scripts: &Scripts, clients: usize) -> Result<World, String> {
        let mut server = Server::new().map_err(|error| error.to_string())?;
        let loaded = scripts.load(&mut server)?;
        let mut world = World {
            server,
            scripts: scripts.clone(),
            loaded,
            gates: vec![
                Gate::new("semaphore", "s"),
                Gate::new("mutex", "{g}:a"),
                Gate::new("mutex", "{g}:b"),
            ],
            clients: (0..clients).map(Client::new).collect(),
            flights: Vec::new(),
            mail: Vec::new(),
            calls: 0,
            mono: 1_000_000,
            ahead: START,
            full: false,
            backup: None,
            count: Count::default(),
            calm_since: None,
            waits: vec![None; 3],
            story: None,
        };
        for client in 0..clients {
            world.listen(client, true);
        }
        world.set_clock();
        Ok(world)
    }

    fn micros(&self) -> u64 {
        self.mono + self.ahead
    }

    /// The server's time in ms.
    pub fn now(&self) -> u64 {
        self.micros() / 1_000
    }

    fn set_clock(&mut self) {
        let micros = self.micros();
        self.server.with_store(|store| store.set_micros(micros));
    }

    fn listen(&mut self, client: usize, listens: bool) {
        let client = &mut self.clients[client];
        client.listens = listens;
        self.server
            .set_listeners(client.inbox.as_bytes(), listens.into());
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let at = self.mono as f64 / 1e6;
            story.push(format!("{at:10.6}  {}", text()));
        }
    }

    /// How many ms are left until a key ends, to the very ms.
    pub fn until_an_end(&self, number: usize) -> Option<u64> {
        let store = self.server.store();
        let keys: Vec<_> = self
            .gates
            .iter()
            .flat_map(|gate| gate.keys.all().to_vec())
            .collect();
        let end = store.expires_at(keys[number % keys.len()].as_bytes())??;
        end.checked_sub(self.now()).filter(|left| *left > 0)
    }

    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    pub fn mails(&self) -> usize {
        self.mail.len()
    }

    /// Lets it happen.
    ///
    /// # Errors
    /// When a promise is broken by it.
    pub fn apply(&mut self, action: &Action) -> Check {
        let of = |number: usize, length: usize| number.checked_rem(length).unwrap_or(0);
        let clients = self.clients.len();
        match action {
            Action::Pass(ms) => {
                self.mono += ms * 1_000;
                self.set_clock();
                let now = self.now();
                for gate in &mut self.gates {
                    gate.time_passed(&mut self.server, now)?;
                }
                self.tell(|| format!("{ms} ms go by"));
                self.check_beliefs()?;
                self.check_liveness()
            }
            Action::Want {
                client,
                gate,
                permits,
                limit,
                lease_ms,
                wait_ms,
                inbox,
            } => {
                let (client, gate) = (of(*client, clients), of(*gate, self.gates.len()));
                let mutex = MUTEXES.contains(&gate);
                let mono = self.mono;
                let client = &mut self.clients[client];
                if client.phase == Phase::Idle {
                    client.count += 1;
                    // Some have an id of their own, which is safe to use again once nothing of before is on its way.
                    let is_own = client.name.is_multiple_of(3)
                        && !self
                            .flights
                            .iter()
                            .any(|flight| flight.client == client.name);
                    let number = if is_own { 0 } else { client.count };
                    client.id = format!("c{}/{number}", client.name);
                    client.gate = gate;
                    client.awaits = None;
                    client.phase = Phase::Asking {
                        ask: Ask {
                            id: client.id.clone(),
                            permits: if mutex { Some(1) } else { *permits },
                            limit: if mutex { 1 } else { *limit },
                            lease_ms: (*lease_ms).max(1),
                            wait_ms: *wait_ms,
                            inbox: if *inbox {
                                client.address()
                            } else {
                                String::new()
                            },
                            ticket: 0,
                        },
                        next: None,
                        answered: None,
                        sent: mono,
                        gives_up: mono + 3 * wait_ms * 1_000 + 1_000_000,
                    };
                }
                Ok(())
            }
            Action::Act { client } => {
                let client = of(*client, clients);
                self.act(client)
            }
            Action::Refresh { client, lease_ms } => {
                let client = of(*client, clients);
                self.refresh(client, *lease_ms);
                Ok(())
            }
            Action::Leave { client, keep } => {
                let client = &mut self.clients[of(*client, clients)];
                if let Phase::Holding { permits, .. } = client.phase {
                    let keep = (*keep).min(permits.saturating_sub(1));
                    (client.phase, client.awaits) = (Phase::Leaving { keep }, None);
                } else if matches!(client.phase, Phase::Asking { .. }) {
                    (client.phase, client.awaits) = (Phase::Leaving { keep: 0 }, None);
                }
                Ok(())
            }
            Action::Arrive { flight } if *flight < self.flights.len() => self.arrive(*flight),
            Action::Return { flight } if *flight < self.flights.len() => {
                self.come_back(*flight);
                Ok(())
            }
            Action::Prompt { flight } if *flight < self.flights.len() => {
                self.arrive(*flight)?;
                self.come_back(*flight);
                Ok(())
            }
            Action::Lose { flight } if *flight < self.flights.len() => {
                let flight = self.flights.remove(*flight);
                let what = if flight.reply.is_some() {
                    "answer to"
                } else {
                    "call of"
                };
                self.tell(|| format!("the {what} c{} is lost", flight.client));
                Ok(())
            }
            Action::Read { mail } if *mail < self.mail.len() => {
                let mail = self.mail.remove(*mail);
                let mono = self.mono;
                let client = &mut self.clients[mail.client];
                if client.hears {
                    client.read(&mail.text, mono);
                    self.tell(|| format!("c{} reads: {}", mail.client, mail.text));
                }
                self.check_beliefs()
            }
            Action::LoseMail { mail } if *mail < self.mail.len() => {
                let mail = self.mail.remove(*mail);
                self.tell(|| format!("lost on its way to c{}: {}", mail.client, mail.text));
                Ok(())
            }
            Action::Duplicate { mail } if *mail < self.mail.len() => {
                let Mail { client, text } = &self.mail[*mail];
                let (client, text) = (*client, text.clone());
                self.mail.push(Mail { client, text });
                Ok(())
            }
            Action::LastWord { client } => {
                let (client, mono) = (&mut self.clients[of(*client, clients)], self.mono);
                if let Phase::Asking { ask, next, .. } = &mut client.phase {
                    (ask.wait_ms, *next, client.awaits) = (0, Some(mono), None);
                }
                Ok(())
            }
            Action::Crowd {
                gate,
                count,
                lease_ms,
                wait_ms,
            } => {
                let gate = of(*gate, self.gates.len());
                for number in 0..*count {
                    let ask = Ask {
                        id: format!("crowd/{}/{number}", self.calls),
                        permits: Some(1),
                        limit: if MUTEXES.contains(&gate) { 1 } else { 120 },
                        lease_ms: (*lease_ms).max(1),
                        wait_ms: *wait_ms,
                        inbox: "luagate:inbox:nobody".to_owned(),
                        ticket: 0,
                    };
                    self.run(gate, &Call::Acquire(ask)).map(drop)?;
                }
                self.calls += 1;
                Ok(())
            }
            Action::Die { client } => {
                let client = of(*client, clients);
                (self.clients[client].phase, self.clients[client].hears) = (Phase::Dead, false);
                self.listen(client, false);
                self.tell(|| format!("c{client} dies"));
                Ok(())
            }
            Action::Born { client } => {
                let client = of(*client, clients);
                if !self.clients[client].is_alive() {
                    (self.clients[client].phase, self.clients[client].awaits) = (Phase::Idle, None);
                    self.clients[client].hears = true;
                    self.listen(client, true);
                }
                Ok(())
            }
            Action::Drop { client, noticed } => {
                let client = of(*client, clients);
                self.clients[client].hears = false;
                if *noticed {
                    self.listen(client, false);
                }
                self.tell(|| format!("the subscription of c{client} drops"));
                Ok(())
            }
            Action::Subscribe { client } => {
                let client = of(*client, clients);
                let mono = self.mono;
                let other = &mut self.clients[client];
                if other.is_alive() && !other.hears {
                    other.hears = true;
                    if let Phase::Asking {
                        next: Some(next), ..
                    } = &mut other.phase
                    {
                        *next = mono; // what came in between was missed
                    }
                    self.listen(client, true);
                    self.tell(|| format!("c{client} subscribes again"));
                }
                Ok(())
            }
            Action::Lookup { gate, client } => {
                let id = self.clients[of(*client, clients)].id.clone();
                if id.is_empty() {
                    return Ok(());
                }
                self.run(of(*gate, self.gates.len()), &Call::Lookup { id })
                    .map(drop)
            }
            Action::Inspect { gate } => {
                let gate = of(*gate, self.gates.len());
                self.run(gate, &Call::Inspect).map(drop)
            }
            Action::Resize {
                gate,
                limit,
                expected,
            } => {
                let call = Call::Resize {
                    limit: *limit,
                    expected: *expected,
                };
                match of(*gate, self.gates.len()) {
                    gate if MUTEXES.contains(&gate) => Ok(()),
                    gate => self.run(gate, &call).map(drop),
                }
            }
            Action::LockAll { name, lease_ms } => {
                let (id, lease_ms) = (format!("all/{}", name % 2), (*lease_ms).max(1));
                self.run(MUTEXES.start, &Call::LockAll { id, lease_ms })
                    .map(drop)
            }
            Action::FreeAll { name } => {
                for gate in MUTEXES {
                    let id = format!("all/{}", name % 2);
                    self.run(gate, &Call::Release { id, keep: 0 }).map(drop)?;
                }
                Ok(())
            }
            Action::Full(full) => {
                self.full = *full;
                self.server.set_full(*full);
                self.tell(|| format!("memory is full: {full}"));
                Ok(())
            }
            Action::Flush => {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut self.server);
                flushed.map_err(|error| broken::<()>("server", error.to_string()).unwrap_err())?;
                self.loaded = self
                    .scripts
                    .load(&mut self.server)
                    .unwrap_or_else(|_| self.loaded.clone());
                Ok(())
            }
            Action::Step(ms) => {
                let now = self.now();
                self.gates.iter_mut().for_each(|gate| gate.clock_steps(now));
                self.ahead = self.ahead.saturating_add_signed(ms * 1_000);
                self.set_clock();
                self.excuse();
                self.tell(|| format!("the server's clock steps by {ms} ms"));
                let now = self.now();
                for gate in &mut self.gates {
                    gate.time_passed(&mut self.server, now)?;
                }
                Ok(())
            }
            Action::Backup => {
                if self.gates.iter().all(|gate| !gate.is_in_doubt()) {
                    self.backup = Some((self.server.store(), self.gates.clone()));
                    self.tell(|| "a copy of all keys is made".to_owned());
                }
                Ok(())
            }
            Action::Restart { empty } => self.restart(*empty),
            Action::Evict { gate, key } => {
                let empty = Store::default();
                self.replace_key(of(*gate, self.gates.len()), key % 3, &empty)
            }
            Action::Restore { gate, key } => match &self.backup {
                Some((store, _)) => {
                    let store = store.clone();
                    self.replace_key(of(*gate, self.gates.len()), key % 3, &store)
                }
                None => Ok(()),
            },
            Action::Calm => {
                self.calm_since = self.calm_since.or(Some(self.mono));
                Ok(())
            }
            Action::End => self.end(),
            _ => Ok(()),
        }
    }

    /// Invariant 10: whoever is first of those who live and could have what is free is served within this many ms; where dead
    /// ones stand in front, within a second for each.
    fn check_liveness(&mut self) -> Check {
        const SOON: u64 = 50;
        let calm = self
            .calm_since
            .is_some_and(|since| self.mono > since + 6_000_000);
        if !calm {
            return Ok(());
        }
        for (place, gate) in self.gates.iter().enumerate() {
            let now = self.now();
            let first = gate.model.queue.iter().position(|waiter| {
                let client = self.clients.iter().find(|client| client.id == waiter.id);
                client.is_some_and(Client::is_alive)
            });
            let could = first.filter(|first| {
                let waiter = &gate.model.queue[*first];
                let client = self.clients.iter().find(|client| client.id == waiter.id);
                let waits = client.is_some_and(|client| {
                    client.hears && client.listens && matches!(client.phase, Phase::Asking { .. })
                });
                let in_use: u32 = gate.ledger.live(now).map(|(_, entry)| entry.permits).sum();
                // Who has no inbox may come back until its patience ends: what is free is kept for it.
                let mut up_to_it = gate.model.queue.iter().take(*first + 1);
                let hears = waits
                    && up_to_it.all(|waiter| !waiter.inbox.is_empty())
                    && waiter.patience_until > now;
                hears && !gate.is_in_doubt() && in_use + waiter.permits <= gate.model.limit
            });
            let Some(first) = could else {
                self.waits[place] = None;
                continue;
            };
            let id = gate.model.queue[first].id.clone();
            let since = match &self.waits[place] {
                Some((same, since)) if *same == id => *since,
                _ => self.mono,
            };
            let bound = SOON + 1_000 * (first as u64).min(5);
            if self.mono > since + bound * 1_000 {
                let text = format!(
                    "{id} could be served since {since} µs, at place {first}: {:?}",
                    gate.model
                );
                return broken("wake-up", text);
            }
            self.waits[place] = Some((id, since));
        }
        Ok(())
    }

    /// Invariant 6: nothing is left but what was to stay.
    fn end(&mut self) -> Check {
        for place in 0..self.gates.len() {
            let gate = &self.gates[place];
            let stays = gate.model.pinned
                || gate
                    .model
                    .holders
                    .values()
                    .any(|holder| holder.ends.is_none());
            let over = self.now() > gate.ledger.latest + 62_000;
            if over && !stays && !gate.is_in_doubt() && gate.is_there(&mut self.server) {
                return broken(
                    "nothing left behind",
                    format!("{:?} is there still", self.gates[place].keys.all()),
                );
            }
        }
        Ok(())
    }

    /// What a client holds may be lost from here on without a word.
    fn excuse(&mut self) {
        for client in &mut self.clients {
            if let Phase::Holding { excused, .. } = &mut client.phase {
                *excused = true;
            }
        }
        self.mail.clear();
        for flight in &mut self.flights {
            if flight.reply.take().is_some() {
                flight.client = usize::MAX; // nobody hears it
            }
        }
        self.flights.retain(|flight| flight.client != usize::MAX);
    }

    fn restart(&mut self, empty: bool) -> Check {
        let (store, older) = match &self.backup {
            Some((store, gates)) if !empty => (store.clone(), Some(gates.clone())),
            _ => (Store::default(), None),
        };
        self.server.set_store(store);
        self.set_clock();
        for (place, gate) in self.gates.iter_mut().enumerate() {
            gate.come_back(older.as_ref().map(|gates| &gates[place]));
        }
        for client in 0..self.clients.len() {
            self.clients[client].hears = false;
            self.listen(client, false);
        }
        self.excuse();
        self.count.losses += 1;
        self.tell(|| {
            format!(
                "the server restarts, {}",
                if older.is_none() {
                    "empty"
                } else {
                    "with the copy"
                }
            )
        });
        let now = self.now();
        for gate in &mut self.gates {
            gate.time_passed(&mut self.server, now)?;
        }
        Ok(())
    }

    fn replace_key(&mut self, gate: usize, key: usize, by: &Store) -> Check {
        if self.gates[gate].replace_key(&mut self.server, key, by) {
            self.excuse();
            self.count.losses += 1;
            self.tell(|| format!("key {key} of {gate} is evicted or put back"));
        }
        Ok(())
    }

    fn act(&mut self, client: usize) -> Check {
        if let Some(number) = self.clients[client].awaits {
            // Its patience with the answer is over: the same again, while the first may still be on its way.
            let flight = self.flights.iter().find(|flight| flight.number == number);
            match flight.map(|flight| flight.call.clone()) {
                Some(call) => self.send(client, call),
                None => self.clients[client].awaits = None,
            }
            return Ok(());
        }
        if let Phase::Asking { gives_up, .. } = self.clients[client].phase
            && gives_up <= self.mono
        {
            self.clients[client].phase = Phase::Leaving { keep: 0 };
        }
        if let Some(call) = self.clients[client].due(self.mono) {
            self.send(client, call);
        }
        Ok(())
    }

    /// A call with another lease that is still on its way might be carried out after this one; so that is awaited first.
    fn refresh(&mut self, client: usize, lease_ms: u64) {
        let mono = self.mono;
        let other = &mut self.clients[client];
        let id = other.id.clone();
        let on_its_way = self
            .flights
            .iter()
            .any(|flight| matches!(&flight.call, Call::Refresh { id: same, .. } if *same == id));
        if let Phase::Holding { deadline, .. } = &mut other.phase
            && !on_its_way
        {
            if lease_ms > 0 {
                // It may be carried out without an answer.
                let end = mono + lease_ms * 1_000 - 1_000;
                *deadline = Some(deadline.map_or(end, |before| before.min(end)));
            }
            self.send(client, Call::Refresh { id, lease_ms });
        }
    }

    fn send(&mut self, client: usize, call: Call) {
        self.calls += 1;
        let (number, sent) = (self.calls, self.mono);
        let gate = self.clients[client].gate;
        self.clients[client].awaits = Some(number);
        self.tell(|| format!("c{client} sends {call:?}"));
        self.flights.push(Flight {
            number,
            client,
            gate,
            call,
            sent,
            reply: None,
        });
    }

    fn arrive(&mut self, flight: usize) -> Check {
        if self.flights[flight].reply.is_none() {
            let (gate, call) = (self.flights[flight].gate, self.flights[flight].call.clone());
            let reply = self.run(gate, &call)?;
            self.flights[flight].reply = Some(reply);
        }
        Ok(())
    }

    fn come_back(&mut self, flight: usize) {
        if self.flights[flight].reply.is_none() {
            return;
        }
        let flight = self.flights.remove(flight);
        let mono = self.mono;
        let client = &mut self.clients[flight.client];
        // An answer to a call that was repeated since is passed over, as the library does.
        if client.awaits == Some(flight.number) {
            client.awaits = None;
            if let Some(reply) = &flight.reply {
                client.answer(&flight.call, reply, flight.sent, mono);
            }
        }
    }

    /// The server carries out a call.
    fn run(&mut self, gate: usize, call: &Call) -> Result<Reply, crate::ledger::Violation> {
        let micros = self.micros();
        let clients = &self.clients;
        let listens = |inbox: &str| {
            clients
                .iter()
                .any(|client| client.listens && client.inbox == inbox)
        };
        let run = Run {
            server: &mut self.server,
            loaded: &self.loaded,
            micros,
            listens: &listens,
            full: self.full,
        };
        let done = match call {
            Call::LockAll { id, lease_ms } => run.lock_all(&mut self.gates[MUTEXES], id, *lease_ms),
            call => run.one(&mut self.gates[gate], call),
        };
        let done = done.map_err(|mut violation| {
            violation.text = format!("{call:?}: {}", violation.text);
            violation
        });
        if let Err(violation) = &done {
            let text = violation.text.clone();
            self.tell(|| text);
        }
        let done = done?;
        self.tell(|| {
            format!(
                "    runs {call:?}: {}",
                match &done.reply {
                    Ok(words) => words.join(" "),
                    Err(text) => text.clone(),
                }
            )
        });
        self.count.scripts += 1;
        self.count.grants += done.grants;
        // A script takes its time, so that no two happen at the same µs.
        self.mono += 1 + self.server.calls_of_last_script();
        self.set_clock();
        let now = self.now();
        for gate in &mut self.gates {
            gate.time_passed(&mut self.server, now)?;
        }
        for (channel, text) in done.messages {
            self.tell(|| format!("    {channel} < {text}"));
            if let Some(client) = self
                .clients
                .iter()
                .position(|client| client.inbox == channel)
                && self.clients[client].hears
            {
                self.mail.push(Mail { client, text });
            }
        }
        Ok(done.reply)
    }

    /// Whoever believes to hold does.
    fn check_beliefs(&self) -> Check {
        let believe =
            |client: &Client| self.gates[client.gate].check_belief(client, self.mono, self.now());
        self.clients.iter().try_for_each(believe)
    }
}
