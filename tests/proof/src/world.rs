//! The world of a simulation: one server, its clients, and the calls and messages on their way. Everything in
//! it happens by an [`Action`](crate::action::Action). The same actions create the same world.

mod calls;
mod happen;
mod nodes;
mod promises;

use crate::client::waits::Caller;
use crate::client::{Client, Outcome, micros, moment};
use crate::gate::Gate;
use crate::latch::Latch;
use crate::ledger::Check;
use crate::protocol::lease::Moment;
use crate::protocol::routing::slots::SlotMap;
use crate::scripts::{Loaded, Scripts};
use happen::Group;
use luagate_memory::{Server, Store};
use nodes::Nodes;
use promises::calls::Redirected;
use promises::ids::{Noted, Promised};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

/// Counts for the end of a story.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub scripts: u64,
    pub grants: u64,
    pub losses: u64,
    /// Calls that a node of a cluster redirected, and calls that a node executed after `ASKING`.
    pub redirects: u64,
    pub asked: u64,
    pub failovers: u64,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.scripts += other.scripts;
        self.grants += other.grants;
        self.losses += other.losses;
        self.redirects += other.redirects;
        self.asked += other.asked;
        self.failovers += other.failovers;
    }
}

/// A client and its clocks.
struct Host {
    client: Client,
    /// Its machine is suspended: it does nothing, and its monotonic clock stops.
    is_suspended: bool,
    /// How far its monotonic clock is behind, in µs, and how far its wall clock is ahead. As on a system
    /// without a better one, the wall clock counts the time while the machine is suspended.
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

/// The parts of a world that do not change.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub clients: usize,
    /// The servers are the nodes of a cluster.
    pub is_cluster: bool,
    /// Each client has one connection to each server. Otherwise each attempt has its own, so that calls may
    /// be executed in any order.
    pub shares_connections: bool,
    /// Refreshes have a connection of their own, as with `min_replicas`.
    pub has_replicas: bool,
}

pub struct World {
    setup: Setup,
    server: Server,
    loaded: Loaded,
    nodes: Nodes,
    /// The redirects of each call: the client, its request, the connection of a posted release, and the call.
    redirected: BTreeMap<(usize, u64, Option<u64>, String), Redirected>,
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
    /// For each gate, the waiter that could be served (id and ticket), and since when.
    waits: Vec<Option<((String, u64), u64)>>,
    /// For each semaphore, the ids that have had no answer since a caller came before them and was the first.
    overtaken: Vec<HashSet<String>>,
    /// The story, if it is wanted.
    pub story: Option<Vec<String>>,
}

/// In 2033: later than any clock at present, and an hour's step back stays after 1970.
const START: u64 = 2_000_000_000_000_000;

/// The gates that are acquired together. The last one is a mutex.
const GROUP: std::ops::Range<usize> = 1..3;

impl World {
    /// A new world.
    ///
    /// # Errors
    /// When a script is not valid Lua.
    pub fn new(scripts: &Scripts, setup: Setup) -> Result<World, String> {
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
            setup,
            server,
            nodes: Nodes::one(loaded.names().keys().cloned()),
            loaded,
            redirected: BTreeMap::new(),
            gates: vec![Gate::semaphore("s"), Gate::semaphore("{g}:a"), Gate::mutex("{g}:b")],
            latch: Latch::new("l"),
            open_at: None,
            open_since: None,
            hosts: (0..setup.clients).map(host).collect(),
            calls: 0,
            mono: 1_000_000,
            ahead: START,
            full: false,
            backup: None,
            count: Count::default(),
            calm_since: None,
            waits: vec![None; 3],
            overtaken: vec![HashSet::new(); 3],
            story: None,
        };
        if setup.is_cluster {
            let names = world.key_names();
            world.nodes = Nodes::cluster(names.iter().map(String::as_str));
        }
        for host in &mut world.hosts {
            set_up(&mut host.client, setup, &world.nodes);
        }
        world.set_listeners();
        world.set_clock();
        Ok(world)
    }

    /// The names of all keys.
    fn key_names(&self) -> Vec<String> {
        let gates = self.gates.iter().flat_map(|gate| gate.keys.list());
        gates.chain(self.latch.keys.list()).map(str::to_owned).collect()
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
        if self.latch.is_open() {
            self.open_since = self.open_since.or(Some(self.mono));
            self.open_at = Some(self.mono);
        } else {
            self.open_since = None
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
        let keys: Vec<&str> = self.gates.iter().flat_map(|gate| gate.keys.list()).collect();
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

/// Gives a new client what it knows of the servers.
fn set_up(client: &mut Client, setup: Setup, nodes: &Nodes) {
    client.slots = setup.is_cluster.then(|| SlotMap::new(nodes.addresses()));
    client.shares_connections = setup.shares_connections;
    client.has_replicas = setup.has_replicas;
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted(number) => format!("has permit {number}"),
        Outcome::Nothing { keys, id, why, .. } => {
            format!("{id} has nothing of {}: {why}", keys.list()[0])
        }
        Outcome::Opened { keys, .. } => format!("finds {} open", keys.list()[0]),
    }
}
