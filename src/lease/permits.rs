//! The permits of a gate, and the callbacks for their loss. The gate's own thread renews them, and reports those that are
//! lost.

use crate::clock::{Busy, Clock};
use crate::counters::Counts;
use crate::engine::mode::Mode;
use crate::engine::servers::{Outcome, Sending, Servers};
use crate::engine::worker::{Job, Next, Worker};
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Lost, RefreshError};
use crate::protocol::call::{Call, Packed};
use crate::protocol::exchange::MinReplicas;
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Keeper, Loss, Number, Refreshed, Task};
use crate::protocol::routing::NodeId;
use crate::protocol::semaphore::Refresh;
use crate::sync::lock;
use crate::trace;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

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

/// Called once when a permit turns out to be lost.
pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

pub(crate) struct Store {
    clock: Clock,
    counts: Arc<Counts>,
    pid: u32,
    callbacks: Mutex<Callbacks>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) keeper: Keeper,
    on_lost: HashMap<Number, OnLost>,
    /// The tasks that wait for the loss of a permit, by the numbers of their futures.
    waiting: BTreeMap<(Number, u64), Waker>,
    last_future: u64,
    /// The servers on which renewals are in progress.
    pub(crate) busy: BTreeSet<NodeId>,
    pub(crate) is_closed: bool,
}

impl Store {
    pub(crate) fn new(clock: &Clock, counts: &Arc<Counts>) -> Store {
        Store {
            clock: clock.clone(),
            counts: counts.clone(),
            pid: std::process::id(),
            callbacks: Mutex::new(Callbacks::new(clock)),
            state: Mutex::default(),
        }
    }

    /// Whether this process opened the gate. `false` in a forked child, where the lock may be held by a thread that
    /// does not exist.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a permit that server `node` granted. Also returns when there is work for it.
    pub(crate) fn keep(&self, held: HeldPermit, node: NodeId, on_lost: Option<&OnLost>) -> (Number, Option<Instant>) {
        let now = self.clock.moment();
        let mut state = self.lock();
        let number = state.keeper.keep(held, node, on_lost.is_some(), now);
        if let Some(on_lost) = on_lost {
            state.on_lost.insert(number, on_lost.clone());
        }
        let tasks = [Task::Renew(node), Task::Report];
        (number, tasks.into_iter().filter_map(|task| state.keeper.next(task)).min())
    }

    /// The guard of a permit is dropped at `now`. If there is something to release, returns when the server has ended its
    /// lease, and keeps the permit until its release is answered.
    pub(crate) fn drop_permit(&self, number: Number, now: Instant) -> Option<Option<Instant>> {
        let mut state = self.lock();
        if !state.keeper.begin_release(number) {
            self.remove_from(state, number);
            return None;
        }
        Some(state.keeper.held(number).and_then(|held| held.ends_by(now)))
    }

    /// A call that releases the permit is about to be sent. `false`: there is nothing to release.
    pub(crate) fn begin_release(&self, number: Number) -> bool {
        self.with(|keeper| keeper.begin_release(number))
    }

    /// The posted release of a permit is answered, or repeated by others.
    pub(crate) fn remove(&self, number: Number) {
        self.remove_from(self.lock(), number);
    }

    fn remove_from(&self, mut state: MutexGuard<State>, number: Number) {
        state.keeper.remove(number);
        let on_lost = if state.on_lost.is_empty() { None } else { state.on_lost.remove(&number) };
        self.report(state);
        drop(on_lost); // outside the lock, since this drop runs the user's code
    }

    /// The posted release of a permit is answered. `found`: there was something to release.
    pub(crate) fn released(&self, number: Number, found: bool) {
        let mut state = self.lock();
        state.keeper.released(number, found, false);
        self.remove_from(state, number);
    }

    /// For a future that waits for the loss of this permit.
    pub(crate) fn watch(&self, number: Number) -> Watch<'_> {
        let mut state = self.lock();
        state.last_future += 1;
        Watch { store: self, number, future: state.last_future }
    }

    /// The time that is left of the lease: zero if the permit is lost, `None` if it is permanent.
    pub(crate) fn remaining(&self, number: Number) -> Option<Duration> {
        let now = self.clock.moment();
        self.with(|keeper| keeper.remaining(number, now))
    }

    /// Runs `work` on the permits, then reports those that turned out to be lost.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Keeper) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state.keeper);
        self.report(state);
        result
    }

    /// The holder's own refreshes, each with its lease in ms, are about to be sent.
    pub(crate) fn begin_refresh(&self, refreshes: &[(Number, &Identity, u64)]) {
        let now = self.clock.moment();
        self.with(|keeper| {
            for (number, _, lease_ms) in refreshes {
                keeper.refreshing(*number, *lease_ms, now);
            }
        });
    }

    /// Takes the outcomes of the holder's own refreshes. The caller calls the worker, since the next renewal may be due
    /// earlier now.
    pub(crate) fn end_refresh(
        &self,
        refreshes: &[(Number, &Identity, u64)],
        outcomes: Vec<Refreshed>,
    ) -> Vec<Result<(), RefreshError>> {
        let now = self.clock.moment();
        self.with(|keeper| {
            let refreshed = refreshes.iter().zip(outcomes);
            let refreshed =
                refreshed.map(|((number, _, lease_ms), outcome)| keeper.refreshed(*number, *lease_ms, outcome, now));
            refreshed.collect()
        })
    }

    /// Takes the outcomes of the renewals of a batch.
    pub(crate) fn end_renewal(&self, batch: &[(Number, Arc<Identity>)], outcomes: Vec<Refreshed>) {
        let now = self.clock.moment();
        let mut state = self.lock();
        let outcomes = batch.iter().zip(outcomes);
        let outcomes = outcomes.map(|((number, identity), outcome)| {
            let error = outcome.as_ref().err().cloned();
            let is_renewed = state.keeper.renewed(*number, outcome, now).is_ok();
            (identity, is_renewed, error)
        });
        let outcomes: Vec<_> = outcomes.collect();
        self.report(state);
        // Without the lock: a subscriber of `tracing` may take time.
        let mut failed = (0, None);
        for (identity, is_renewed, error) in outcomes {
            if is_renewed {
                trace::renewed(&identity.keys, identity.fence);
                self.counts.renewed.add_one();
            } else if let Some(error) = error {
                failed.0 += 1;
                failed.1.get_or_insert((identity, error));
            }
        }
        if let (count, Some((identity, error))) = failed {
            trace::unrenewed(&identity.keys, count, &error);
        }
    }

    /// Reports the permits that turned out to be lost.
    pub(crate) fn report(&self, mut state: MutexGuard<State>) {
        let losses = state.keeper.take_losses();
        if losses.is_empty() {
            return;
        }
        let futures = losses.iter().flat_map(|Loss { number, .. }| state.waiting.range((*number, 0)..(*number + 1, 0)));
        let futures: Vec<_> = futures.map(|(future, _)| *future).collect();
        let waiting: Vec<Waker> = futures.iter().filter_map(|future| state.waiting.remove(future)).collect();
        let on_lost = |loss: &Loss| state.on_lost.get(&loss.number).cloned();
        let losses: Vec<_> = losses.into_iter().map(|loss| (on_lost(&loss), loss)).collect();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        for (on_lost, loss) in losses {
            if loss.is_new {
                trace::lost(&loss.identity.keys, loss.identity.fence);
                self.counts.lost.add_one();
            }
            if let (true, Some(on_lost)) = (loss.is_reported, on_lost) {
                lock(&self.callbacks).run(on_lost, loss.identity.lost());
            }
        }
    }
}

/// A future that waits for the loss of a permit. It is forgotten when it is dropped.
pub(crate) struct Watch<'a> {
    store: &'a Store,
    number: Number,
    future: u64,
}

impl Watch<'_> {
    /// Whether the permit is lost. Otherwise the task is woken then.
    pub(crate) fn poll(&self, cx: &Context) -> Poll<()> {
        let now = self.store.clock.moment();
        let mut state = self.store.lock();
        state.keeper.report(self.number);
        let is_lost = state.keeper.is_lost(self.number, now);
        let former = if is_lost { None } else { state.waiting.insert((self.number, self.future), cx.waker().clone()) };
        self.store.report(state);
        drop(former); // without the lock
        if is_lost { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let waker = self.store.lock().waiting.remove(&(self.number, self.future));
        drop(waker); // without the lock
    }
}

/// The thread for callbacks. The first loss starts it.
pub(crate) struct Callbacks {
    clock: Clock,
    sender: Option<Sender<(OnLost, Lost, Busy)>>,
}

impl Callbacks {
    pub(crate) fn new(clock: &Clock) -> Callbacks {
        Callbacks { clock: clock.clone(), sender: None }
    }

    pub(crate) fn run(&mut self, on_lost: OnLost, lost: Lost) {
        if self.sender.is_none() {
            self.sender = start();
        }
        // If no thread can be started, this callback is not called. The next loss tries again to start it.
        if let Some(sender) = &self.sender {
            let _ = sender.send((on_lost, lost, self.clock.busy()));
        }
    }
}

fn start() -> Option<Sender<(OnLost, Lost, Busy)>> {
    let (sender, receiver) = channel::<(OnLost, Lost, Busy)>();
    let thread = std::thread::Builder::new().name("luagate-on-lost".to_owned());
    let started = thread.spawn(move || {
        for (on_lost, lost, _busy) in receiver {
            // A panic in a callback is the user's concern. The next callback runs all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| on_lost(&lost)));
        }
    });
    started.ok().map(|_| sender)
}
