//! The world of a simulation: one server, its clients, and the calls and messages on their way. Everything in it
//! happens by an [`Action`](crate::action::Action). The same actions create the same world.

mod happen;
mod promises;

use crate::call::{Call, Sent};
use crate::client::waits::Caller;
use crate::client::{Client, Outcome, micros, moment};
use crate::gate::Gate;
use crate::latch::Latch;
use crate::ledger::{Check, Violation, broken};
use crate::protocol::call::Call as Script;
use crate::protocol::lease::Moment;
use crate::run::Run;
use crate::scripts::{Loaded, Scripts};
use happen::Group;
use luagate_memory::{Server, Store};
use promises::ids::{Noted, Promised};
use redis::{RedisResult, Value};
use std::collections::BTreeMap;
use std::time::Instant;

/// Counts for the end of a story.
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

/// A client and its clocks.
struct Host {
    client: Client,
    /// Its machine is suspended: it does nothing, and its monotonic clock stops.
    is_suspended: bool,
    /// How far its monotonic clock is behind, in µs, and how far its wall clock is ahead. As on a system without a better
    /// one, the wall clock counts the time while the machine is suspended.
    behind: u64,
    ahead: i64,
    /// Since when nothing is late, by its monotonic clock.
    calm_since: Option<Instant>,
    /// Promises to its callers that must be checked later.
    promised: Vec<Promised>,
    /// Messages that another subscriber could send again.
    observed: Vec<String>,
    /// The events of its ids, by gate and id.
    ids: BTreeMap<(usize, String), Noted>,
    /// The secrets of its waits, by id.
    secrets: Vec<(String, String)>,
    /// Its callers that acquire several semaphores, one after the other.
    groups: Vec<Group>,
}

impl Host {
    /// Its clocks.
    fn now(&self, mono: u64) -> Moment {
        let wall = (START + mono).saturating_add_signed(self.ahead);
        moment(mono - self.behind, wall)
    }
}

/// A copy of the server's data.
struct Backup {
    store: Store,
    gates: Vec<Gate>,
    latch: Latch,
}

pub struct World {
    server: Server,
    scripts: Scripts,
    loaded: Loaded,
    pub gates: Vec<Gate>,
    latch: Latch,
    /// When the latch was last open.
    open_at: Option<u64>,
    /// Since when the latch is open.
    open_since: Option<u64>,
    hosts: Vec<Host>,
    calls: u64,
    /// The true time in µs, and how far the server's clock is ahead of it.
    pub mono: u64,
    ahead: u64,
    full: bool,
    backup: Option<Backup>,
    pub count: Count,
    /// Since when nothing was lost or late.
    calm_since: Option<u64>,
    /// For each gate, the waiter that could be served, and since when.
    waits: Vec<Option<(String, u64)>>,
    /// The story, if it is wanted.
    pub story: Option<Vec<String>>,
}

/// In 2033: later than any clock at present, and an hour's step back stays after 1970.
const START: u64 = 2_000_000_000_000_000;

/// The gates that are acquired together. The last one is a mutex.
const GROUP: std::ops::Range<usize> = 1..3;

impl World {
    /// A world with this number of clients.
    ///
    /// # Errors
    /// When a script is not valid Lua.
    pub fn new(scripts: &Scripts, clients: usize) -> Result<World, String> {
        let mut server = Server::new().map_err(|error| error.to_string())?;
        let loaded = scripts.load(&mut server)?;
        let host = |name| Host {
            client: Client::new(name, 0),
            is_suspended: false,
            behind: 0,
            ahead: 0,
            calm_since: None,
            promised: Vec::new(),
            observed: Vec::new(),
            ids: BTreeMap::new(),
            secrets: Vec::new(),
            groups: Vec::new(),
        };
        let mut world = World {
            server,
            scripts: scripts.clone(),
            loaded,
            gates: vec![Gate::new("semaphore", "s"), Gate::new("semaphore", "{g}:a"), Gate::new("mutex", "{g}:b")],
            latch: Latch::new("l"),
            open_at: None,
            open_since: None,
            hosts: (0..clients).map(host).collect(),
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
        world.set_listeners();
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

    /// This number of µs passes.
    fn advance(&mut self, micros: u64) -> Check {
        self.mono += micros;
        for host in self.hosts.iter_mut().filter(|host| host.is_suspended) {
            host.behind += micros;
        }
        self.time_passes()
    }

    /// The server's clock has moved.
    fn time_passes(&mut self) -> Check {
        self.set_clock();
        let now = self.now();
        for gate in &mut self.gates {
            gate.time_passed(&mut self.server, now)?;
        }
        self.latch.time_passed(&mut self.server, now)?;
        match self.latch.is_open() {
            true => {
                self.open_since = self.open_since.or(Some(self.mono));
                self.open_at = Some(self.mono);
            }
            false => self.open_since = None,
        }
        Ok(())
    }

    fn set_listeners(&mut self) {
        for Host { client, .. } in &self.hosts {
            let channel = client.channel.as_bytes();
            self.server.set_listeners(channel, client.listens.into());
        }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let at = self.mono as f64 / 1e6;
            story.push(format!("{at:10.6}  {}", text()));
        }
    }

    /// The ms until a key expires, exactly.
    pub fn until_an_end(&self, number: usize) -> Option<u64> {
        let store = self.server.store();
        let keys: Vec<&str> = self.gates.iter().flat_map(|gate| gate.keys.names()).collect();
        let end = store.expires_at(keys[number % keys.len()].as_bytes())??;
        end.checked_sub(self.now()).filter(|left| *left > 0)
    }

    /// When the next action of a client is due, or a permit of a client ends.
    pub fn next_time(&self) -> Option<u64> {
        let hosts = self.hosts.iter().filter(|host| !host.is_suspended);
        let times = hosts.flat_map(|host| {
            let client = &host.client;
            let ends = client.permits.values().filter_map(|permit| {
                let (left, since) = permit.leased?;
                Some(since + left)
            });
            let plans = client.plans().map(|(_, at)| at);
            plans.chain(ends).map(|at| micros(at) + host.behind)
        });
        times.filter(|at| *at > self.mono).min()
    }

    /// How many permits a client has, and how many callers that wait.
    pub fn business(&self, client: usize) -> (usize, usize) {
        let client = &self.hosts[client].client;
        let waiting = client.callers.values();
        let waiting = waiting.filter(|caller| !matches!(caller, Caller::Changes(_)));
        let had = client.permits.values().filter(|permit| permit.is_had);
        (had.count(), waiting.count())
    }

    /// The calls on their way: the client and the number of each.
    fn flights(&self) -> impl Iterator<Item = (usize, u64)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.flat_map(|(name, host)| {
            let flights = host.client.flights.iter();
            flights.map(move |flight| (name, flight.number))
        })
    }

    pub fn flight_count(&self) -> usize {
        self.flights().count()
    }

    /// How many messages are on their way.
    pub fn mails(&self) -> usize {
        self.hosts.iter().map(|host| host.client.mail.len()).sum()
    }

    /// The client of a message, and its index among that client's messages.
    fn mail(&self, mut number: usize) -> Option<(usize, usize)> {
        self.hosts.iter().enumerate().find_map(|(name, host)| {
            let length = host.client.mail.len();
            if number < length {
                return Some((name, number));
            }
            number -= length;
            None
        })
    }

    /// The server executes the calls of a flight, or of another one that must come first.
    fn arrive(&mut self, name: usize, number: u64) -> Check {
        let client = &self.hosts[name].client;
        let Some(flight) = client.first_on_connection(number) else {
            return Ok(());
        };
        let (number, is_awaited) = (flight.number, flight.thread.is_some());
        let mut replies = Vec::new();
        for sent in flight.calls.clone() {
            self.check_asked(name, &sent, is_awaited)?;
            self.note_secret(name, &sent);
            let before = self.ticket_of(name, &sent, is_awaited);
            let reply = self.run(&sent)?;
            self.check_place(&sent, before, &reply)?;
            self.note_call(name, &sent, is_awaited);
            replies.push(reply);
        }
        self.hosts[name].client.carried_out(number, replies);
        Ok(())
    }

    fn come_back(&mut self, name: usize, number: u64) -> Check {
        let now = self.hosts[name].now(self.mono);
        self.hosts[name].client.come_back(number, now);
        self.look_after(name)
    }

    /// The answer to a call that is executed at once.
    fn call<C: Script>(&mut self, call: &C) -> Result<Option<C::Answer>, Violation> {
        let reply = self.run(&Sent::new(&call.pack()))?;
        match reply {
            Ok(Value::Nil) | Err(_) => Ok(None), // not sent, or refused
            Ok(value) => match call.answer(value) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => broken("reply", format!("the library cannot read it: {error}")),
            },
        }
    }

    /// The server executes a call.
    fn run(&mut self, sent: &Sent) -> Result<RedisResult<Value>, Violation> {
        let micros = self.micros();
        let hosts = &self.hosts;
        let listens = |inbox: &str| {
            let mut clients = hosts.iter().map(|host| &host.client);
            clients.any(|client| client.listens && client.channel == inbox)
        };
        let run = Run { server: &mut self.server, loaded: &self.loaded, micros, listens: &listens, full: self.full };
        let mut gates = self.gates.iter();
        let gate = gates.position(|gate| gate.keys.names()[0] == sent.keys[0]);
        let done = match (sent.call(), gate) {
            (Call::TryAll { .. }, _) => run.several(&mut self.gates[GROUP], sent),
            (_, Some(gate)) => run.one(&mut self.gates[gate], sent),
            (_, None) => self.latch.run(run, sent),
        };
        let done = done.map_err(|violation| Violation { text: format!("{sent}: {}", violation.text), ..violation });
        if let Err(violation) = &done {
            let text = violation.text.clone();
            self.tell(|| text);
        }
        let done = done?;
        self.tell(|| {
            let reply = match &done.reply {
                Ok(words) => words.join(" "),
                Err(text) => text.clone(),
            };
            format!("    runs {sent}: {reply}")
        });
        self.count.scripts += 1;
        self.count.grants += done.grants;
        // A script takes time, so that no two run at the same µs.
        self.advance(1 + self.server.calls_of_last_script())?;
        for (channel, text) in done.messages {
            self.tell(|| format!("    {channel} < {text}"));
            let mut hosts = self.hosts.iter_mut();
            if let Some(host) = hosts.find(|host| host.client.channel == channel) {
                host.observed.push(text.clone());
                if host.client.hears {
                    host.client.mail.push(text);
                }
            }
        }
        Ok(done.raw)
    }

    /// Takes the outcomes of a client, and notes what it is promised from here on.
    fn look_after(&mut self, name: usize) -> Check {
        let host = &mut self.hosts[name];
        if let Some(violation) = host.client.violation.take() {
            return Err(violation);
        }
        while !self.hosts[name].client.outcomes.is_empty() {
            let outcome = self.hosts[name].client.outcomes.remove(0);
            self.tell(|| format!("c{name}: {}", shown(&outcome)));
            self.take_outcome(name, outcome.clone())?;
            self.go_on_with_group(name, &outcome);
        }
        self.check_promised(name)
    }
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted(number) => format!("has permit {number}"),
        Outcome::Nothing { keys, id, why, .. } => {
            format!("{id} has nothing of {}: {why}", keys.meta)
        }
        Outcome::Opened { keys, .. } => format!("finds {} open", keys.latch),
    }
}
