//! A client: the machines of `crates/core`, and the work of the library's threads around them, one step at a
//! time. The library's `src/wait`, `src/lease` and `src/permit` use sockets, locks and a clock. Here the same
//! is done with plain values, so that a simulation decides what happens, when, and in which order.

pub(crate) mod flights;
pub(crate) mod held;
pub(crate) mod pending;
pub(crate) mod requests;
mod several;
pub(crate) mod waits;

use crate::call::SCRIPTS;
use crate::ledger::Violation;
use crate::protocol::held::Identity;
use crate::protocol::inbox::{Inbox, Received};
use crate::protocol::keeper::{Keeper, KeeperTask, Number};
use crate::protocol::keys::{Keys, LatchKeys};
use crate::protocol::lease::{LeaseOptions, Moment};
use crate::protocol::outbox::Outbox;
use crate::protocol::routing::NodeId;
use crate::protocol::routing::slots::SlotMap;
use crate::protocol::waiter::{Denied, NotGranted};
use flights::{Connection, Flight, Purpose};
pub(crate) use held::Permit;
use requests::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use waits::Caller;

/// How long a client waits for a reply.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a wait continues while the server is unreachable.
pub const OUTAGE: Duration = Duration::from_secs(3);

/// `Instant` has no constructor from a number, so times count from this one.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The moment for both clocks of a client, from µs.
pub(crate) fn moment(monotonic: u64, total: u64) -> Moment {
    let [monotonic, total] = [monotonic, total].map(Duration::from_micros);
    Moment::new(*ZERO + monotonic, total)
}

/// The µs of a monotonic clock.
pub(crate) fn micros(instant: Instant) -> u64 {
    instant.saturating_duration_since(*ZERO).as_micros() as u64
}

/// How long a caller stays in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// Does not wait.
    None,
    /// This number of ms.
    For(u64),
    Forever,
}

/// Permits that a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) permits: Option<u32>,
    pub(crate) limit: u32,
    pub(crate) strict: bool,
    /// 0: any number.
    pub(crate) max_waiting: u32,
    pub(crate) head_start_ms: u64,
    pub(crate) lease: LeaseOptions,
    pub(crate) patience: Patience,
    /// Registers a callback for the loss.
    pub(crate) on_lost: bool,
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, key, permits, limit) = (&self.id, self.keys.list()[0], self.permits, self.limit);
        write!(f, "{permits:?} of {limit} of {key} as {id}, patience {:?}", self.patience)?;
        write!(f, ", {} ms, at least {} ms", self.lease.lease_ms, self.lease.at_least_ms)?;
        write!(f, ", {} in line at most, head start {} ms", self.max_waiting, self.head_start_ms)?;
        let options =
            [(self.strict, ", strict"), (self.lease.renewed, ", renewed"), (self.on_lost, ", with on_lost")];
        let mut options = options.iter().filter(|(is_so, _)| *is_so);
        options.try_for_each(|(_, word)| f.write_str(word))
    }
}

/// A thread of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Thread {
    Caller(u64),
    Renewal,
    Losses,
    /// The gate's own thread.
    Worker,
    /// Sends releases to this server.
    Releases(NodeId),
    /// No thread waits for the reply to this release: the reader of the connection handles it.
    Posted(u64),
}

/// The outcome of a caller's request.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Granted(Number),
    /// `id` holds nothing there, or soon will not. `unknown`: a call had no reply.
    Nothing {
        keys: Keys,
        id: String,
        why: Why,
        unknown: bool,
    },
    Opened {
        keys: LatchKeys,
        /// When the wait began, in true time.
        begun: u64,
    },
}

/// Why a caller has nothing.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// A call that does not wait was denied.
    Denied(Denied),
    Ended(NotGranted),
    /// Its permit had been lost before it was released.
    Lost {
        /// The fence that its calls contain.
        fence: Option<u64>,
    },
    /// No check asks for it.
    Other(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Denied(denied) => write!(f, "{denied:?}"),
            Why::Ended(error) => write!(f, "{error:?}"),
            Why::Lost { .. } => f.write_str("its permit was lost"),
            Why::Other(text) => f.write_str(text),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: usize,
    pub(crate) is_alive: bool,
    /// The channel of its subscription.
    pub(crate) channel: String,
    /// It has a subscription, or is about to open one.
    pub(crate) opened: bool,
    /// The client considers its subscription connected.
    pub(crate) is_up: bool,
    /// Messages to it arrive.
    pub(crate) hears: bool,
    /// The server counts its subscription.
    pub(crate) listens: bool,
    /// The timeout of its calls; `None`: they do not end without a reply.
    pub(crate) read_timeout: Option<Duration>,
    /// The last number that was given to a caller, a call, an id or a secret.
    pub(crate) last: u64,
    pub(crate) inbox: Inbox<u64>,
    pub(crate) keeper: Keeper,
    pub(crate) outbox: Outbox<Connection>,
    /// The permits whose release is posted, by the number of the release.
    pub(crate) dropped: BTreeMap<u64, Number>,
    pub(crate) callers: BTreeMap<u64, Caller>,
    pub(crate) permits: BTreeMap<Number, Permit>,
    /// Whether its calls share one connection to each server, and these connections.
    pub(crate) shares_connections: bool,
    /// Replicas must confirm its refreshes, which have a connection of their own.
    pub(crate) has_replicas: bool,
    pub(crate) connections: BTreeMap<(NodeId, Purpose), Connection>,
    /// The connections that are closed, by their numbers.
    pub(crate) closed: BTreeSet<u64>,
    /// The connections on which the server is silent, by their numbers. Each is closed when all its calls
    /// have run.
    pub(crate) silent: BTreeSet<u64>,
    /// In the order in which they were sent.
    pub(crate) flights: Vec<Flight>,
    /// The calls of its threads that have no outcome yet.
    pub(crate) requests: BTreeMap<Thread, Request>,
    pub(crate) last_request: u64,
    /// What it knows of a cluster.
    pub(crate) slots: Option<SlotMap>,
    /// The thread that asks for the slots.
    pub(crate) asker: Option<Thread>,
    /// How many times a packet had no reply, or a node was asked for the slots.
    pub(crate) changes: u64,
    /// How many packets could not be sent.
    pub(crate) refusals: u64,
    /// Messages on their way.
    pub(crate) mail: Vec<String>,
    /// The batch whose reply the renewal thread awaits.
    pub(crate) renewing: held::Batch,
    /// The releases whose replies are awaited, by their servers.
    pub(crate) releasing: BTreeMap<NodeId, Vec<u64>>,
    /// When the gate's own thread checks again.
    pub(crate) releases_at: Option<Instant>,
    /// The outcomes of its callers since they were last taken.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) violation: Option<Violation>,
    /// No fault so far, and each thread acts in time.
    pub(crate) is_calm: bool,
}

impl Client {
    /// A process that replaces the earlier ones of this name.
    pub(crate) fn new(name: usize, before: u64) -> Client {
        Client {
            name,
            is_alive: true,
            channel: format!("luagate:inbox:{name}.{before}"),
            opened: false,
            is_up: true,
            hears: true,
            listens: true,
            read_timeout: Some(READ_TIMEOUT),
            last: before,
            inbox: Inbox::default(),
            keeper: Keeper::default(),
            outbox: Outbox::new(&SCRIPTS),
            dropped: BTreeMap::new(),
            callers: BTreeMap::new(),
            permits: BTreeMap::new(),
            shares_connections: false,
            has_replicas: false,
            connections: BTreeMap::new(),
            closed: BTreeSet::new(),
            silent: BTreeSet::new(),
            flights: Vec::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            slots: None,
            asker: None,
            changes: 0,
            refusals: 0,
            mail: Vec::new(),
            renewing: Vec::new(),
            releasing: BTreeMap::new(),
            releases_at: None,
            outcomes: Vec::new(),
            violation: None,
            is_calm: false,
        }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Its process ends. Calls on their way may still arrive.
    pub(crate) fn die(&mut self) {
        let mut flights = std::mem::take(&mut self.flights);
        flights.retain(|flight| flight.replies.is_none());
        flights.iter_mut().for_each(|flight| flight.thread = None);
        *self = Client {
            is_alive: false,
            hears: false,
            listens: false,
            flights,
            channel: self.channel.clone(),
            ..Client::new(self.name, self.last)
        };
    }

    /// From here on, what the client knows of these permits may be wrong, and so may messages to its waits.
    /// If two events fall into the same millisecond, a message does not show which was first.
    pub(crate) fn excuse(&mut self, now: Moment, is_it: impl Fn(&Identity) -> bool) {
        let permits = self.permits.values_mut();
        let excused = permits.filter(|permit| is_it(&permit.identity));
        excused.for_each(|permit| permit.excused_at = Some(now.instant()));
        for caller in self.callers.values_mut() {
            if let Caller::Waits(waiting, _) = caller {
                waiting.excused_until = Some(now.instant() + Duration::from_millis(1));
            }
        }
    }

    /// When each thread has something to do next.
    pub(crate) fn plans(&self) -> impl Iterator<Item = (Thread, Instant)> {
        let callers = self.callers.iter().filter_map(move |(number, caller)| {
            let thread = Thread::Caller(*number);
            let at = self.awaits(thread).unwrap_or_else(|| caller.wakes_at());
            at.map(|at| (thread, at))
        });
        let renewal = self.awaits(Thread::Renewal).unwrap_or_else(|| self.keeper.next(KeeperTask::Renew(0)));
        let releases = self.releasing.keys().map(|node| {
            let thread = Thread::Releases(*node);
            (thread, self.awaits(thread).flatten())
        });
        let others = [
            (Thread::Renewal, renewal),
            (Thread::Losses, self.keeper.next(KeeperTask::Report)),
            (Thread::Worker, self.releases_at),
        ];
        let others = others.into_iter().chain(releases);
        callers.chain(others.filter_map(|(thread, at)| Some((thread, at?))))
    }

    /// Lets a thread do what is due.
    pub(crate) fn act(&mut self, thread: Thread, now: Moment) {
        if self.act_on_calls(thread, now) {
            return;
        }
        match thread {
            Thread::Caller(number) => self.wake(number, now),
            Thread::Renewal => self.renew(now),
            Thread::Losses => self.report_losses(now),
            Thread::Worker => self.send_releases(now),
            Thread::Releases(_) | Thread::Posted(_) => {}
        }
    }

    /// A message arrives.
    pub(crate) fn read(&mut self, text: &str, now: Moment) {
        let Some(received) = Received::read(text.as_bytes()) else {
            return;
        };
        let mut is_taken = false;
        for number in self.inbox.of(&received.message.id) {
            if let Some(caller) = self.callers.get_mut(&number) {
                is_taken |= caller.put(&self.channel, &received, now);
            }
        }
        if !is_taken && let Some(release) = self.inbox.release_of(&received, now.instant()) {
            self.outbox.add(release);
            self.call_worker(now);
        }
    }

    /// Its subscription was re-established.
    pub(crate) fn subscribe(&mut self, now: Moment) {
        (self.is_up, self.hears, self.listens) = (true, true, true);
        let waiting: Vec<u64> = self.inbox.all().map(|number| **number).collect();
        for number in waiting {
            if let Some(caller) = self.callers.get_mut(&number) {
                caller.call(now);
            }
        }
    }
}
