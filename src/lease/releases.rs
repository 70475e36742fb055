//! Releases for which no caller waits. Each is posted on the connection, behind all earlier calls of the gate. Those that
//! the server does not confirm are repeated by the gate's own thread.

use super::permits::Permits;
use crate::engine::connection::{Connection, Outcome};
use crate::engine::mode::Mode;
use crate::engine::place::Place;
use crate::engine::servers::{Sending, Servers};
use crate::engine::watched::Watched;
use crate::engine::worker::{Job, NextWork};
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::call::Packed;
use crate::protocol::exchange::{error_in, is_no_script};
use crate::protocol::inbox::{GivenUpNumber, Inbox, Mailbox};
use crate::protocol::keeper::Number;
use crate::protocol::releases::{self, Settled, Steps, ToRelease};
use crate::protocol::routing::NodeId;
use crate::sync::lock;
use crate::trace::Span;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

pub(crate) type PendingRelease = releases::PendingRelease<Arc<Connection>>;

/// The waits of a gate: those in progress, and those that were given up.
pub(crate) type AllWaits = Arc<Mutex<Inbox<Place<Mailbox>>>>;

/// A permit that was dropped, until its release is answered.
pub(crate) struct Dropped {
    pub(crate) permits: Arc<Permits>,
    pub(crate) number: Number,
    pub(crate) span: Span,
}

pub(crate) struct Releases {
    servers: Arc<Servers>,
    all_waits: AllWaits,
    state: Watched<ReleaseState>,
    /// How many releases hold back later calls of their names. Zero for almost every call, which then needs no lock.
    unconfirmed: AtomicUsize,
    /// How many posted releases had to be sent again, because the server had lost the script, or the key has moved.
    resent: AtomicU64,
    /// The number of the last release that was posted.
    last: AtomicU64,
}

type ReleaseState = releases::Releases<Arc<Connection>>;

/// The releases that precede a call.
#[derive(Clone, Copy)]
pub(crate) struct Earlier {
    /// The number of the last one.
    last: u64,
    resent: u64,
}

impl Releases {
    pub(crate) fn new(servers: Arc<Servers>, all_waits: AllWaits) -> Arc<Releases> {
        let (unconfirmed, resent, last) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Releases { servers, all_waits, state: Watched::default(), unconfirmed, resent, last })
    }

    /// The releases of a gate that is not dropped.
    pub(crate) fn of_open_gate(releases: &Weak<Releases>) -> Option<Arc<Releases>> {
        releases.upgrade().filter(|releases| !releases.state.look(|state| state.is_closed()))
    }

    /// The gate is dropped. Its own thread continues for up to 30 s with the releases that are not confirmed.
    pub(crate) fn close(&self) {
        let now = self.servers.clock.now();
        self.state.change(|state| state.close(now));
    }

    /// Sends a release without waiting for its reply. Later calls of this gate for the same name run after it.
    pub(crate) fn post(self: &Arc<Releases>, pending: PendingRelease) {
        if pending.is_one_call() {
            return Posted::send(self, pending, None);
        }
        self.change(|state| state.add([pending])); // the gate's own thread sends it
        self.servers.worker.call();
    }

    /// As `post`, for a permit that is dropped.
    pub(crate) fn post_dropped(self: &Arc<Releases>, pending: PendingRelease, dropped: Dropped) {
        Posted::send(self, pending, Some(dropped));
    }

    /// The releases that precede a call which is made now.
    pub(crate) fn earlier(&self) -> Earlier {
        Earlier { last: self.last.load(Ordering::Acquire), resent: self.resent.load(Ordering::Acquire) }
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
        let is_posted = |state: &mut ReleaseState| state.has_posted(key, earlier.last);
        if self.resent.load(Ordering::Acquire) == earlier.resent && !self.state.look(is_posted) {
            return Ok(false);
        }
        let until = self.servers.clock.now() + self.servers.timeouts.read;
        self.wait_until(until, mode, |state| !is_posted(state)).await.ok_or_else(late)?;
        self.settle(key, own_id, Some(until), mode).await?;
        Ok(true)
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
        if self.unconfirmed.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let Releases { servers, state, .. } = self;
        let until = until.unwrap_or_else(|| servers.clock.now() + servers.timeouts.read);
        let settles = async {
            loop {
                let settled = |state: &mut ReleaseState| match state.settle(key, own_id, servers.clock.now()) {
                    Settled::Soon => None,
                    settled => Some(settled),
                };
                match state.until(Some(servers.clock.machine_time(until)), mode, settled).await {
                    Some(Settled::After(pending)) => {
                        let is_own = own_id == Some(pending.id.as_str());
                        match self.release(pending, until, mode).await {
                            // The call itself would wait in vain too.
                            Err(error) if is_own || error.is_late() => return Err(unsettled(error)),
                            Err(_) => return Ok(()),
                            Ok(()) => {}
                        }
                    }
                    Some(_) => return Ok(()),
                    None => return Err(late()),
                }
            }
        };
        servers.limited(Some(until), mode, settles).await.unwrap_or_else(|| Err(late()))
    }

    /// Returns when all releases are confirmed, or their permits have ended by themselves. `false`: not by `until`.
    pub(crate) async fn all_confirmed(&self, until: Instant, mode: Mode) -> bool {
        let is_confirmed = |state: &mut ReleaseState| state.posted.is_empty() && state.is_empty();
        self.wait_until(until, mode, is_confirmed).await.is_some()
    }
}

/// A release that is posted, until its reply is here.
struct Posted {
    queue: Arc<Releases>,
    number: u64,
    pending: PendingRelease,
    steps: Steps,
    dropped: Option<Dropped>,
    /// The wait that is forgotten when it is confirmed.
    given_up: Option<GivenUpNumber>,
}

impl Posted {
    fn send(queue: &Arc<Releases>, mut pending: PendingRelease, dropped: Option<Dropped>) {
        let steps = pending.steps();
        let (behind, given_up) = pending.take_connection(|connection| !connection.is_closed());
        let Some(call) = steps.call() else {
            return;
        };
        let key = pending.keys.meta.clone();
        let connected = || queue.servers.connected(key.as_bytes());
        let connection = behind.or_else(connected);
        let number = queue.state.look(|state| {
            let number = queue.last.fetch_add(1, Ordering::AcqRel) + 1;
            state.post(number, &key);
            number
        });
        let posted = Posted { queue: queue.clone(), number, pending, steps, dropped, given_up };
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
        connection.post(&packet, 1 + usize::from(loads), then);
    }

    /// Runs in the thread that reads, so it does not block.
    fn answered(mut self, connection: Arc<Connection>, call: Packed, loads: bool, outcome: Outcome) {
        let reply = outcome.ok().and_then(|replies| replies.into_iter().next_back());
        match reply.map(|reply| error_in(Ok(reply))) {
            Some(Err(error)) if is_no_script(&error) && !loads => {
                let queue = self.queue.clone();
                self.on(connection, &call, true);
                queue.resent.fetch_add(1, Ordering::Release); // not earlier: what is sent from now on runs after it
            }
            Some(Ok(reply)) => match self.steps.answered(reply).map(|()| self.steps.call()) {
                Ok(Some(next)) => self.on(connection, &next, false),
                Ok(None) => self.confirmed(),
                Err(_) => self.failed(),
            },
            Some(Err(_)) | None => self.failed(),
        }
    }

    fn confirmed(self) {
        let Posted { queue, number: posted, steps, dropped, given_up, .. } = self;
        queue.forget(given_up);
        if let Some(Dropped { permits, number, span }) = dropped {
            permits.released(number, !steps.has_found_nothing);
            span.ended(if steps.has_found_nothing { "gone" } else { "released" });
        }
        queue.state.change(|state| state.answered(posted));
    }

    /// The gate's own thread repeats it.
    fn failed(self) {
        let Posted { queue, number: posted, pending, dropped, .. } = self;
        if let Some(Dropped { permits, number, span }) = dropped {
            permits.remove(number);
            span.ended("unknown"); // the gate's own thread repeats it
        }
        let (node, now) = (queue.servers.node_of(pending.keys.meta.as_bytes()), queue.servers.clock.now());
        let is_paused = queue.change(|state| {
            state.answered(posted);
            state.add([pending]);
            state.is_paused(node, now)
        });
        queue.resent.fetch_add(1, Ordering::Release);
        // It looks at all of them. In an outage it would do so for each one that fails.
        if !is_paused {
            queue.servers.worker.call();
        }
    }
}

impl Releases {
    /// A release is confirmed after which no grant to this wait can follow.
    fn forget(&self, given_up: Option<GivenUpNumber>) {
        if let Some(number) = given_up {
            lock(&self.all_waits).forget(number);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut ReleaseState) -> T) -> T {
        self.state.change(|state| {
            let result = change(state);
            self.unconfirmed.store(state.count(), Ordering::Release);
            result
        })
    }

    /// Waits for a change after which `look` is true. `None`: it is `until`.
    async fn wait_until(&self, until: Instant, mode: Mode, look: impl Fn(&mut ReleaseState) -> bool) -> Option<()> {
        let latest = self.servers.clock.machine_time(until);
        let changed = self.state.until(Some(latest), mode, |state| look(state).then_some(()));
        self.servers.limited(Some(until), mode, changed).await.flatten()
    }

    /// Releases once, by `until`. If the server did not confirm it, or if this is dropped, the gate's own thread repeats it.
    pub(crate) async fn release(&self, pending: PendingRelease, until: Instant, mode: Mode) -> Result<(), CallError> {
        let mut unconfirmed = Unconfirmed { queue: self, node: None, releases: vec![pending] };
        unconfirmed.release_first(Some(until), mode).await
    }

    /// Releases each of these once, on one server.
    async fn release_batch(self: Arc<Releases>, node: NodeId, releases: Vec<PendingRelease>) {
        let mut unconfirmed = Unconfirmed { queue: &self, node: Some(node), releases };
        unconfirmed.release_all().await;
    }
}

/// Releases that are being sent. Those that are not confirmed when this is dropped are repeated.
struct Unconfirmed<'a> {
    queue: &'a Releases,
    /// The server of a batch.
    node: Option<NodeId>,
    releases: Vec<PendingRelease>,
}

impl Unconfirmed<'_> {
    /// Sends one release. If it has a connection, it is sent there, behind the earlier call: but only once, since that
    /// connection may be silent for ever.
    async fn release_first(&mut self, until: Option<Instant>, mode: Mode) -> Result<(), CallError> {
        let Some(pending) = self.releases.first_mut() else {
            return Ok(());
        };
        let (servers, sending) = (&self.queue.servers, Sending { until, ..Sending::of(mode) });
        let (behind, given_up) = pending.take_connection(|connection| !connection.is_closed());
        let mut steps = pending.steps();
        while let Some(call) = steps.call() {
            let answered = match &behind {
                Some(connection) => servers.send_behind(connection, &call, sending).await,
                None => servers.send(&call, sending).await,
            };
            let read = answered.and_then(|answered| answered.read(|reply| steps.answered(reply)));
            read.map_err(|unanswered| unanswered.error)?;
        }
        self.releases.clear();
        self.queue.forget(given_up);
        Ok(())
    }

    async fn release_all(&mut self) {
        if self.releases.len() == 1 {
            let _ = self.release_first(None, Mode::Async).await; // an error leaves it unconfirmed
            return;
        }
        let mut steps: Vec<_> = self.releases.iter().map(PendingRelease::steps).collect();
        let calls: Vec<Packed> = steps.iter().filter_map(Steps::call).collect();
        let outcomes = self.queue.servers.send_all(&calls, Sending::of(Mode::Async)).await;
        let mut confirmed = steps
            .iter_mut()
            .zip(outcomes)
            .map(|(steps, outcome)| outcome.is_ok_and(|answered| answered.read(|reply| steps.answered(reply)).is_ok()));
        let confirmed = self.releases.extract_if(.., |_| confirmed.next().unwrap_or(false));
        confirmed.for_each(|pending| self.queue.forget(pending.given_up));
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        let releases = std::mem::take(&mut self.releases);
        match self.node {
            Some(node) => {
                let now = self.queue.servers.clock.now();
                self.queue.change(|state| state.sent(node, releases, now));
            }
            None if releases.is_empty() => return,
            None => self.queue.change(|state| state.add(releases)),
        }
        self.queue.servers.worker.call();
    }
}

impl Job for Releases {
    fn work(self: Arc<Releases>) -> NextWork {
        loop {
            let now = self.servers.clock.now();
            let node_of = |pending: &PendingRelease| self.servers.node_of(pending.keys.meta.as_bytes());
            let next = self.change(|state| state.next(now, node_of));
            match next {
                ToRelease::At(at) => return NextWork::At(at),
                ToRelease::Closed => return NextWork::Never,
                ToRelease::Now(node, batch) => self.servers.worker.spawn(self.clone().release_batch(node, batch)),
            }
        }
    }
}

fn late() -> CallError {
    unsettled(CallError::Failed(Failure::new(FailureKind::TimedOut, "no answer in time")))
}

/// Nothing was sent for the new call, so its outcome is certain: it failed.
fn unsettled(error: CallError) -> CallError {
    let Some(failure) = error.failure() else {
        return error;
    };
    let text = format!("an earlier release is not confirmed: {}", failure.text());
    CallError::Failed(Failure::new(failure.kind(), text))
}
