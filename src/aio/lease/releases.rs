//! Releases that the server has not confirmed. The gate's task repeats each until the server answers or the permit has
//! ended by itself.

use crate::aio::transport::servers::Servers;
use crate::aio::transport::{Connection, Sending};
use crate::clock::{Alarm, Clock};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::lease::releases::unsettled;
use crate::protocol::call::Packed;
use crate::protocol::keys::Keys;
use crate::protocol::releases::{self, Ordered, Settled, ToRelease};
use crate::sync::lock;
use crate::transport::NodeId;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;

pub(in crate::aio) type PendingRelease = releases::PendingRelease<Arc<Connection>>;

impl Ordered for Arc<Connection> {
    fn is_shared_with(&self, other: &Arc<Connection>) -> bool {
        Arc::ptr_eq(self, other)
    }
}

pub(in crate::aio) struct Releases {
    clock: Clock,
    state: Mutex<releases::Releases<Arc<Connection>>>,
    filled: Alarm,
    /// An attempt has ended.
    answered: Notify,
}

impl Releases {
    pub(in crate::aio) fn new(clock: &Clock) -> Releases {
        let (filled, answered) = (Alarm::new(clock), Notify::new());
        Releases { clock: clock.clone(), state: Mutex::default(), filled, answered }
    }

    /// Hands releases to the task. Does not block, and works outside a runtime.
    pub(in crate::aio) fn later(&self, pending: impl IntoIterator<Item = PendingRelease>) {
        lock(&self.state).add(pending);
        self.filled.wake();
    }

    /// Whether releases are not confirmed yet.
    fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.is_empty() && state.current.is_empty()
    }

    /// Returns when all releases are confirmed, or their permits have ended by themselves.
    pub(in crate::aio) async fn all_confirmed(&self) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.is_empty() {
                return;
            }
            answered.await;
        }
    }

    /// Releases once, by `until`. Returns whether the server confirmed it. If not, or if this is dropped, the task
    /// repeats it.
    pub(in crate::aio) async fn now(&self, servers: &Servers, pending: PendingRelease, until: Instant) -> bool {
        let mut attempt = Attempt::new(self, pending);
        attempt.release(servers, Some(until)).await.is_ok()
    }

    /// Returns when no release of this id is pending, so that the id can be used again.
    ///
    /// Waits until `until` at most (`None`: for the read timeout). An error means that a release is still not
    /// confirmed.
    pub(in crate::aio) async fn settle(
        &self,
        servers: &Servers,
        keys: &Keys,
        id: &str,
        until: Option<Instant>,
    ) -> Result<(), CallError> {
        let until = until.unwrap_or_else(|| self.clock.now() + servers.read_timeout());
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            let now = self.clock.now();
            let settled = lock(&self.state).settle(keys, id, now);
            match settled {
                Settled::Yes => return Ok(()),
                Settled::After(pending) => {
                    let mut attempt = Attempt::new(self, pending);
                    attempt.release(servers, Some(until)).await.map_err(unsettled)?;
                }
                Settled::Soon => {
                    let left = until.saturating_duration_since(now);
                    if left.is_zero() || tokio::time::timeout(left, answered).await.is_err() {
                        let late = Failure::new(FailureKind::TimedOut, "no answer in time");
                        return Err(unsettled(CallError::Failed(late)));
                    }
                }
            }
        }
    }

    /// The gate is dropped: the loop of the task continues for up to 30 s, then ends.
    pub(in crate::aio) fn close(&self) {
        lock(&self.state).close(self.clock.now());
        self.filled.wake();
    }

    /// The loop of the task.
    pub(in crate::aio) async fn work(&self, servers: &Servers) {
        let node_of = |pending: &PendingRelease| node_of(servers, pending);
        let next = || {
            let step = lock(&self.state).next(self.clock.now(), node_of);
            match step {
                ToRelease::Now(batch) => Ok(Some(batch)),
                ToRelease::Closed => Ok(None),
                ToRelease::At(at) => {
                    self.answered.notify_waiters(); // releases that are over may have been removed
                    Err(at)
                }
            }
        };
        while let Some(batch) = self.filled.until(next).await {
            let node = batch.first().map_or(0, node_of);
            let mut sent = Batch { releases: self, node, unconfirmed: batch };
            sent.release(servers).await;
        }
        self.answered.notify_waiters();
    }
}

/// The server that gets this release.
fn node_of(servers: &Servers, pending: &PendingRelease) -> NodeId {
    match &pending.connection {
        Some(connection) => connection.node(),
        None => servers.node_of(&pending.keys.meta),
    }
}

/// A batch that is being sent. When this is dropped, also with the task, the unconfirmed releases are pending again.
struct Batch<'a> {
    releases: &'a Releases,
    node: NodeId,
    unconfirmed: Vec<PendingRelease>,
}

impl Batch<'_> {
    async fn release(&mut self, servers: &Servers) {
        if let [one] = self.unconfirmed.as_mut_slice() {
            if release(servers, one, None).await.is_ok() {
                self.unconfirmed.clear();
            }
            return;
        }
        let mut steps: Vec<_> = self.unconfirmed.iter().map(PendingRelease::steps).collect();
        let calls: Vec<Packed> = steps.iter().filter_map(|steps| steps.call()).collect();
        let connection = self.unconfirmed.first().and_then(|first| first.connection.clone());
        let outcomes = match &connection {
            Some(connection) => servers.send_behind(connection, &calls, None).await,
            None => servers.send_all(&calls, Sending::default()).await,
        };
        let sent = std::mem::take(&mut self.unconfirmed);
        for ((mut pending, steps), outcome) in sent.into_iter().zip(&mut steps).zip(outcomes) {
            let read = outcome.and_then(|answered| answered.read(|reply| steps.answered(reply)));
            if let Err(unanswered) = read {
                pending.connection = pending.connection.and(unanswered.connection);
                self.unconfirmed.push(pending);
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        lock(&self.releases.state).sent(self.node, unconfirmed, self.releases.clock.now());
        self.releases.answered.notify_waiters();
    }
}

/// A release that is sent outside the task. If it is not confirmed when this is dropped, the task repeats it.
struct Attempt<'a> {
    releases: &'a Releases,
    pending: Option<PendingRelease>,
}

impl<'a> Attempt<'a> {
    fn new(releases: &'a Releases, pending: PendingRelease) -> Attempt<'a> {
        Attempt { releases, pending: Some(pending) }
    }

    async fn release(&mut self, servers: &Servers, until: Option<Instant>) -> Result<(), CallError> {
        if let Some(pending) = &mut self.pending {
            release(servers, pending, until).await?;
        }
        self.pending = None;
        Ok(())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.releases.later([pending]);
        }
    }
}

/// Releases once. If the release has a connection, that connection is used as long as it works: the server processes
/// this release after the earlier call there. Otherwise each attempt uses the present connection, because the last one may
/// be silent for ever.
async fn release(servers: &Servers, pending: &mut PendingRelease, until: Option<Instant>) -> Result<(), CallError> {
    let sending = Sending { until, ..Sending::default() };
    let mut steps = pending.steps();
    while let Some(call) = steps.call() {
        let outcome = match &pending.connection {
            Some(connection) => servers.send_behind(connection, &[call], until).await.pop(),
            None => Some(servers.send(&call, sending).await),
        };
        let read = match outcome {
            Some(outcome) => outcome.and_then(|answered| answered.read(|reply| steps.answered(reply))),
            None => return Ok(()),
        };
        if let Err(unanswered) = read {
            pending.connection = pending.connection.take().and(unanswered.connection);
            return Err(unanswered.error);
        }
    }
    Ok(())
}
