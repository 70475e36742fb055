//! The permits of a gate. One thread for each server renews the permits that this server granted. Another thread
//! reports losses, since a thread that waits for a reply would report them late.

use super::callbacks::Callbacks;
use super::store::{self, Driver, OnLost, Refreshed, State, Store};
use crate::clock::Notify;
use crate::error::RefreshError;
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Due, Number, Task};
use crate::protocol::replicas::MinReplicas;
use crate::sync::lock;
use crate::transport::pool::Sending;
use crate::transport::route::Outcome;
use crate::transport::servers::Servers;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

pub(crate) struct Permits {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    /// The replicas that must confirm a new lease before it counts.
    replicas: Option<MinReplicas>,
    store: Arc<Store<Threads>>,
}

/// The threads that work on the permits.
#[derive(Default)]
pub(crate) struct Threads {
    of: BTreeMap<Task, Thread>,
    closed: bool,
}

struct Thread {
    running: bool,
    /// The time until which the thread sleeps, or slept last; `None`: until it is woken. If permits come and go, the
    /// thread is woken once for many of them: it may find less to do than it had planned for.
    sleeps_until: Option<Instant>,
    notify: Arc<Notify>,
}

impl Driver for Threads {}

impl Permits {
    pub(crate) fn new(servers: Arc<Servers>, replicas: Option<MinReplicas>) -> Permits {
        let callbacks = Mutex::new(Callbacks::new(&servers.clock));
        let run = move |on_lost, lost| lock(&callbacks).run(on_lost, lost);
        let store = Store::new(&servers.clock, &servers.counts, Threads::default(), run);
        Permits { shared: Arc::new(Shared { servers, replicas, store: Arc::new(store) }) }
    }

    /// The permits themselves.
    pub(crate) fn store(&self) -> &Arc<Store<Threads>> {
        &self.shared.store
    }

    /// Renews this permit and reports its loss from now on.
    pub(crate) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let shared = &self.shared;
        let node = shared.servers.node_of(&held.identity.keys.meta);
        let (number, state) = shared.store.keep(held, node, on_lost);
        Shared::wake(shared, state, Task::Renew(node));
        if on_lost.is_some() {
            Shared::wake(shared, shared.store.lock(), Task::Report);
        }
        number
    }

    /// Refreshes these permits, with `lease_ms` or each with its own lease. Returns an outcome for each. Waits for the
    /// replies until `until` at most.
    pub(crate) fn refresh(
        &self,
        permits: &[(Number, &Identity)],
        lease_ms: Option<u64>,
        until: Option<Instant>,
    ) -> Vec<Result<(), RefreshError>> {
        let shared = &self.shared;
        let lease_of = |identity: &Identity| lease_ms.unwrap_or(identity.lease.lease_ms);
        let refreshes = permits.iter().map(|(number, identity)| (*number, *identity, lease_of(identity)));
        let refreshes: Vec<_> = refreshes.collect();
        shared.store.begin_refresh(&refreshes);
        let outcomes = shared.refresh(refreshes.iter().map(|(_, identity, ms)| (*identity, *ms)), until, false);
        let refreshed = shared.store.end_refresh(&refreshes, outcomes);
        // The next renewal may now be due earlier.
        let tasks: Vec<Task> = shared.store.lock().driver.of.keys().copied().collect();
        for task in tasks {
            Shared::wake(shared, shared.store.lock(), task);
        }
        refreshed
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let store = &self.shared.store;
        if !store.is_own_process() {
            return;
        }
        let mut state = store.lock();
        state.driver.closed = true;
        let to_notify: Vec<_> = state.driver.of.values().map(|thread| thread.notify.clone()).collect();
        drop(state);
        for notify in to_notify {
            notify.wake(store.lock());
        }
    }
}

impl Shared {
    /// Wakes the thread of a task if it sleeps for too long. Starts the thread if none runs.
    fn wake(shared: &Arc<Shared>, mut state: MutexGuard<State<Threads>>, task: Task) {
        let Some(at) = state.keeper.next(task) else {
            return;
        };
        let thread = state.driver.of.entry(task).or_insert_with(|| Thread {
            running: false,
            sleeps_until: None,
            notify: Arc::new(Notify::new(&shared.servers.clock)),
        });
        if !thread.running {
            let name = match task {
                Task::Renew(_) => "luagate-renewal",
                Task::Report => "luagate-losses",
            };
            let working = shared.clone();
            let builder = std::thread::Builder::new().name(name.to_owned());
            // If no thread can be started, the permit is lost at its deadline. The next call tries again.
            thread.running = builder.spawn(move || working.work(task)).is_ok();
        }
        if thread.sleeps_until.is_none_or(|until| at < until) {
            let notify = thread.notify.clone();
            notify.wake(state);
        }
    }

    /// The loop of the thread of a task.
    fn work(&self, task: Task) {
        while let Some(due) = self.wait_for_due(task) {
            if !due.is_empty() {
                self.renew(&due);
            }
        }
    }

    /// Sleeps until something is due. `None` after the gate was dropped.
    fn wait_for_due(&self, task: Task) -> Option<Vec<Number>> {
        let mut state = self.store.lock();
        loop {
            if state.driver.closed {
                return None;
            }
            match state.keeper.due(task, self.servers.clock.moment()) {
                Due::Now(due) => {
                    self.store.report(state);
                    return Some(due);
                }
                Due::At(at) => {
                    let thread = state.driver.of.get_mut(&task)?;
                    thread.sleeps_until = at;
                    let notify = thread.notify.clone();
                    state = notify.sleep(state, at);
                }
            }
        }
    }

    fn renew(&self, due: &[Number]) {
        let now = self.servers.clock.moment();
        let (batch, until) = self.store.lock().keeper.batch(due, now);
        let refreshes = batch.iter().map(|(_, identity)| (&**identity, identity.lease.lease_ms));
        let outcomes = self.refresh(refreshes, until, true);
        self.store.end_renewal(&batch, outcomes);
    }

    /// Sends refreshes, each with its lease in ms.
    fn refresh<'a>(
        &self,
        refreshes: impl Iterator<Item = (&'a Identity, u64)> + Clone,
        until: Option<Instant>,
        priority: bool,
    ) -> Vec<Refreshed> {
        let before = self.servers.clock.moment();
        let calls = refreshes.map(|(identity, lease_ms)| identity.refresh(lease_ms));
        let packed: Vec<Packed> = calls.clone().map(|call| call.pack()).collect();
        let sending = Sending { until, priority, alone: false, replicas: self.replicas };
        let outcomes = self.servers.send_all(&packed, sending);
        let read = |(call, outcome): (_, Outcome)| {
            let answered = match outcome {
                Ok(answered) => answered,
                Err(unanswered) => return (Err(unanswered.error), before),
            };
            let (sent, unconfirmed) = (answered.sent, answered.unconfirmed.clone());
            let answer = answered.read(|reply| Call::answer(&call, reply));
            (store::confirmed(answer.map_err(|unanswered| unanswered.error), unconfirmed), sent)
        };
        calls.zip(outcomes).map(read).collect()
    }
}
