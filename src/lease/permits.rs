//! The permits of a gate. The gate's own thread renews them, and reports those that are lost.

use super::store::{OnLost, Store};
use crate::engine::mode::Mode;
use crate::engine::servers::{Outcome, Sending, Servers};
use crate::engine::worker::{Job, Next, Worker};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, RefreshError};
use crate::protocol::call::{Call, Packed};
use crate::protocol::exchange::MinReplicas;
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Number, Refreshed, Task};
use crate::protocol::routing::NodeId;
use crate::protocol::semaphore::Refresh;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Instant;

pub(crate) struct Permits {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    worker: Worker,
    /// The replicas that must confirm a new lease before it counts.
    replicas: Option<MinReplicas>,
    store: Arc<Store>,
}

impl Permits {
    pub(crate) fn new(servers: Arc<Servers>, worker: Worker, replicas: Option<MinReplicas>) -> Permits {
        let store = Arc::new(Store::new(&servers.clock, &servers.counts));
        Permits { shared: Arc::new(Shared { servers, worker, replicas, store }) }
    }

    /// The work of the gate's own thread.
    pub(crate) fn job(&self) -> Weak<dyn Job> {
        let job: Arc<dyn Job> = self.shared.clone();
        Arc::downgrade(&job)
    }

    /// The permits themselves.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    /// Whether a grant counts only after replicas have confirmed it.
    pub(crate) fn has_replicas(&self) -> bool {
        self.shared.replicas.is_some()
    }

    /// Renews this permit and reports its loss from now on.
    pub(crate) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let shared = &self.shared;
        let node = shared.servers.node_of(held.identity.keys.meta.as_bytes());
        let (number, at) = shared.store.keep(held, node, on_lost);
        if let Some(at) = at {
            shared.worker.call_at(at);
        }
        number
    }

    /// Returns when this permit is lost.
    ///
    /// # Cancel safety
    /// It can be dropped and called again. A loss in between is not missed.
    pub(crate) async fn lost(&self, number: Number) {
        let watch = self.shared.store.watch(number);
        let mut is_planned = false;
        poll_fn(|cx| {
            let polled = watch.poll(cx);
            if !std::mem::replace(&mut is_planned, true) {
                self.shared.worker.call(); // the end of the lease is planned now
            }
            polled
        })
        .await
    }

    /// Refreshes these permits, with `lease_ms` or each with its own lease. Returns an outcome for each. Waits for the
    /// replies until `until` at most.
    ///
    /// # Cancel safety
    /// A refresh that is dropped counts as one without an answer.
    pub(crate) async fn refresh(
        &self,
        permits: &[(Number, &Identity)],
        lease_ms: Option<u64>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Vec<Result<(), RefreshError>> {
        let lease_of = |identity: &Identity| lease_ms.unwrap_or(identity.lease.lease_ms);
        let refreshes = permits.iter().map(|(number, identity)| (*number, *identity, lease_of(identity)));
        let refreshes: Vec<_> = refreshes.collect();
        let mut refreshing = Refreshing::begin(&self.shared, &refreshes);
        let identities: Vec<_> = refreshes.iter().map(|(_, identity, ms)| (*identity, *ms)).collect();
        let outcomes = self.shared.refresh(&identities, until, mode).await;
        refreshing.end(outcomes)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let Shared { store, worker, .. } = &*self.shared;
        if store.is_own_process() {
            store.lock().is_closed = true;
            worker.call();
        }
    }
}

/// The holder's own refreshes, until they are answered.
struct Refreshing<'a> {
    shared: &'a Shared,
    refreshes: &'a [(Number, &'a Identity, u64)],
    is_over: bool,
}

impl<'a> Refreshing<'a> {
    fn begin(shared: &'a Shared, refreshes: &'a [(Number, &'a Identity, u64)]) -> Refreshing<'a> {
        shared.store.begin_refresh(refreshes);
        Refreshing { shared, refreshes, is_over: false }
    }

    fn end(&mut self, outcomes: Vec<Refreshed>) -> Vec<Result<(), RefreshError>> {
        self.is_over = true;
        let refreshed = self.shared.store.end_refresh(self.refreshes, outcomes);
        self.shared.worker.call(); // the next renewal may now be due earlier
        refreshed
    }
}

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let dropped = || Failure::new(FailureKind::TimedOut, "the caller did not wait for the reply");
            self.end(self.refreshes.iter().map(|_| Err(CallError::Unknown(dropped()))).collect());
        }
    }
}

impl Shared {
    /// Renews these permits, which this server granted.
    async fn renew(self: Arc<Shared>, node: NodeId, due: Vec<Number>) {
        let now = self.servers.clock.moment();
        let (batch, until) = self.store.lock().keeper.batch(&due, now);
        let refreshes: Vec<_> = batch.iter().map(|(_, identity)| (&**identity, identity.lease.lease_ms)).collect();
        let outcomes = self.refresh(&refreshes, until, Mode::Async).await;
        self.store.end_renewal(&batch, outcomes);
        self.store.lock().busy.remove(&node);
        self.worker.call();
    }

    /// Sends refreshes, each with its lease in ms.
    async fn refresh(&self, refreshes: &[(&Identity, u64)], until: Option<Instant>, mode: Mode) -> Vec<Refreshed> {
        let calls = refreshes.iter().map(|(identity, lease_ms)| identity.refresh(*lease_ms));
        let calls: Vec<Refresh> = calls.collect();
        let packed: Vec<Packed> = calls.iter().map(Call::pack).collect();
        let sending = Sending { until, replicas: self.replicas, mode };
        let outcomes = self.servers.send_all(&packed, sending).await;
        let read = |(call, outcome): (&Refresh, Outcome)| {
            let answered = outcome.map_err(|unanswered| unanswered.error)?;
            let (sent, unconfirmed) = (answered.sent, answered.unconfirmed.clone());
            let grant = answered.read(|reply| call.answer(reply)).map_err(|unanswered| unanswered.error)?;
            match (grant, unconfirmed) {
                (Some(_), Some(failure)) => Err(CallError::Failed(failure)),
                (grant, _) => Ok(grant.map(|grant| (grant, sent))),
            }
        };
        calls.iter().zip(outcomes).map(read).collect()
    }
}

impl Job for Shared {
    fn work(self: Arc<Shared>) -> Next {
        let now = self.servers.clock.moment();
        loop {
            let mut state = self.store.lock();
            if state.is_closed {
                return Next::Never;
            }
            if state.keeper.due(Task::Report, now).is_some() {
                self.store.report(state);
                continue;
            }
            let renewals = state.keeper.renewals().filter(|(node, _)| !state.busy.contains(node));
            let mut next = state.keeper.next(Task::Report);
            let mut due = None;
            for (node, at) in renewals {
                if at <= now.instant() { due = Some(node) } else { next = next.into_iter().chain([at]).min() }
            }
            let Some(node) = due else {
                return Next::At(next);
            };
            if let Some(numbers) = state.keeper.due(Task::Renew(node), now) {
                if !numbers.is_empty() {
                    state.busy.insert(node);
                    self.worker.spawn(self.clone().renew(node, numbers));
                }
                self.store.report(state);
            }
        }
    }
}
