//! The servers of a gate: one, or the nodes of a cluster. Every call of a script passes through this module.

#[cfg(test)]
mod tests;

use super::address::Address;
use super::eviction::{self, Warning};
use super::pool::{Pool, PoolOptions, Response, Sending};
use super::route::{Answered, Outcome, Route, Unanswered};
use super::topology::Topology;
use super::{NodeId, PendingConnection, Timeouts, probe};
use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::call::{Call, Packed};
use crate::protocol::exchange::{Exchange, Packet, Reply, error_in, is_no_script, missing};
use crate::protocol::lease::Moment;
use crate::protocol::replicas::MinReplicas;
use crate::protocol::reply::error_of;
use crate::sync::lock;
use crate::trace;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) struct Servers {
    pub(crate) clock: Clock,
    pub(crate) counts: Arc<Counts>,
    pid: u32,
    topology: Topology,
    timeouts: Timeouts,
    warnings: Mutex<Vec<Warning>>,
}

/// Makes the call for the server that will receive it.
pub(crate) type Make<'a> = dyn FnMut(&Arc<Pool>) -> Result<Cow<'a, Packed>, Failure> + 'a;

impl Servers {
    /// The servers at this address, each with a pool of at most `most` connections. Does not connect yet.
    pub(crate) fn open(address: Address, clock: Clock, timeouts: Timeouts, most: usize) -> Result<Servers, CallError> {
        let counts = Arc::new(Counts::default());
        let options = PoolOptions { clock: clock.clone(), counts: counts.clone(), timeouts, most };
        let topology = Topology::new(address, options)?;
        Ok(Servers { clock, counts, pid: std::process::id(), topology, timeouts, warnings: Mutex::default() })
    }

    /// Whether this process opened the gate. `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Fails in a forked child, which must not use a gate of its parent. A lock in it may be held by a thread that does
    /// not exist in the child.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        match self.is_own_process() {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Forked, "the gate cannot be used in a forked process")),
        }
    }

    /// Connects once, so that a wrong address is reported immediately, and reads the server's settings.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        let Err(failure) = self.ping() else {
            return Ok(());
        };
        let error = CallError::Failed(failure);
        if !probe::may_explain(&error) {
            return Err(error);
        }
        let time = probe::time(self.timeouts.connect);
        let addresses = self.topology.nodes().into_iter().flat_map(|node| node.addresses(time));
        Err(probe::explain(&addresses.collect::<Vec<_>>(), time, error))
    }

    fn ping(&self) -> Result<(), Failure> {
        match &self.topology {
            Topology::One(pool) => {
                pool.command(&redis::cmd("PING"), Sending::default())??;
                self.look_at(pool, None);
                Ok(())
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.check(),
        }
    }

    /// Reads the settings of a server, unless that was done.
    fn look_at(&self, server: &Pool, until: Option<Instant>) {
        if let Some(warning) = eviction::ask(server, until) {
            trace::warned(&warning);
            lock(&self.warnings).push(warning);
        }
    }

    /// The warnings about the servers' settings. Empty in a forked child.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        match self.is_own_process() {
            true => lock(&self.warnings).clone(),
            false => Vec::new(),
        }
    }

    /// The maximum time to wait for a reply.
    pub(crate) fn read_timeout(&self) -> Duration {
        self.timeouts.read
    }

    /// The number of open connections of the pools; 0 in a forked child.
    pub(crate) fn open_connections(&self) -> usize {
        match self.is_own_process() {
            true => self.topology.nodes().iter().map(|pool| pool.open()).sum(),
            false => 0,
        }
    }

    /// The servers that store keys.
    pub(crate) fn masters(&self) -> Result<Vec<Arc<Pool>>, Failure> {
        self.check_process()?;
        #[cfg(feature = "cluster")]
        if let Topology::Cluster(cluster) = &self.topology {
            cluster.check()?;
        }
        Ok(self.topology.nodes().into_iter().filter(|pool| !pool.is_retired()).collect())
    }

    /// The server that has the key, as far as it is known without asking. Used to keep the work for each server
    /// separate, so that a slow server does not delay calls to others.
    pub(crate) fn node_of(&self, key: &str) -> NodeId {
        self.topology.node_of(key.as_bytes())
    }

    /// Sends a call to the server that has its key.
    pub(crate) fn send(&self, call: &Packed, sending: Sending) -> Outcome {
        self.send_as(call.key(), sending, &mut |_| Ok(Cow::Borrowed(call)))
    }

    /// Sends a call and reads its answer. Also returns when it was sent.
    pub(crate) fn ask<C: Call>(&self, call: &C, sending: Sending) -> Result<(C::Answer, Moment), Unanswered> {
        let answered = self.send(&call.pack(), sending)?;
        let sent = answered.sent;
        Ok((answered.read(|reply| call.answer(reply))?, sent))
    }

    /// Sends the call that `make` returns for the server that has the key.
    pub(crate) fn send_as(&self, key: &[u8], sending: Sending, make: &mut Make) -> Outcome {
        self.check_process()?;
        self.follow(self.route(key, sending.until), sending, make)
    }

    fn route<'a>(&'a self, key: &'a [u8], until: Option<Instant>) -> Route<'a> {
        Route::new(&self.topology, &self.clock, self.timeouts.read, key, until)
    }

    /// Sends calls. Those for the same server share a packet; the servers follow one after the other. Each call has its
    /// own outcome.
    pub(crate) fn send_all(&self, calls: &[Packed], sending: Sending) -> Vec<Outcome> {
        if let Err(failure) = self.check_process() {
            return calls.iter().map(|_| Err(failure.clone().into())).collect();
        }
        if let [call] = calls {
            return vec![self.send(call, sending)];
        }
        let mut groups: BTreeMap<NodeId, (Vec<usize>, Vec<&Packed>)> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            let (indexes, together) = groups.entry(self.topology.node_of(call.key())).or_default();
            indexes.push(index);
            together.push(call);
        }
        let outcomes = groups
            .into_values()
            .flat_map(|(indexes, together)| indexes.into_iter().zip(self.send_together(&together, sending)));
        let mut outcomes: Vec<(usize, Outcome)> = outcomes.collect();
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Sends calls in one packet that are probably for the same server. A call that must be repeated is sent
    /// separately.
    fn send_together(&self, calls: &[&Packed], sending: Sending) -> Vec<Outcome> {
        let Some(first) = calls.first() else {
            return Vec::new();
        };
        let pool = match self.route(first.key(), sending.until).pool() {
            Ok(pool) => pool,
            Err(Unanswered { error, .. }) => {
                return calls.iter().map(|_| Err(error.clone().into())).collect();
            }
        };
        let mut send = |packet: &Packet| pool.send(packet, sending);
        let outcomes = run(&pool, Exchange::new(calls), sending, &mut send);
        let outcomes = calls.iter().zip(outcomes).map(|(call, outcome)| {
            let mut route = self.route(call.key(), sending.until);
            match route.next(&pool, outcome) {
                Some(outcome) => outcome,
                None => self.follow(route, sending, &mut |_| Ok(Cow::Borrowed(call))),
            }
        });
        outcomes.collect()
    }

    /// Sends a call, and repeats it until it has an outcome.
    fn follow(&self, mut route: Route, sending: Sending, make: &mut Make) -> Outcome {
        loop {
            let pool = route.pool()?;
            let call = make(&pool).map_err(|failure| route.failed(failure))?;
            let mut send = |packet: &Packet| pool.send(packet, sending);
            let outcome = exchange_one(&pool, &call, route.is_asking(), sending, &mut send);
            if let Some(outcome) = route.next(&pool, outcome) {
                if outcome.is_ok() {
                    self.look_at(&pool, sending.until); // the answer shows that this server is a master
                }
                return outcome;
            }
        }
    }

    /// Sends a call on the connection of an unanswered call, so that it reaches the server after that call.
    pub(crate) fn send_behind(&self, pending: &PendingConnection, call: &Packed, until: Option<Instant>) -> Outcome {
        let sending = Sending { until, ..Sending::default() };
        let Some(pool) = self.topology.pool(pending.node()) else {
            return self.send(call, sending);
        };
        let mut send = |packet: &Packet| match pool.send_behind(pending, packet, until) {
            Some(response) => response,
            None => pool.send(packet, sending),
        };
        match exchange_one(&pool, call, false, sending, &mut send) {
            Err(Unanswered { error: CallError::Failed(failure), .. }) if failure.kind() == FailureKind::TimedOut => {
                Err(Unanswered { error: CallError::Unknown(failure), connection: Some(pending.clone()) })
            }
            outcome => outcome,
        }
    }
}

/// Sends a packet to a server.
type Send<'a> = dyn FnMut(&Packet) -> Result<Response, Failure> + 'a;

/// Sends one call to a server, and again if the server does not know the script. Usually this takes one packet.
fn exchange_one(pool: &Arc<Pool>, call: &Packed, asking: bool, sending: Sending, send: &mut Send) -> Outcome {
    let calls = [call];
    let exchange = match asking || sending.replicas.is_some() {
        true => Exchange::new(&calls).asking(asking),
        false => {
            let mut response = send(&Packet::of(call))?;
            let reply = response.replies.pop().unwrap_or_else(missing);
            match error_in(reply) {
                Err(error) if is_no_script(&error) => Exchange::of_unknown(&calls),
                reply => {
                    let from = (pool, response.sent, response.generation);
                    let reply = reply.map_err(|error| call.explain(error));
                    return outcome(from, reply, None, &response.pending);
                }
            }
        }
    };
    let outcomes = run(pool, exchange, sending, send).pop();
    outcomes.unwrap_or_else(|| Err(not_sent().into()))
}

/// Sends calls to one server in one packet, and again if the server does not know a script. Each has its own outcome.
fn run(pool: &Arc<Pool>, mut exchange: Exchange, sending: Sending, send: &mut Send) -> Vec<Outcome> {
    exchange.last = sending.replicas.as_ref().map(MinReplicas::command);
    let (mut first, mut pending, mut unsent) = (None, None, None);
    while let Some(packet) = exchange.packet() {
        match send(&packet) {
            Ok(response) => {
                first.get_or_insert((response.sent, response.generation));
                pending = response.pending;
                exchange.receive(response.replies);
            }
            Err(failure) => {
                unsent = Some(failure);
                break;
            }
        }
    }
    let (sent, generation) = first.unwrap_or_else(|| (pool.options.clock.moment(), 0));
    let replicas = sending.replicas.as_ref();
    let last = exchange.last_reply.take();
    let unconfirmed = replicas.and_then(|replicas| replicas.check(last).err());
    let outcomes = exchange.outcomes().into_iter().map(|reply| match reply {
        None => Err(unsent.clone().unwrap_or_else(not_sent).into()),
        Some(reply) => outcome((pool, sent, generation), reply, unconfirmed.clone(), &pending),
    });
    outcomes.collect()
}

fn not_sent() -> Failure {
    Failure::new(FailureKind::Other, "the call was not sent")
}

/// The outcome of a reply. The call was sent to this server at `sent`, on a connection of this age.
fn outcome(
    (pool, sent, generation): (&Arc<Pool>, Moment, u64),
    reply: Reply,
    unconfirmed: Option<Failure>,
    pending: &Option<PendingConnection>,
) -> Outcome {
    match reply {
        Ok(reply) => Ok(Answered { reply, sent, repeated: false, unconfirmed, pool: pool.clone(), generation }),
        Err(error) => Err(unanswered(pool, generation, error_of(error), pending)),
    }
}

fn unanswered(pool: &Pool, generation: u64, error: CallError, pending: &Option<PendingConnection>) -> Unanswered {
    let is_late = matches!(&error, CallError::Unknown(failure) if failure.kind() == FailureKind::TimedOut);
    let is_broken = match &error {
        CallError::Failed(failure) => failure.is_broken(),
        CallError::Unknown(_) => !is_late,
        CallError::Invalid(_) => false,
    };
    if is_broken {
        pool.outdate(generation);
    }
    let connection = if is_late { pending.clone() } else { None };
    Unanswered { error, connection }
}
