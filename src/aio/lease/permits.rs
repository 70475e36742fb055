//! The permits of a gate. The gate's task renews them and reports losses.

use crate::aio::transport::Sending;
use crate::aio::transport::servers::{Outcome, Servers};
use crate::clock::{Alarm, InProgress};
use crate::error::RefreshError;
use crate::lease::callbacks::Callbacks;
use crate::lease::store::{self, Driver, OnLost, Refreshed, Store};
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Due, Number, Task};
use crate::protocol::lease::Moment;
use crate::protocol::replicas::MinReplicas;
use crate::sync::lock;
use crate::transport::NodeId;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;

pub(in crate::aio) struct Permits {
    pub(in crate::aio) servers: Arc<Servers>,
    /// The replicas that must confirm a new lease before it counts.
    pub(in crate::aio) replicas: Option<MinReplicas>,
    store: Arc<Store<Renewal>>,
    work: Alarm,
    /// The renewals in progress.
    renewals: InProgress,
}

/// The state of the task that works on the permits.
#[derive(Default)]
pub(in crate::aio) struct Renewal {
    /// The time until which the task sleeps, or slept last; `None`: until it is woken. If permits come and go, the task
    /// is woken once for many of them: it may find less to do than it had planned for.
    sleeps_until: Option<Instant>,
    closed: bool,
    /// Those that wait for the loss of a permit.
    losses: HashMap<Number, Arc<Notify>>,
}

impl Driver for Renewal {
    fn lost(&mut self, number: Number) {
        if let Some(notify) = self.losses.get(&number) {
            notify.notify_waiters();
        }
    }

    fn removed(&mut self, number: Number) {
        if !self.losses.is_empty() {
            self.losses.remove(&number);
        }
    }
}

/// Work that is due.
enum Work {
    Renew(NodeId, Vec<Number>),
    Closed,
}

impl Permits {
    pub(in crate::aio) fn new(servers: Arc<Servers>, replicas: Option<MinReplicas>) -> Permits {
        let callbacks = Mutex::new(Callbacks::new(&servers.clock));
        let run = move |on_lost, lost| lock(&callbacks).run(on_lost, lost);
        let store = Store::new(&servers.clock, &servers.counts, Renewal::default(), run);
        let (work, renewals) = (Alarm::new(&servers.clock), InProgress::new(&servers.clock));
        Permits { work, renewals, servers, replicas, store: Arc::new(store) }
    }

    /// The permits themselves.
    pub(in crate::aio) fn store(&self) -> &Arc<Store<Renewal>> {
        &self.store
    }

    /// Renews this permit and reports its loss from now on.
    pub(in crate::aio) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let node = self.servers.node_of(&held.identity.keys.meta);
        let (number, state) = self.store.keep(held, node, on_lost);
        let next = [Task::Renew(node), Task::Report].into_iter().filter_map(|task| state.keeper.next(task)).min();
        let sleeps_until = state.driver.sleeps_until;
        drop(state);
        if next.is_some_and(|next| sleeps_until.is_none_or(|until| next < until)) {
            self.work.wake();
        }
        number
    }

    /// Returns when this permit is lost.
    pub(in crate::aio) async fn lost(&self, number: Number) {
        let notify = {
            let mut state = self.store.lock();
            state.keeper.report(number);
            state.driver.losses.entry(number).or_default().clone()
        };
        self.work.wake(); // the end of the lease is planned now
        loop {
            let notified = notify.notified();
            if self.store.remaining(number).is_some_and(|left| left.is_zero()) {
                return;
            }
            notified.await;
        }
    }

    /// Refreshes these permits, with `lease_ms` or each with its own lease. Returns an outcome for each. Waits for the
    /// replies until `until` at most.
    ///
    /// # Cancel safety
    /// A refresh that is dropped counts as one without an answer.
    pub(in crate::aio) async fn refresh(
        &self,
        permits: &[(Number, &Identity)],
        lease_ms: Option<u64>,
        until: Option<Instant>,
    ) -> Vec<Result<(), RefreshError>> {
        let lease_of = |identity: &Identity| lease_ms.unwrap_or(identity.lease.lease_ms);
        let refreshes = permits.iter().map(|(number, identity)| (*number, *identity, lease_of(identity)));
        let refreshes: Vec<_> = refreshes.collect();
        let mut begun = Refreshing::begin(self, &refreshes);
        let identities: Vec<_> = refreshes.iter().map(|(_, identity, ms)| (*identity, *ms)).collect();
        let outcomes = self.send(&identities, until).await;
        let refreshed = begun.end(outcomes);
        self.work.wake(); // the next renewal may now be due earlier
        refreshed
    }

    /// The loop of the task: renews permits and reports losses until the gate is dropped. A server that does not answer
    /// delays no renewals on others.
    pub(in crate::aio) async fn work(&self) {
        let mut renewing = FuturesUnordered::new();
        let mut busy: BTreeSet<NodeId> = BTreeSet::new();
        loop {
            let done = {
                let due = pin!(self.work.until(|| self.look(&busy)));
                match renewing.is_empty() {
                    true => Either::Left(due.await),
                    false => match select(due, renewing.next()).await {
                        Either::Left((work, _)) => Either::Left(work),
                        Either::Right((node, _)) => Either::Right(node),
                    },
                }
            };
            match done {
                Either::Left(Work::Closed) => return,
                Either::Left(Work::Renew(node, due)) => {
                    busy.insert(node);
                    self.renewals.begins();
                    renewing.push(self.renew(node, due));
                }
                Either::Right(node) => {
                    node.map(|node| busy.remove(&node));
                    if renewing.is_empty() {
                        self.work.wake(); // first: the next renewals are not planned yet
                        self.renewals.ends();
                    }
                }
            }
        }
    }

    /// Reports losses, and returns renewals that are due. `busy`: servers whose renewals are in progress.
    fn look(&self, busy: &BTreeSet<NodeId>) -> Result<Work, Option<Instant>> {
        let now = self.servers.clock.moment();
        loop {
            let mut state = self.store.lock();
            if state.driver.closed {
                return Ok(Work::Closed);
            }
            if let Due::Now(_) = state.keeper.due(Task::Report, now) {
                self.store.report(state);
                continue;
            }
            let nodes: Vec<_> = state.keeper.renewals().filter(|(node, _)| !busy.contains(node)).collect();
            for (node, _) in nodes.iter().filter(|(_, at)| *at <= now.instant()) {
                if let Due::Now(due) = state.keeper.due(Task::Renew(*node), now) {
                    self.store.report(state);
                    return Ok(Work::Renew(*node, due));
                }
            }
            let renewal = nodes.into_iter().map(|(_, at)| at);
            let next = renewal.chain(state.keeper.next(Task::Report)).min();
            state.driver.sleeps_until = next;
            return Err(next);
        }
    }

    async fn renew(&self, node: NodeId, due: Vec<Number>) -> NodeId {
        if due.is_empty() {
            return node;
        }
        let now = self.servers.clock.moment();
        let (batch, until) = self.store.lock().keeper.batch(&due, now);
        let refreshes: Vec<_> = batch.iter().map(|(_, identity)| (&**identity, identity.lease.lease_ms)).collect();
        let outcomes = self.send(&refreshes, until).await;
        self.store.end_renewal(&batch, outcomes);
        node
    }

    /// Sends refreshes, each with its lease in ms.
    async fn send(&self, refreshes: &[(&Identity, u64)], until: Option<Instant>) -> Vec<Refreshed> {
        let before = self.servers.clock.moment();
        let calls: Vec<_> = refreshes.iter().map(|(identity, lease_ms)| identity.refresh(*lease_ms)).collect();
        let packed: Vec<Packed> = calls.iter().map(|call| call.pack()).collect();
        let sending = Sending { until, replicas: self.replicas };
        let outcomes = self.servers.send_all(&packed, sending).await;
        let read = |(call, outcome): (_, Outcome)| {
            let answered = match outcome {
                Ok(answered) => answered,
                Err(unanswered) => return (Err(unanswered.error), before),
            };
            let (sent, unconfirmed) = (answered.sent, answered.unconfirmed.clone());
            let answer = answered.read(|reply| Call::answer(call, reply));
            (store::confirmed(answer.map_err(|unanswered| unanswered.error), unconfirmed), sent)
        };
        calls.iter().zip(outcomes).map(read).collect()
    }

    /// Ends the loop of the task.
    pub(in crate::aio) fn close(&self) {
        self.store.lock().driver.closed = true;
        self.work.wake();
    }
}

/// The holder's own refreshes in progress. If this is dropped before their end, they count as not answered.
struct Refreshing<'a> {
    permits: &'a Permits,
    refreshes: &'a [(Number, &'a Identity, u64)],
    begun: Moment,
    is_over: bool,
}

impl<'a> Refreshing<'a> {
    fn begin(permits: &'a Permits, refreshes: &'a [(Number, &'a Identity, u64)]) -> Refreshing<'a> {
        let begun = permits.servers.clock.moment();
        permits.store.begin_refresh(refreshes);
        Refreshing { permits, refreshes, begun, is_over: false }
    }

    fn end(&mut self, outcomes: Vec<Refreshed>) -> Vec<Result<(), RefreshError>> {
        self.is_over = true;
        self.permits.store.end_refresh(self.refreshes, outcomes)
    }
}

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.permits.store.is_own_process() {
            let outcomes = self.refreshes.iter().map(|_| (Err(store::dropped()), self.begun)).collect();
            self.end(outcomes);
            self.permits.work.wake();
        }
    }
}
