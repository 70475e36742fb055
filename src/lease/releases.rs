//! Releases that the server has not confirmed. One thread of the gate repeats each until the server answers or the
//! permit has ended by itself.

use crate::error::CallError;
use crate::error::failure::Failure;
use crate::error::failure::FailureKind::TimedOut;
use crate::protocol::call::Packed;
use crate::protocol::keys::Keys;
use crate::protocol::releases::{self, Settled, ToRelease};
use crate::sync::{lock, wait, wait_for};
use crate::transport::pool::Sending;
use crate::transport::servers::Servers;
use crate::transport::{NodeId, PendingConnection};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

pub(crate) type PendingRelease = releases::PendingRelease<PendingConnection>;

/// The thread and its queue.
pub(crate) struct Releases {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    state: Mutex<State>,
    filled: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    releases: releases::Releases<PendingConnection>,
    running: bool,
}

impl Releases {
    pub(crate) fn new(servers: Arc<Servers>) -> Releases {
        Releases {
            shared: Arc::new(Shared {
                servers,
                state: Mutex::default(),
                filled: Condvar::new(),
                answered: Condvar::new(),
            }),
        }
    }

    /// Hands releases to the thread. Starts the thread if none runs.
    pub(crate) fn later(&self, pending: impl IntoIterator<Item = PendingRelease>) {
        let mut state = lock(&self.shared.state);
        state.releases.add(pending);
        if !state.running && !state.releases.is_empty() {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("luagate-releases".to_owned());
            // If no thread can be started, the lease ends by itself. The next release tries again.
            state.running = thread.spawn(move || shared.work()).is_ok();
        }
        drop(state);
        self.shared.filled.notify_one();
    }

    /// Releases once, by `until`. Returns whether the server confirmed it. If not, the thread repeats it.
    pub(crate) fn now(&self, mut pending: PendingRelease, until: Instant) -> bool {
        let released = self.shared.release(&mut pending, Some(until));
        let is_confirmed = released.is_ok();
        if !is_confirmed {
            self.later([pending]);
        }
        is_confirmed
    }

    /// Returns when no release of this id is pending, so that the id can be used again.
    ///
    /// Blocks until `until` at most (`None`: for the read timeout). An error means that a release is still not
    /// confirmed.
    pub(crate) fn settle(&self, keys: &Keys, id: &str, until: Option<Instant>) -> Result<(), CallError> {
        let servers = &self.shared.servers;
        let until = until.unwrap_or_else(|| servers.clock.now() + servers.read_timeout());
        let mut state = lock(&self.shared.state);
        loop {
            let now = servers.clock.now();
            match state.releases.settle(keys, id, now) {
                Settled::Yes => return Ok(()),
                Settled::After(mut pending) => {
                    drop(state);
                    if let Err(error) = self.shared.release(&mut pending, Some(until)) {
                        self.later([pending]);
                        return Err(unsettled(error));
                    }
                    state = lock(&self.shared.state);
                }
                Settled::Soon => {
                    let left = until.saturating_duration_since(now);
                    if left.is_zero() {
                        let late = Failure::new(TimedOut, "no answer in time");
                        return Err(unsettled(CallError::Failed(late)));
                    }
                    state = wait_for(&self.shared.answered, state, left);
                }
            }
        }
    }
}

/// Nothing was sent for the new call, so its outcome is certain: it failed.
pub(crate) fn unsettled(error: CallError) -> CallError {
    let (kind, text) = match &error {
        CallError::Failed(failure) | CallError::Unknown(failure) => (failure.kind(), failure.text()),
        CallError::Invalid(_) => return error,
    };
    let text = format!("an earlier release of this id is not confirmed: {text}");
    CallError::Failed(Failure::new(kind, text))
}

impl Drop for Releases {
    /// The thread continues for up to 30 s with the releases that are pending, then ends.
    fn drop(&mut self) {
        if self.shared.servers.is_own_process() {
            let now = self.shared.servers.clock.now();
            lock(&self.shared.state).releases.close(now);
            self.shared.filled.notify_one();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(batch) = self.next() {
            let node = batch.first().map_or(0, |pending| self.node_of(pending));
            let unconfirmed = self.release_batch(batch);
            let now = self.servers.clock.now();
            lock(&self.state).releases.sent(node, unconfirmed, now);
            self.answered.notify_all();
        }
    }

    /// The next releases to send together. Blocks until there is one. `None` after the gate was dropped.
    fn next(&self) -> Option<Vec<PendingRelease>> {
        let mut state = lock(&self.state);
        loop {
            let now = self.servers.clock.now();
            let node_of = |pending: &PendingRelease| self.node_of(pending);
            state = match state.releases.next(now, node_of) {
                ToRelease::Now(batch) => return Some(batch),
                ToRelease::Closed => return None,
                ToRelease::At(Some(at)) => {
                    let left = at.saturating_duration_since(now);
                    wait_for(&self.filled, state, left)
                }
                ToRelease::At(None) => wait(&self.filled, state),
            };
        }
    }

    /// The server that gets this release.
    fn node_of(&self, pending: &PendingRelease) -> NodeId {
        match &pending.connection {
            Some(connection) => connection.node(),
            None => self.servers.node_of(&pending.keys.meta),
        }
    }

    /// Releases each of these once. Returns those that the server did not confirm.
    fn release_batch(&self, mut batch: Vec<PendingRelease>) -> Vec<PendingRelease> {
        if let [one] = batch.as_mut_slice() {
            let released = self.release(one, None);
            batch.retain(|_| released.is_err());
            return batch;
        }
        let mut steps: Vec<_> = batch.iter().map(PendingRelease::steps).collect();
        let calls: Vec<Packed> = steps.iter().filter_map(|steps| steps.call()).collect();
        let outcomes = self.servers.send_all(&calls, Sending::default());
        let mut confirmed = steps
            .iter_mut()
            .zip(outcomes)
            .map(|(steps, outcome)| outcome.is_ok_and(|answered| answered.read(|reply| steps.answered(reply)).is_ok()));
        batch.retain(|_| !confirmed.next().unwrap_or(false));
        batch
    }

    /// Releases once. If the release has a connection, that connection is used only once, as soon as no other call uses
    /// it, since it may be broken. The server processes this release after the earlier call on that connection.
    fn release(&self, pending: &mut PendingRelease, until: Option<Instant>) -> Result<(), CallError> {
        let sending = Sending { until, ..Sending::default() };
        let mut steps = pending.steps();
        while let Some(call) = steps.call() {
            let outcome = match pending.connection.take() {
                Some(own) => {
                    let outcome = self.servers.send_behind(&own, &call, until);
                    outcome.inspect_err(|unanswered| {
                        pending.connection.clone_from(&unanswered.connection);
                    })
                }
                None => self.servers.send(&call, sending),
            };
            let read = outcome.and_then(|answered| answered.read(|reply| steps.answered(reply)));
            read.map_err(|unanswered| unanswered.error)?;
        }
        Ok(())
    }
}
