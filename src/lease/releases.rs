//! Releases for which no caller waits. Each is posted on the connection, behind all earlier calls of the gate. Those that
//! the server does not confirm are repeated by the gate's own thread.

use super::permits::Store;
use crate::engine::connection::{Connection, Outcome};
use crate::engine::mode::Mode;
use crate::engine::servers::{Sending, Servers};
use crate::engine::watched::Watched;
use crate::engine::worker::{Job, Next, Worker};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::call::Packed;
use crate::protocol::exchange::{error_in, is_no_script, of_one};
use crate::protocol::keeper::Number;
use crate::protocol::releases::{self, Ordered, Settled, Steps, ToRelease};
use crate::protocol::routing::NodeId;
use crate::trace::Span;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

pub(crate) type PendingRelease = releases::PendingRelease<Arc<Connection>>;

impl Ordered for Arc<Connection> {
    fn is_shared_with(&self, other: &Arc<Connection>) -> bool {
        Arc::ptr_eq(self, other)
    }
}

/// A permit that its guard has dropped, until its release is answered.
pub(crate) struct Dropped {
    pub(crate) store: Arc<Store>,
    pub(crate) number: Number,
    pub(crate) span: Span,
}

pub(crate) struct Releases {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    servers: Arc<Servers>,
    worker: Worker,
    state: Watched<State>,
    /// How many releases hold back later calls of their names. Zero for almost every call, which then needs no lock.
    unconfirmed: AtomicUsize,
    /// How many posted releases had to be sent again, because the server had lost the script, or the key has moved.
    resent: AtomicU64,
    /// The number of the last release that was posted.
    last: AtomicU64,
}

#[derive(Default)]
struct State {
    releases: releases::Releases<Arc<Connection>>,
    in_flight: releases::InFlight,
}

impl State {
    fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.releases.is_empty()
    }
}

/// The releases that precede a call.
#[derive(Clone, Copy)]
pub(crate) struct Earlier {
    /// The number of the last one.
    last: u64,
    resent: u64,
}

impl Releases {
    pub(crate) fn new(servers: Arc<Servers>, worker: Worker) -> Releases {
        let state = Watched::new(State::default());
        Releases {
            shared: Arc::new(Shared {
                servers,
                worker,
                state,
                unconfirmed: AtomicUsize::new(0),
                resent: AtomicU64::new(0),
                last: AtomicU64::new(0),
            }),
        }
    }

    /// The work of the gate's own thread.
    pub(crate) fn job(&self) -> Weak<dyn Job> {
        Arc::<Shared>::downgrade(&self.shared)
    }

    /// Sends a release without waiting for its reply. Later calls of this gate for the same name run after it.
    pub(crate) fn post(&self, pending: PendingRelease) {
        if pending.is_one_call() { Posted::send(&self.shared, pending, None) } else { self.shared.later(pending) }
    }

    /// As `post`, for a permit whose guard is dropped.
    pub(crate) fn post_dropped(&self, pending: PendingRelease, dropped: Dropped) {
        Posted::send(&self.shared, pending, Some(dropped));
    }

    /// The releases that precede a call which is made now.
    pub(crate) fn earlier(&self) -> Earlier {
        let (last, resent) = (&self.shared.last, &self.shared.resent);
        Earlier { last: last.load(Ordering::Acquire), resent: resent.load(Ordering::Acquire) }
    }

    /// Whether a call for this key, which the server has denied, must be made again: it may have run before a release that
    /// precedes it, since that was sent again, or went to another node of a cluster. Waits until those are confirmed, for
    /// the read timeout at most.
    pub(crate) async fn has_overtaken(
        &self,
        key: &[u8],
        own_id: Option<&str>,
        earlier: Earlier,
        mode: Mode,
    ) -> Result<bool, CallError> {
        let shared = &self.shared;
        let is_posted = |state: &mut State| state.in_flight.has(key, earlier.last);
        if shared.resent.load(Ordering::Acquire) == earlier.resent && !shared.state.look(is_posted) {
            return Ok(false);
        }
        let until = shared.servers.clock.now() + shared.servers.read_timeout();
        let machine = shared.servers.clock.machine_time(until);
        let answered = shared.state.until(Some(machine), mode, |state| (!is_posted(state)).then_some(()));
        shared.servers.limited(Some(until), mode, answered).await.flatten().ok_or_else(late)?;
        shared.settle(key, own_id, Some(until), mode).await?;
        Ok(true)
    }

    /// Releases once, by `until`. Returns whether the server confirmed it. If not, or if this is dropped, the gate's own
    /// thread repeats it.
    pub(crate) async fn now(&self, pending: PendingRelease, until: Instant, mode: Mode) -> bool {
        self.shared.release(pending, Some(until), mode).await.is_ok()
    }

    /// Before a call for this key is sent: sends the releases of the same name that must be repeated, since they precede
    /// it. Waits until `until` at most; `None`: for the read timeout. An error means that a release of `own_id` is not
    /// confirmed.
    pub(crate) async fn settle(
        &self,
        key: &[u8],
        own_id: Option<&str>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<(), CallError> {
        if self.shared.unconfirmed.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.shared.settle(key, own_id, until, mode).await
    }

    /// Returns when all releases are confirmed, or their permits have ended by themselves. `false`: not by `until`.
    pub(crate) async fn all_confirmed(&self, until: Instant, mode: Mode) -> bool {
        let shared = &self.shared;
        let machine = shared.servers.clock.machine_time(until);
        let confirmed = shared.state.until(Some(machine), mode, |state| state.is_empty().then_some(()));
        shared.servers.limited(Some(until), mode, confirmed).await.flatten().is_some()
    }
}

impl Drop for Releases {
    /// The gate's own thread continues for up to 30 s with the releases that are not confirmed.
    fn drop(&mut self) {
        if self.shared.servers.is_own_process() {
            let now = self.shared.servers.clock.now();
            self.shared.state.change(|state| state.releases.close(now));
            self.shared.worker.call();
        }
    }
}

/// A release that is posted, until its reply is here.
struct Posted {
    shared: Arc<Shared>,
    number: u64,
    pending: PendingRelease,
    steps: Steps,
    dropped: Option<Dropped>,
}

impl Posted {
    fn send(shared: &Arc<Shared>, mut pending: PendingRelease, dropped: Option<Dropped>) {
        let steps = pending.steps();
        let behind = pending.connection.take();
        let Some(call) = steps.call() else {
            return;
        };
        let key = pending.keys.meta.clone();
        let connected = || shared.servers.connected(key.as_bytes());
        let connection = behind.filter(|connection| !connection.is_closed()).or_else(connected);
        let number = shared.state.look(|state| {
            let number = shared.last.fetch_add(1, Ordering::AcqRel) + 1;
            state.in_flight.add(number, &key);
            number
        });
        let posted = Posted { shared: shared.clone(), number, pending, steps, dropped };
        match connection {
            Some(connection) => {
                let is_first = connection.is_first_release();
                posted.on(connection, &call, is_first);
            }
            None => posted.failed(),
        }
    }

    /// Sends its next call on this connection. `loads`: together with the text of the script.
    fn on(self, connection: Arc<Connection>, call: &Packed, loads: bool) {
        let mut packet = Vec::new();
        if loads {
            call.write_load(&mut packet);
        }
        packet.extend_from_slice(call.by_sha1());
        let same = connection.clone();
        let call = call.clone();
        let then = move |outcome| self.answered(same, call, loads, outcome);
        if let Err(then) = connection.post(&packet, 1 + usize::from(loads), then) {
            then(Err(not_sent()));
        }
    }

    /// Runs in the thread that reads, so it does not block.
    fn answered(mut self, connection: Arc<Connection>, call: Packed, loads: bool, outcome: Outcome) {
        let reply = match outcome {
            Ok(replies) => replies.into_iter().next_back(),
            Err(_) => None,
        };
        let Some(reply) = reply else {
            return self.failed();
        };
        match error_in(Ok(reply)) {
            Err(error) if is_no_script(&error) && !loads => {
                let shared = self.shared.clone();
                self.on(connection, &call, true);
                shared.resent.fetch_add(1, Ordering::Release); // not earlier: what is sent from now on runs after it
            }
            reply => {
                let answered = of_one(reply).map_err(|unanswered| unanswered.error);
                match answered.and_then(|answered| self.steps.answered(answered.reply)) {
                    Err(_) => self.failed(),
                    Ok(()) => match self.steps.call() {
                        Some(next) => self.on(connection, &next, false),
                        None => self.confirmed(),
                    },
                }
            }
        }
    }

    fn confirmed(self) {
        let Posted { shared, number: posted, steps, dropped, .. } = self;
        if let Some(Dropped { store, number, span }) = dropped {
            store.released(number, !steps.has_found_nothing);
            span.ended(if steps.has_found_nothing { "gone" } else { "released" });
        }
        shared.state.change(|state| state.in_flight.answered(posted));
    }

    /// The gate's own thread repeats it.
    fn failed(self) {
        let Posted { shared, number: posted, pending, dropped, .. } = self;
        if let Some(Dropped { store, number, span }) = dropped {
            store.remove(number);
            span.ended("unknown"); // the gate's own thread repeats it
        }
        shared.change(|state| {
            state.in_flight.answered(posted);
            state.releases.add([pending]);
        });
        shared.resent.fetch_add(1, Ordering::Release);
        shared.worker.call();
    }
}

fn not_sent() -> CallError {
    CallError::Failed(Failure::new(FailureKind::Disconnected, "the connection has ended"))
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.change(|state| {
            let result = change(state);
            self.unconfirmed.store(state.releases.count(), Ordering::Release);
            result
        })
    }

    /// The gate's own thread sends it.
    fn later(&self, pending: PendingRelease) {
        self.change(|state| state.releases.add([pending]));
        self.worker.call();
    }

    /// The server that gets this release.
    fn node_of(&self, pending: &PendingRelease) -> NodeId {
        self.servers.node_of(pending.keys.meta.as_bytes())
    }

    async fn settle(
        self: &Arc<Shared>,
        key: &[u8],
        own_id: Option<&str>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<(), CallError> {
        let clock = &self.servers.clock;
        let until = until.unwrap_or_else(|| clock.now() + self.servers.read_timeout());
        let settles = async {
            loop {
                let settled = |state: &mut State| match state.releases.settle(key, own_id, clock.now()) {
                    Settled::Soon => None,
                    settled => Some(settled),
                };
                match self.state.until(Some(clock.machine_time(until)), mode, settled).await {
                    Some(Settled::After(pending)) => {
                        let is_own = own_id == Some(pending.id.as_str());
                        match self.release(pending, Some(until), mode).await {
                            // The call itself would wait in vain too.
                            Err(error) if is_own || is_in_vain(&error) => return Err(unsettled(error)),
                            Err(_) => return Ok(()),
                            Ok(()) => {}
                        }
                    }
                    Some(_) => return Ok(()),
                    None => return Err(late()),
                }
            }
        };
        match self.servers.limited(Some(until), mode, settles).await {
            Some(settled) => settled,
            None => Err(late()),
        }
    }

    /// Releases once. If it is not confirmed, or if this is dropped, the release must be repeated.
    async fn release(
        self: &Arc<Shared>,
        pending: PendingRelease,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<(), CallError> {
        let mut attempt = Attempt { shared: self, pending: Some(pending) };
        attempt.release(until, mode).await
    }

    /// Releases each of these once, on one server.
    async fn release_batch(self: Arc<Shared>, node: NodeId, batch: Vec<PendingRelease>) {
        let mut batch = Batch { shared: &self, node, unconfirmed: batch };
        batch.release().await;
    }
}

/// A release that is sent now. If it is not confirmed when this is dropped, it is repeated.
struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    pending: Option<PendingRelease>,
}

impl Attempt<'_> {
    async fn release(&mut self, until: Option<Instant>, mode: Mode) -> Result<(), CallError> {
        if let Some(pending) = &mut self.pending {
            release(&self.shared.servers, pending, until, mode).await?;
        }
        self.pending = None;
        Ok(())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.shared.later(pending);
        }
    }
}

/// Releases once. If the release has a connection, it is sent there, behind the earlier call: but only once, since that
/// connection may be silent for ever.
async fn release(
    servers: &Servers,
    pending: &mut PendingRelease,
    until: Option<Instant>,
    mode: Mode,
) -> Result<(), CallError> {
    let sending = Sending { until, ..Sending::of(mode) };
    let behind = pending.connection.take().filter(|connection| !connection.is_closed());
    let mut steps = pending.steps();
    while let Some(call) = steps.call() {
        let answered = match &behind {
            Some(connection) => servers.send_behind(connection, &call, sending).await,
            None => servers.send(&call, sending).await,
        };
        let read = answered.and_then(|answered| answered.read(|reply| steps.answered(reply)));
        read.map_err(|unanswered| unanswered.error)?;
    }
    Ok(())
}

/// A batch that is being sent. When this is dropped, the unconfirmed releases are pending again.
struct Batch<'a> {
    shared: &'a Arc<Shared>,
    node: NodeId,
    unconfirmed: Vec<PendingRelease>,
}

impl Batch<'_> {
    async fn release(&mut self) {
        let servers = &self.shared.servers;
        if let [one] = self.unconfirmed.as_mut_slice() {
            if release(servers, one, None, Mode::Async).await.is_ok() {
                self.unconfirmed.clear();
            }
            return;
        }
        let mut steps: Vec<_> = self.unconfirmed.iter().map(PendingRelease::steps).collect();
        let calls: Vec<Packed> = steps.iter().filter_map(Steps::call).collect();
        let outcomes = servers.send_all(&calls, Sending::of(Mode::Async)).await;
        let mut confirmed = steps
            .iter_mut()
            .zip(outcomes)
            .map(|(steps, outcome)| outcome.is_ok_and(|answered| answered.read(|reply| steps.answered(reply)).is_ok()));
        self.unconfirmed.retain(|_| !confirmed.next().unwrap_or(false));
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        let now = self.shared.servers.clock.now();
        self.shared.change(|state| state.releases.sent(self.node, unconfirmed, now));
        self.shared.worker.call();
    }
}

impl Job for Shared {
    fn work(self: Arc<Shared>) -> Next {
        loop {
            let now = self.servers.clock.now();
            let next = self.change(|state| state.releases.next(now, |pending| self.node_of(pending)));
            match next {
                ToRelease::At(at) => return Next::At(at),
                ToRelease::Closed => return Next::Never,
                ToRelease::Now(node, batch) => self.worker.spawn(self.clone().release_batch(node, batch)),
            }
        }
    }
}

/// Whether another call to the same server would wait just as long.
fn is_in_vain(error: &CallError) -> bool {
    let (CallError::Failed(failure) | CallError::Unknown(failure)) = error else {
        return false;
    };
    matches!(failure.kind(), FailureKind::TimedOut | FailureKind::Unreachable)
}

fn late() -> CallError {
    unsettled(CallError::Failed(Failure::new(FailureKind::TimedOut, "no answer in time")))
}

/// Nothing was sent for the new call, so its outcome is certain: it failed.
fn unsettled(error: CallError) -> CallError {
    let (kind, text) = match &error {
        CallError::Failed(failure) | CallError::Unknown(failure) => (failure.kind(), failure.text()),
        CallError::Invalid(_) => return error,
    };
    let text = format!("an earlier release is not confirmed: {text}");
    CallError::Failed(Failure::new(kind, text))
}
