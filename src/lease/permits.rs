//! The permits of a gate, and the callbacks for their loss. The gate's own thread renews them, and reports
//! those that are lost.

use crate::engine::mode::Mode;
use crate::engine::servers::{CallOutcome, Sending, Servers};
use crate::engine::worker::{Job, NextWork};
use crate::error::{Lost, PermitError};
use crate::foreign::Foreign;
use crate::lua::SCRIPTS;
use crate::sync::lock;
use crate::trace;
use luagate_core::call::{Call, Packed};
use luagate_core::exchange::MinReplicas;
use luagate_core::failure::{CallError, Failure};
use luagate_core::held::{HeldPermit, Identity};
use luagate_core::keeper::{Keeper, KeeperTask, Loss, Number, Refreshed};
use luagate_core::kind::FailureKind;
use luagate_core::lease::Moment;
use luagate_core::routing::NodeId;
use luagate_core::semaphore::Refresh;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often the connections are looked at on which leases are renewed. Nobody reads a connection on which no
/// call waits.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// Called once when a permit turns out to be lost.
pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

/// The permits of a gate.
pub(crate) struct Permits {
    servers: Arc<Servers>,
    /// The replicas that must confirm a new lease before it counts.
    pub(crate) replicas: Option<MinReplicas>,
    table: Mutex<PermitTable>,
}

#[derive(Default)]
struct PermitTable {
    keeper: Keeper,
    on_lost: HashMap<Number, OnLost>,
    /// The tasks that wait for the loss of a permit, by the numbers of their futures.
    waiting: BTreeMap<(Number, u64), Waker>,
    last_future: u64,
    /// The servers on which renewals are in progress.
    busy: BTreeSet<NodeId>,
    /// The servers with planned renewals, each with the number of its connection. `None`: it has ended.
    connections: BTreeMap<NodeId, Option<u64>>,
    /// When to look at these connections. `None`: now.
    looks_at: Option<Instant>,
    is_closed: bool,
}

impl Permits {
    pub(crate) fn new(servers: Arc<Servers>, replicas: Option<MinReplicas>) -> Arc<Permits> {
        let permits = Arc::new(Permits { servers, replicas, table: Mutex::default() });
        permits.servers.worker.add_job(Arc::<Permits>::downgrade(&permits));
        permits
    }

    pub(crate) fn foreign(&self) -> &Foreign {
        &self.servers.foreign
    }

    /// The gate is dropped: the permits are not watched any more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Renews this permit and reports its loss from now on.
    pub(crate) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let servers = &self.servers;
        let node = servers.node_of(held.identity.keys.meta.as_bytes());
        let now = servers.clock.moment();
        let mut table = self.lock();
        let number = table.keeper.keep(held, node, on_lost.is_some(), now);
        if let Some(on_lost) = on_lost {
            table.on_lost.insert(number, on_lost.clone());
        }
        let due = [KeeperTask::Renew(node), KeeperTask::Report]
            .into_iter()
            .filter_map(|task| table.keeper.next(task))
            .min();
        drop(table);
        if let Some(at) = due {
            servers.worker.call_at(at.min(now.instant() + LOOKS_EVERY));
        }
        number
    }

    /// Returns when this permit is lost.
    ///
    /// # Cancel safety
    /// It can be dropped and called again. A loss in between is not missed.
    pub(crate) async fn lost(&self, number: Number) {
        let watch = {
            let mut table = self.lock();
            table.last_future += 1;
            Watch { permits: self, number, future: table.last_future }
        };
        let mut is_planned = false;
        poll_fn(|cx| {
            let polled = watch.poll(cx);
            if !std::mem::replace(&mut is_planned, true) {
                self.servers.worker.call(); // the end of the lease is planned now
            }
            polled
        })
        .await
    }

    /// Refreshes these permits, with `lease_ms` or each with its own lease. Returns an outcome for each.
    /// Waits for the replies until `until` at most.
    ///
    /// # Cancel safety
    /// A refresh that is dropped counts as one without an answer.
    pub(crate) async fn refresh(
        &self,
        permits: &[(Number, &Identity)],
        lease_ms: Option<u64>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Vec<Result<(), PermitError>> {
        let lease_of = |identity: &Identity| lease_ms.unwrap_or(identity.lease.lease_ms);
        let refreshes = permits.iter().map(|(number, identity)| (*number, *identity, lease_of(identity)));
        let mut refreshing = Refreshing { permits: self, refreshes: refreshes.collect(), is_over: false };
        let now = self.servers.clock.moment();
        self.with(|keeper| {
            refreshing
                .refreshes
                .iter()
                .for_each(|(number, _, lease_ms)| keeper.refreshing(*number, *lease_ms, now));
        });
        let refreshes =
            refreshing.refreshes.iter().map(|(_, identity, lease_ms)| identity.refresh(*lease_ms));
        let mut sending = Sending { until, ..self.servers.patiently(mode) };
        sending.repeats_until = sending.repeats_until.min(until.or(sending.repeats_until));
        let outcomes = self.send(refreshes.collect(), sending).await;
        refreshing.end(outcomes)
    }
}

/// The holder's own refreshes, each with its lease in ms, until they are answered.
struct Refreshing<'a> {
    permits: &'a Permits,
    refreshes: Vec<(Number, &'a Identity, u64)>,
    is_over: bool,
}

impl Refreshing<'_> {
    fn end(&mut self, outcomes: Vec<Refreshed>) -> Vec<Result<(), PermitError>> {
        self.is_over = true;
        let now = self.permits.servers.clock.moment();
        let refreshed = self.permits.with(|keeper| {
            let answered = self.refreshes.iter().zip(outcomes);
            let refreshed = answered.map(|((number, identity, lease), outcome)| {
                let refreshed = keeper.refreshed(*number, *lease, outcome, now);
                refreshed.map_err(|error| PermitError::of(error, identity))
            });
            refreshed.collect()
        });
        self.permits.servers.worker.call(); // the next renewal may now be due earlier
        refreshed
    }
}

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.permits.servers.is_own_process() {
            let dropped = || Failure::new(FailureKind::TimedOut, "the caller did not wait for the reply");
            self.end(self.refreshes.iter().map(|_| Err(CallError::Unknown(dropped()))).collect());
        }
    }
}

impl Permits {
    fn lock(&self) -> MutexGuard<'_, PermitTable> {
        lock(&self.table)
    }

    /// A permit is dropped at `now`. If there is something to release, returns its longest lease, and keeps
    /// the permit until its release is answered.
    pub(crate) fn drop_permit(&self, number: Number, now: Moment) -> Option<Option<Duration>> {
        let mut table = self.lock();
        if !table.keeper.begin_release(number, now) {
            self.remove_from(table, number);
            return None;
        }
        Some(table.keeper.held(number).and_then(|held| held.longest()))
    }

    /// A call that releases the permit is about to be sent. `false`: there is nothing to release.
    pub(crate) fn begin_release(&self, number: Number) -> bool {
        let now = self.servers.clock.moment();
        self.with(|keeper| keeper.begin_release(number, now))
    }

    /// The posted release of a permit is answered, or repeated by others.
    pub(crate) fn remove(&self, number: Number) {
        self.remove_from(self.lock(), number);
    }

    fn remove_from(&self, mut table: MutexGuard<PermitTable>, number: Number) {
        table.keeper.remove(number);
        let on_lost = if table.on_lost.is_empty() { None } else { table.on_lost.remove(&number) };
        self.report(table);
        if let Some(on_lost) = on_lost {
            self.foreign().call_back(|| drop(on_lost)); // what it captures is the user's code
        }
    }

    /// The posted release of a permit is answered. `found`: there was something to release.
    pub(crate) fn released(&self, number: Number, found: bool) {
        let mut table = self.lock();
        table.keeper.released(number, found, false);
        self.remove_from(table, number);
    }

    /// The time that is left of the lease: zero if the permit is lost, `None` if it is permanent.
    pub(crate) fn remaining(&self, number: Number) -> Option<Duration> {
        let now = self.servers.clock.moment();
        self.with(|keeper| keeper.remaining(number, now))
    }

    /// Runs `work` on the permits, then reports those that turned out to be lost.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Keeper) -> T) -> T {
        let mut table = self.lock();
        let result = work(&mut table.keeper);
        self.report(table);
        result
    }

    /// Takes the outcomes of the renewals of a batch.
    fn end_renewal(&self, batch: &[(Number, Arc<Identity>)], outcomes: Vec<Refreshed>) {
        let now = self.servers.clock.moment();
        let mut table = self.lock();
        let outcomes = batch.iter().zip(outcomes);
        let outcomes = outcomes.map(|((number, identity), outcome)| {
            let error = outcome.as_ref().err().cloned();
            let is_renewed = table.keeper.renewed(*number, outcome, now).is_ok();
            (identity, is_renewed, error)
        });
        let outcomes: Vec<_> = outcomes.collect();
        self.report(table);
        let mut failed = (0, None);
        for (identity, is_renewed, error) in outcomes {
            if is_renewed {
                trace::renewed(self.foreign(), &identity.keys, identity.fence);
                self.servers.counts.renewed.add_one();
            } else if let Some(error) = error {
                failed.0 += 1;
                failed.1.get_or_insert((identity, error));
            }
        }
        if let (count, Some((identity, error))) = failed {
            trace::unrenewed(self.foreign(), &identity.keys, count, error.into());
        }
    }

    /// Reports the permits that turned out to be lost.
    fn report(&self, mut table: MutexGuard<PermitTable>) {
        let losses = table.keeper.take_losses();
        if losses.is_empty() {
            return;
        }
        let futures =
            losses.iter().flat_map(|Loss { number, .. }| table.waiting.range((*number, 0)..(*number + 1, 0)));
        let futures: Vec<_> = futures.map(|(future, _)| *future).collect();
        let waiting: Vec<Waker> = futures.iter().filter_map(|future| table.waiting.remove(future)).collect();
        let on_lost = |loss: &Loss| table.on_lost.get(&loss.number).cloned();
        let losses: Vec<_> = losses.into_iter().map(|loss| (on_lost(&loss), loss)).collect();
        drop(table);
        waiting.into_iter().for_each(|waker| self.foreign().wake(waker));
        for (on_lost, loss) in losses {
            if loss.is_new {
                trace::lost(self.foreign(), &loss.identity.keys, loss.identity.fence);
                self.servers.counts.lost.add_one();
            }
            if let (true, Some(on_lost)) = (loss.is_reported, on_lost) {
                self.call_back(on_lost, Lost::of(&loss.identity));
            }
        }
    }

    /// Calls the user's function.
    fn call_back(&self, on_lost: OnLost, lost: Lost) {
        let busy = self.servers.clock.busy(); // a test that moves the clock waits for its end
        let foreign = self.foreign();
        let called = on_lost.clone();
        foreign.call_back(move || {
            let _busy = busy;
            called(&lost);
        });
        // After the call, since a panic while another one unwinds ends the process.
        foreign.call_back(|| drop(on_lost));
    }

    /// Renews these permits, which this server granted.
    async fn renew(self: Arc<Permits>, node: NodeId, due: Vec<Number>) {
        let now = self.servers.clock.moment();
        let (batch, until) = self.lock().keeper.batch(&due, now);
        let refreshes = batch.iter().map(|(_, identity)| identity.refresh(identity.lease.lease_ms));
        let outcomes = self.send(refreshes.collect(), Sending { until, ..Sending::of(Mode::Worker) }).await;
        self.end_renewal(&batch, outcomes);
        let mut table = self.lock();
        table.busy.remove(&node);
        table.looks_at = None; // the renewal may have made a new connection
        drop(table);
        self.servers.worker.call();
    }

    /// Looks at the connections on which leases are renewed. If one was replaced, the server may have lost
    /// its data, so all of its permits are renewed now. If one has ended, the first of them is: this connects
    /// again. Returns when to look again.
    fn look(&self, now: Moment) -> Option<Instant> {
        let (nodes, former) = {
            let mut table = self.lock();
            if let Some(at) = table.looks_at.filter(|at| *at > now.instant()) {
                return Some(at);
            }
            let nodes: Vec<NodeId> = table.keeper.renewals().map(|(node, _)| node).collect();
            table.looks_at = (!nodes.is_empty()).then(|| now.instant() + LOOKS_EVERY);
            (nodes, std::mem::take(&mut table.connections))
        };
        // Without the lock, since a reply may be here that needs it.
        let connections = nodes.into_iter().map(|node| (node, self.servers.look(node, self.replicas)));
        let connections: BTreeMap<_, _> = connections.collect();
        let mut table = self.lock();
        for (node, number) in &connections {
            if former.get(node).is_some_and(|former| former != number) {
                table.keeper.hasten(*node, if number.is_some() { usize::MAX } else { 1 }, now);
            }
        }
        table.connections = connections;
        table.looks_at
    }

    async fn send(&self, refreshes: Vec<Refresh<'_>>, sending: Sending) -> Vec<Refreshed> {
        let packed: Vec<Packed> = refreshes.iter().map(|refresh| refresh.pack(&SCRIPTS)).collect();
        let sending = Sending { replicas: self.replicas, ..sending };
        let outcomes = self.servers.send_all(&packed, sending).await;
        let read = |(refresh, outcome): (&Refresh, CallOutcome)| {
            let answered = outcome.map_err(|unanswered| unanswered.error)?;
            let (sent, unconfirmed) = (answered.sent.at, answered.unconfirmed.clone());
            let grant =
                answered.read(|reply| refresh.answer(reply)).map_err(|unanswered| unanswered.error)?;
            match (grant, unconfirmed) {
                (Some(_), Some(failure)) => Err(CallError::Failed(failure)),
                (grant, _) => Ok(grant.map(|grant| (grant, sent))),
            }
        };
        refreshes.iter().zip(outcomes).map(read).collect()
    }
}

impl Job for Permits {
    fn work(self: Arc<Permits>) -> NextWork {
        let now = self.servers.clock.moment();
        let looks_at = self.look(now);
        loop {
            let mut table = self.lock();
            if table.is_closed {
                return NextWork::Never;
            }
            if table.keeper.due(KeeperTask::Report, now).is_some() {
                self.report(table);
                continue;
            }
            let renewals = table.keeper.renewals().filter(|(node, _)| !table.busy.contains(node));
            let mut next = table.keeper.next(KeeperTask::Report);
            let mut due = None;
            for (node, at) in renewals {
                if at <= now.instant() { due = Some(node) } else { next = next.into_iter().chain([at]).min() }
            }
            let Some(node) = due else {
                return NextWork::At(next.into_iter().chain(looks_at).min());
            };
            if let Some(numbers) = table.keeper.due(KeeperTask::Renew(node), now) {
                if !numbers.is_empty() {
                    table.busy.insert(node);
                    self.servers.worker.spawn(self.clone().renew(node, numbers));
                }
                self.report(table);
            }
        }
    }
}

/// A future that waits for the loss of a permit. It is forgotten when it is dropped.
struct Watch<'a> {
    permits: &'a Permits,
    number: Number,
    future: u64,
}

impl Watch<'_> {
    /// Whether the permit is lost. Otherwise the task is woken then.
    fn poll(&self, cx: &Context) -> Poll<()> {
        let (now, waker) = (self.permits.servers.clock.moment(), cx.waker().clone()); // without the lock
        let mut table = self.permits.lock();
        table.keeper.report(self.number);
        let is_lost = table.keeper.is_lost(self.number, now);
        let former = if is_lost { None } else { table.waiting.insert((self.number, self.future), waker) };
        self.permits.report(table);
        drop(former); // without the lock
        if is_lost { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.permits.servers.is_own_process() {
            let waker = self.permits.lock().waiting.remove(&(self.number, self.future));
            drop(waker); // without the lock
        }
    }
}
