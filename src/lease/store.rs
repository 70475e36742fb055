//! The permits of a gate and the callbacks for their loss, without threads and connections. A driver renews the permits
//! and reports losses in time.

use crate::clock::Clock;
use crate::counters::Counts;
use crate::error::failure::Failure;
#[cfg(feature = "tokio")]
use crate::error::failure::FailureKind;
use crate::error::{CallError, Lost, RefreshError};
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::keeper::{Keeper, Loss, Number};
use crate::protocol::lease::Moment;
use crate::protocol::semaphore::Grant;
use crate::sync::lock;
use crate::trace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Called once when a permit turns out to be lost.
pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

/// The answer to a refresh, and when it was sent.
pub(crate) type Refreshed = (Result<Option<Grant>, CallError>, Moment);

/// The driver's own data, under the lock of the store.
pub(crate) trait Driver {
    /// This permit turned out to be lost.
    fn lost(&mut self, number: Number) {
        let _ = number;
    }

    /// This permit is dropped.
    fn removed(&mut self, number: Number) {
        let _ = number;
    }
}

/// `D`: see [`Driver`].
pub(crate) struct Store<D> {
    clock: Clock,
    counts: Arc<Counts>,
    pid: u32,
    /// Runs a callback without blocking.
    run: Box<dyn Fn(OnLost, Lost) + Send + Sync>,
    state: Mutex<State<D>>,
}

pub(crate) struct State<D> {
    pub(crate) keeper: Keeper,
    on_lost: HashMap<Number, OnLost>,
    pub(crate) driver: D,
}

impl<D: Driver> Store<D> {
    pub(crate) fn new(
        clock: &Clock,
        counts: &Arc<Counts>,
        driver: D,
        run: impl Fn(OnLost, Lost) + Send + Sync + 'static,
    ) -> Store<D> {
        let state = State { keeper: Keeper::default(), on_lost: HashMap::new(), driver };
        Store {
            clock: clock.clone(),
            counts: counts.clone(),
            pid: std::process::id(),
            run: Box::new(run),
            state: Mutex::new(state),
        }
    }

    /// Whether this process opened the gate. `false` in a forked child, where the lock may be held by a thread that
    /// does not exist.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<D>> {
        lock(&self.state)
    }

    /// Adds a permit that server `node` granted. The caller wakes the driver.
    pub(crate) fn keep(
        &self,
        held: HeldPermit,
        node: usize,
        on_lost: Option<&OnLost>,
    ) -> (Number, MutexGuard<'_, State<D>>) {
        let now = self.clock.moment();
        let mut state = self.lock();
        let number = state.keeper.keep(held, node, on_lost.is_some(), now);
        if let Some(on_lost) = on_lost {
            state.on_lost.insert(number, on_lost.clone());
        }
        (number, state)
    }

    /// Removes a permit that is dropped.
    pub(crate) fn remove(&self, number: Number) {
        let mut state = self.lock();
        state.keeper.remove(number);
        state.driver.removed(number);
        let on_lost = match state.on_lost.is_empty() {
            true => None,
            false => state.on_lost.remove(&number),
        };
        drop(state);
        drop(on_lost); // outside the lock, since this drop runs the user's code
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

    /// Takes the outcomes of the holder's own refreshes. The caller wakes the driver, since the next renewal may be due
    /// earlier now.
    pub(crate) fn end_refresh(
        &self,
        refreshes: &[(Number, &Identity, u64)],
        outcomes: Vec<Refreshed>,
    ) -> Vec<Result<(), RefreshError>> {
        let now = self.clock.moment();
        self.with(|keeper| {
            let refreshed = refreshes.iter().zip(outcomes);
            let refreshed = refreshed.map(|((number, _, lease_ms), (outcome, sent))| {
                keeper.refreshed(*number, *lease_ms, outcome, sent, now)
            });
            refreshed.collect()
        })
    }

    /// Takes the outcomes of the renewals of a batch.
    pub(crate) fn end_renewal(&self, batch: &[(Number, Arc<Identity>)], outcomes: Vec<Refreshed>) {
        let now = self.clock.moment();
        let mut state = self.lock();
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
    pub(crate) fn report(&self, mut state: MutexGuard<State<D>>) {
        let losses = state.keeper.take_losses();
        if losses.is_empty() {
            return;
        }
        losses.iter().for_each(|loss| state.driver.lost(loss.number));
        let on_lost = |loss: &Loss| state.on_lost.get(&loss.number).cloned();
        let losses: Vec<_> = losses.into_iter().map(|loss| (on_lost(&loss), loss)).collect();
        drop(state);
        for (on_lost, loss) in losses {
            if loss.is_new {
                trace::lost(&loss.identity.keys, loss.identity.fence);
                self.counts.lost.add_one();
            }
            if let (true, Some(on_lost)) = (loss.is_reported, on_lost) {
                (self.run)(on_lost, loss.identity.lost());
            }
        }
    }
}

/// The answer to a refresh that replicas must confirm. Without their confirmation it is a failure.
pub(crate) fn confirmed(
    answer: Result<Option<Grant>, CallError>,
    unconfirmed: Option<Failure>,
) -> Result<Option<Grant>, CallError> {
    match (answer, unconfirmed) {
        (Ok(Some(_)), Some(failure)) => Err(CallError::Failed(failure)),
        (answer, _) => answer,
    }
}

/// The outcome of a refresh whose caller does not wait for the answer any more.
#[cfg(feature = "tokio")]
pub(crate) fn dropped() -> CallError {
    CallError::Unknown(Failure::new(FailureKind::TimedOut, "the caller did not wait for the reply"))
}
