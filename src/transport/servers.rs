//! The servers of a gate: one, or the nodes of a cluster, each with a pool of connections.

use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
#[cfg(feature = "cluster")]
use crate::scripts::unexpected;
use crate::sync::lock;
use crate::trace;
#[cfg(feature = "cluster")]
use crate::transport::cluster::Cluster;
use crate::transport::connections::{Answered, Connections, Parked, Turn, Unanswered};
use crate::transport::node::Node;
use crate::transport::probe;
use crate::transport::warning::{self, Warning};
use redis::{Connection, ConnectionLike};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) struct Servers {
    pub(crate) clock: Clock,
    pub(crate) counts: Arc<Counts>,
    pid: u32,
    topology: Topology,
    warnings: Mutex<Vec<Warning>>,
}

pub(crate) enum Topology {
    One(Arc<Connections>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

/// What became of the calls that went to one server in one packet.
pub(crate) struct Packet<T> {
    /// Which calls these are.
    pub(crate) places: Vec<usize>,
    pub(crate) outcome: Result<Answered<Vec<Result<T, CallError>>>, Unanswered>,
}

/// Runs calls of the same script in one packet.
pub(crate) type Calls<'a, P, T> =
    dyn FnMut(&mut Connection, &[P]) -> Result<Vec<Result<T, CallError>>, CallError> + 'a;

impl Servers {
    pub(crate) fn new(clock: Clock, counts: Arc<Counts>, topology: Topology) -> Servers {
        Servers {
            clock,
            counts,
            pid: std::process::id(),
            topology,
            warnings: Mutex::default(),
        }
    }

    /// Whether this process is the one that opened the gate, and not a fork of it.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Nothing of a gate may be touched in a fork: even a lock may be held by a thread that does not exist there.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        match self.is_own_process() {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Forked, "forked process")),
        }
    }

    /// Connects once, so that a wrong address is found out; and asks how the server is set up.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        self.ping().map_err(|error| {
            let nodes = match &self.topology {
                Topology::One(connections) => vec![connections.clone()],
                #[cfg(feature = "cluster")]
                Topology::Cluster(cluster) => cluster.nodes(),
            };
            probe::explain(&nodes, error)
        })
    }

    fn ping(&self) -> Result<(), CallError> {
        match &self.topology {
            Topology::One(connections) => {
                let answered = connections.call(Turn::Last, None, &mut |con| {
                    let pong = redis::cmd("PING").exec(con);
                    pong.map_err(|error| CallError::Failed(error.into()))
                });
                answered.map_err(|unanswered| unanswered.error)?;
                self.look_at(connections, None);
                Ok(())
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.check(),
        }
    }

    /// Asks a server how it is set up, unless that was done.
    fn look_at(&self, server: &Connections, until: Option<Instant>) {
        if let Some(warning) = warning::ask(server, until) {
            trace::warned(&warning);
            lock(&self.warnings).push(warning);
        }
    }

    /// What there is to say of those that were asked how they are set up. Nothing in a forked child.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        match self.is_own_process() {
            true => lock(&self.warnings).clone(),
            false => Vec::new(),
        }
    }

    /// How long a reply is waited for at most.
    pub(crate) fn read_timeout(&self) -> Duration {
        match &self.topology {
            Topology::One(connections) => connections.timeouts().read,
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.read_timeout(),
        }
    }

    /// How many connections of the pools are open now; none in a forked child.
    pub(crate) fn open(&self) -> usize {
        if !self.is_own_process() {
            return 0;
        }
        match &self.topology {
            Topology::One(connections) => connections.open(),
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.open(),
        }
    }

    /// The number of the server that has the key, as far as is known without asking. What takes long with one server
    /// must not hold up what others have.
    pub(crate) fn lane(&self, key: &str) -> usize {
        match &self.topology {
            Topology::One(_) => {
                let _ = key;
                0
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.lane(key),
        }
    }

    /// Attempts a call on the server that has the key; again on another one where it turns out to have moved.
    pub(crate) fn find<T>(
        &self,
        key: &str,
        until: Option<Instant>,
        attempt: &mut dyn FnMut(&Node) -> Result<Answered<T>, Unanswered>,
    ) -> Result<Answered<T>, Unanswered> {
        self.check_process()?;
        match &self.topology {
            Topology::One(connections) => {
                let _ = (key, until);
                attempt(&Node {
                    connections,
                    asking: false,
                })
            }
            #[cfg(feature = "cluster")]
            // It is known which master has a key when it has answered.
            Topology::Cluster(cluster) => cluster.follow(key, until, &mut |node| {
                let answered = attempt(node)?;
                self.look_at(node.connections, until);
                Ok(answered)
            }),
        }
    }

    /// Runs `call`, an idempotent script, where `key` is: see [`Connections::call_along`].
    pub(crate) fn call<T>(
        &self,
        key: &str,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut dyn ConnectionLike) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        self.find(key, until, &mut |node| node.call_along(until, call))
    }

    /// Runs `call` on this very connection, so that it reaches the server after what was sent on it before.
    pub(crate) fn call_on<T>(
        &self,
        wire: Parked,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, Unanswered> {
        match &self.topology {
            Topology::One(connections) => connections.call_on(wire, until, call),
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => match cluster.node(wire.node()) {
                Some(connections) => connections.call_on(wire, until, call),
                None => Err(Failure::new(FailureKind::Disconnected, "its node is gone").into()),
            },
        }
    }

    /// Runs the call of each of `items`, whose key is what `key` says: those of each server in one packet, one server after
    /// the other.
    pub(crate) fn call_each<'a, P: Copy, T>(
        &self,
        turn: Turn,
        items: &[P],
        key: impl Fn(P) -> &'a str,
        until: Option<Instant>,
        calls: &mut Calls<P, T>,
    ) -> Vec<Packet<T>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            groups.entry(self.lane(key(*item))).or_default().push(place);
        }
        let packet = |places: Vec<usize>| {
            let group = places.iter().filter_map(|place| items.get(*place).copied());
            let group: Vec<P> = group.collect();
            let outcome = self.call_together(turn, &group, &key, until, calls);
            Packet { places, outcome }
        };
        groups.into_values().map(packet).collect()
    }

    /// Those that are on one server.
    fn call_together<'a, P: Copy, T>(
        &self,
        turn: Turn,
        group: &[P],
        key: &impl Fn(P) -> &'a str,
        until: Option<Instant>,
        calls: &mut Calls<P, T>,
    ) -> Result<Answered<Vec<Result<T, CallError>>>, Unanswered> {
        let first = group.first().map_or("", |item| key(*item));
        let together = &mut |node: &Node| node.call(turn, until, &mut |con| calls(con, group));
        let answered = self.find(first, until, together)?;
        #[cfg(feature = "cluster")]
        let answered = self.follow_each(turn, group, key, until, calls, answered);
        Ok(answered)
    }

    /// Calls by itself whatever has moved.
    #[cfg(feature = "cluster")]
    fn follow_each<'a, P: Copy, T>(
        &self,
        turn: Turn,
        group: &[P],
        key: &impl Fn(P) -> &'a str,
        until: Option<Instant>,
        calls: &mut Calls<P, T>,
        mut answered: Answered<Vec<Result<T, CallError>>>,
    ) -> Answered<Vec<Result<T, CallError>>> {
        for (reply, item) in answered.reply.iter_mut().zip(group) {
            if !reply.as_ref().is_err_and(CallError::has_moved) {
                continue;
            }
            let alone = self.find(key(*item), until, &mut |node| {
                node.call(turn, until, &mut |con| {
                    let answer = calls(con, &[*item])?.pop();
                    answer.unwrap_or_else(|| Err(unexpected(&"no answer")))
                })
            });
            *reply = alone
                .map(|answered| answered.reply)
                .map_err(|unanswered| unanswered.error);
        }
        answered
    }
}
