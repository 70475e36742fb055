//! The world of a simulation: one server, its clients, and what is on its way between them. All that happens in it is an
//! [`Action`](crate::action::Action); the same actions make the same world.

mod happen;
mod promises;

use crate::client::{Call, Client, Phase};
use crate::gate::Gate;
use crate::ledger::{Check, Violation};
use crate::run::Run;
use crate::scripts::{Loaded, Reply, Scripts};
use luagate_memory::{Server, Store};

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
    /// For each client, how many stood in front of it when it asked last.
    in_front: Vec<usize>,
    /// For each client, whether the server's clock has stepped since it asked last: what it makes of a message that then comes
    /// late may be too long by the step.
    stepped: Vec<bool>,
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
            in_front: vec![0; clients],
            stepped: vec![false; clients],
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

    /// The server's clock has moved.
    fn time_passes(&mut self) -> Check {
        self.set_clock();
        let now = self.now();
        for gate in &mut self.gates {
            gate.time_passed(&mut self.server, now)?;
        }
        Ok(())
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
        if let Phase::Holding {
            deadline, fence, ..
        } = &mut other.phase
            && !on_its_way
        {
            if lease_ms > 0 {
                // It may be carried out without an answer.
                let end = mono + lease_ms * 1_000 - 1_000;
                *deadline = Some(deadline.map_or(end, |before| before.min(end)));
            }
            // Every other client names its fence, as with an id of its own.
            let fence = if client.is_multiple_of(2) { 0 } else { *fence };
            let refresh = Call::Refresh {
                id,
                lease_ms,
                fence,
            };
            self.send(client, refresh);
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
                self.stepped[flight.client] = false;
                if let Ok([word, _, position, ..]) = reply.as_deref()
                    && word == "queued"
                {
                    self.in_front[flight.client] = position.parse().map_or(0, |n: usize| n - 1);
                }
                client.answer(&flight.call, reply, flight.sent, mono);
            }
        }
    }

    /// The server carries out a call.
    fn run(&mut self, gate: usize, call: &Call) -> Result<Reply, Violation> {
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
        self.time_passes()?;
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
}
