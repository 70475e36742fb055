//! The permits of a gate. One thread for each server renews the permits that this server granted. Another thread
//! reports losses, since a thread that waits for a reply would report them late.

use super::callbacks::Callbacks;
pub(crate) use super::callbacks::OnLost;
use crate::clock::Notify;
use crate::error::{CallError, RefreshError};
use crate::protocol::call::{Call, Packed};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Due, Keeper, Loss, Number, Task};
use crate::protocol::lease::Moment;
use crate::protocol::replicas::MinReplicas;
use crate::protocol::semaphore::Grant;
use crate::sync::lock;
use crate::trace;
use crate::transport::pool::Sending;
use crate::transport::route::Outcome;
use crate::transport::servers::Servers;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) struct Permits {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    /// The replicas that must confirm a new lease before it counts.
    replicas: Option<MinReplicas>,
    state: Mutex<State>,
    callbacks: Mutex<Callbacks>,
}

#[derive(Default)]
struct State {
    keeper: Keeper,
    on_lost: HashMap<Number, OnLost>,
    threads: BTreeMap<Task, Thread>,
    closed: bool,
}

struct Thread {
    running: bool,
    /// The time until which the thread sleeps, or slept last; `None`: until it is woken. If permits come and go, the
    /// thread is woken once for many of them: it may find less to do than it had planned for.
    sleeps_until: Option<Instant>,
    notify: Arc<Notify>,
}

impl Permits {
    pub(crate) fn new(servers: Arc<Servers>, replicas: Option<MinReplicas>) -> Permits {
        let callbacks = Mutex::new(Callbacks::new(&servers.clock));
        Permits { shared: Arc::new(Shared { servers, replicas, state: Mutex::default(), callbacks }) }
    }

    /// Renews this permit and reports its loss from now on.
    pub(crate) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let shared = &self.shared;
        let node = shared.servers.node_of(&held.identity.keys.meta);
        let now = shared.servers.clock.moment();
        let mut state = lock(&shared.state);
        let number = state.keeper.keep(held, node, on_lost.is_some(), now);
        if let Some(on_lost) = on_lost {
            state.on_lost.insert(number, on_lost.clone());
        }
        Shared::wake(shared, state, Task::Renew(node));
        if on_lost.is_some() {
            Shared::wake(shared, lock(&shared.state), Task::Report);
        }
        number
    }

    /// Removes a permit that is dropped.
    pub(crate) fn remove(&self, number: Number) {
        let mut state = lock(&self.shared.state);
        state.keeper.remove(number);
        let on_lost = match state.on_lost.is_empty() {
            true => None,
            false => state.on_lost.remove(&number),
        };
        drop(state);
        drop(on_lost); // outside the lock, since this drop runs the user's code
    }

    /// The time that is left of the lease: zero if the permit is lost, `None` if it is permanent.
    pub(crate) fn remaining(&self, number: Number) -> Option<Duration> {
        let now = self.shared.servers.clock.moment();
        self.with(|keeper| keeper.remaining(number, now))
    }

    /// Runs `work` on the permits, then reports those that turned out to be lost.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Keeper) -> T) -> T {
        let mut state = lock(&self.shared.state);
        let result = work(&mut state.keeper);
        self.shared.report(state);
        result
    }

    /// Refreshes these permits, with `lease_ms` or each with its own lease. Returns an outcome for each. Waits for the
    /// replies until `until` at most.
    pub(crate) fn refresh(
        &self,
        permits: &[(Number, &Identity)],
        lease_ms: Option<u64>,
        until: Option<Instant>,
    ) -> Vec<Result<(), RefreshError>> {
        let lease_of = |identity: &Identity| lease_ms.unwrap_or(identity.lease.lease_ms);
        let refreshes = permits.iter().map(|(number, identity)| (*number, *identity, lease_of(identity)));
        let now = self.shared.servers.clock.moment();
        self.with(|keeper| {
            for (number, _, lease_ms) in refreshes.clone() {
                keeper.refreshing(number, lease_ms, now);
            }
        });
        let outcomes = self.shared.refresh(refreshes.clone(), until, false);
        let now = self.shared.servers.clock.moment();
        let refreshed = self.with(|keeper| {
            let refreshed = refreshes.zip(outcomes);
            let refreshed = refreshed
                .map(|((number, _, lease_ms), (outcome, sent))| keeper.refreshed(number, lease_ms, outcome, sent, now));
            refreshed.collect()
        });
        // The next renewal may now be due earlier.
        let shared = &self.shared;
        let tasks: Vec<Task> = lock(&shared.state).threads.keys().copied().collect();
        for task in tasks {
            Shared::wake(shared, lock(&shared.state), task);
        }
        refreshed
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if !self.shared.servers.is_own_process() {
            return;
        }
        let mut state = lock(&self.shared.state);
        state.closed = true;
        let to_notify: Vec<_> = state.threads.values().map(|thread| thread.notify.clone()).collect();
        drop(state);
        for notify in to_notify {
            notify.wake(lock(&self.shared.state));
        }
    }
}

impl Shared {
    /// Wakes the thread of a task if it sleeps for too long. Starts the thread if none runs.
    fn wake(shared: &Arc<Shared>, mut state: MutexGuard<State>, task: Task) {
        let Some(at) = state.keeper.next(task) else {
            return;
        };
        let thread = state.threads.entry(task).or_insert_with(|| Thread {
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
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            match state.keeper.due(task, self.servers.clock.moment()) {
                Due::Now(due) => {
                    self.report(state);
                    return Some(due);
                }
                Due::At(at) => {
                    let thread = state.threads.get_mut(&task)?;
                    thread.sleeps_until = at;
                    let notify = thread.notify.clone();
                    state = notify.sleep(state, at);
                }
            }
        }
    }

    fn renew(&self, due: &[Number]) {
        let now = self.servers.clock.moment();
        let (batch, until) = lock(&self.state).keeper.batch(due, now);
        let refreshes = batch.iter().map(|(number, identity)| (*number, &**identity, identity.lease.lease_ms));
        let outcomes = self.refresh(refreshes, until, true);
        let now = self.servers.clock.moment();
        let mut state = lock(&self.state);
        let outcomes = batch.iter().zip(outcomes);
        let outcomes = outcomes.map(|((number, identity), (outcome, sent))| {
            let error = outcome.as_ref().err().cloned();
            let is_renewed = state.keeper.renewed(*number, outcome, sent, now).is_ok();
            (identity, is_renewed, error)
        });
        let outcomes: Vec<_> = outcomes.collect();
        self.report(state);
        // Without the lock: a subscriber of `tracing` may take time.
        let mut failed = (0, None);
        for (identity, is_renewed, error) in outcomes {
            if is_renewed {
                trace::renewed(&identity.keys, identity.fence);
                self.servers.counts.renewed.add_one();
            } else if let Some(error) = error {
                failed.0 += 1;
                failed.1.get_or_insert((identity, error));
            }
        }
        if let (count, Some((identity, error))) = failed {
            trace::unrenewed(&identity.keys, count, &error);
        }
    }

    /// Sends refreshes. Returns for each its outcome and when it was sent.
    fn refresh<'a>(
        &self,
        permits: impl Iterator<Item = (Number, &'a Identity, u64)> + Clone,
        until: Option<Instant>,
        priority: bool,
    ) -> Vec<(Result<Option<Grant>, CallError>, Moment)> {
        let before = self.servers.clock.moment();
        let calls = permits.map(|(_, identity, lease_ms)| identity.refresh(lease_ms));
        let packed: Vec<Packed> = calls.clone().map(|call| call.pack()).collect();
        let sending = Sending { until, priority, alone: false, replicas: self.replicas };
        let outcomes = self.servers.send_all(&packed, sending);
        let read = |(call, outcome): (_, Outcome)| refreshed(&call, outcome, before);
        calls.zip(outcomes).map(read).collect()
    }

    /// Reports the permits that turned out to be lost.
    fn report(&self, mut state: MutexGuard<State>) {
        let losses = state.keeper.take_losses();
        if losses.is_empty() {
            return;
        }
        let on_lost = |loss: &Loss| state.on_lost.get(&loss.number).cloned();
        let losses: Vec<_> = losses.into_iter().map(|loss| (on_lost(&loss), loss)).collect();
        drop(state);
        for (on_lost, loss) in losses {
            if loss.is_new {
                trace::lost(&loss.identity.keys, loss.identity.fence);
                self.servers.counts.lost.add_one();
            }
            if let (true, Some(on_lost)) = (loss.is_reported, on_lost) {
                lock(&self.callbacks).run(on_lost, loss.identity.lost());
            }
        }
    }
}

/// The outcome of a refresh, and when it was sent. If replicas must confirm it, an unconfirmed refresh is a failure.
fn refreshed(
    call: &impl Call<Answer = Option<Grant>>,
    outcome: Outcome,
    before: Moment,
) -> (Result<Option<Grant>, CallError>, Moment) {
    let answered = match outcome {
        Ok(answered) => answered,
        Err(unanswered) => return (Err(unanswered.error), before),
    };
    let (sent, unconfirmed) = (answered.sent, answered.unconfirmed.clone());
    let outcome = match (answered.read(|reply| call.answer(reply)), unconfirmed) {
        (Ok(Some(_)), Some(failure)) => Err(CallError::Failed(failure)),
        (Ok(answer), _) => Ok(answer),
        (Err(unanswered), _) => Err(unanswered.error),
    };
    (outcome, sent)
}
