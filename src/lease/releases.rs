//! Releases for which no caller waits, and the order of calls and releases. This module sends what the outbox
//! decides: posted on a connection behind all earlier calls of the gate, or as a driver, by the gate's own
//! thread or by a caller.

use super::outbox::SharedOutbox;
use super::permits::Permits;
use crate::engine::connection::{Connection, PacketOutcome};
use crate::engine::mode::Mode;
use crate::engine::servers::{Sending, Servers};
use crate::engine::slot::Slot;
use crate::engine::worker::{Job, NextWork};
use crate::error::words;
use crate::sync::lock;
use crate::trace::Span;
use luagate_core::call::Packed;
use luagate_core::failure::{CallError, Failure};
use luagate_core::inbox::{Inbox, Mailbox};
use luagate_core::keeper::Number;
use luagate_core::kind::FailureKind;
use luagate_core::outbox::{Before, Confirmed, Mark, Next, Ordered, Outbox, OutboxWork, Post, may_go_on};
use luagate_core::release;
use luagate_core::routing::NodeId;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

pub(crate) type PendingRelease = release::PendingRelease<Arc<Connection>>;
pub(crate) type LostCalls = release::LostCalls<Arc<Connection>>;

/// The waits of a gate: those in progress, and those that were given up.
pub(crate) type AllWaits = Arc<Mutex<Inbox<Slot<Mailbox>>>>;

/// A permit that was dropped, until its release is answered.
pub(crate) struct Dropped {
    pub(crate) permits: Arc<Permits>,
    pub(crate) number: Number,
    pub(crate) span: Span,
}

impl Dropped {
    fn released(self, found: bool) {
        self.permits.released(self.number, found);
        self.span.ended(self.permits.foreign(), if found { "released" } else { "gone" });
    }

    /// The gate's own thread repeats the release.
    fn failed(self) {
        self.permits.remove(self.number);
        self.span.ended(self.permits.foreign(), "unknown");
    }
}

pub(crate) struct Releases {
    servers: Arc<Servers>,
    all_waits: AllWaits,
    outbox: Arc<SharedOutbox>,
}

/// The releases before a call that may be sent now.
#[derive(Clone, Copy)]
pub(crate) struct Preceded {
    pub(crate) mark: Mark,
    /// A permit of the caller's own id with this fence, or a lower one, is released.
    pub(crate) floor: u64,
}

fn is_open(connection: &Arc<Connection>) -> bool {
    !connection.is_closed()
}

/// Whether later calls use another connection.
fn has_ended(connection: &Arc<Connection>) -> bool {
    connection.has_ended()
}

impl Releases {
    pub(crate) fn new(
        servers: Arc<Servers>,
        all_waits: AllWaits,
        outbox: Arc<SharedOutbox>,
    ) -> Arc<Releases> {
        let releases = Arc::new(Releases { servers, all_waits, outbox });
        releases.servers.worker.add_job(Arc::<Releases>::downgrade(&releases));
        releases
    }

    /// The releases of a gate that is not dropped.
    pub(crate) fn of_open_gate(releases: &Weak<Releases>) -> Option<Arc<Releases>> {
        releases.upgrade().filter(|releases| !releases.outbox.look(|outbox| outbox.is_closed()))
    }

    /// The gate is dropped. Its own thread continues for up to 30 s with the releases that are not confirmed.
    pub(crate) fn close(&self) {
        let now = self.servers.clock.now();
        self.outbox.change(|outbox| outbox.close(now));
    }

    // Posting.

    /// Sends a release without waiting for its reply. Later calls of this gate for the same name run after
    /// it.
    pub(crate) fn post(self: &Arc<Releases>, release: PendingRelease) {
        self.post_of(release, None);
    }

    /// As `post`, for a permit that is dropped.
    pub(crate) fn post_dropped(self: &Arc<Releases>, release: PendingRelease, dropped: Dropped) {
        self.post_of(release, Some(dropped));
    }

    fn post_of(self: &Arc<Releases>, release: PendingRelease, dropped: Option<Dropped>) {
        let current = self.servers.connected(release.keys.meta.as_bytes());
        let now = self.servers.clock.now();
        match self.outbox.change(|outbox| outbox.post(release, current, now, is_open)) {
            (_, Some(post)) => self.post_on(post, dropped),
            (number, None) => self.leave_to_worker(number, dropped),
        }
    }

    fn post_on(self: &Arc<Releases>, mut post: Post<Arc<Connection>>, dropped: Option<Dropped>) {
        post.with_text |= post.on.is_first_release();
        let (releases, connection) = (self.clone(), post.on.clone());
        let packet = post.packet();
        connection.post(&packet, 1, move |outcome| releases.answered(post, outcome, dropped));
    }

    /// Runs in the thread that reads, so it does not block.
    fn answered(
        self: &Arc<Releases>,
        post: Post<Arc<Connection>>,
        outcome: PacketOutcome,
        dropped: Option<Dropped>,
    ) {
        let reply = outcome.ok().and_then(|replies| replies.into_iter().next()).map(Ok);
        let (number, now) = (post.number, self.servers.clock.now());
        match self.outbox.change(|outbox| outbox.answered(post, reply, now, is_open)) {
            Next::Post(post) => self.post_on(post, dropped),
            Next::Confirmed { found } => {
                if let Some(dropped) = dropped {
                    dropped.released(found);
                }
                self.confirm(number);
            }
            Next::Due { closes } => {
                closes.inspect(|connection| connection.close());
                self.leave_to_worker(number, dropped);
            }
        }
    }

    fn confirm(&self, number: u64) {
        let Confirmed { given_up, calls_worker } =
            self.outbox.change(|outbox| outbox.confirm(number, has_ended));
        if let Some(given_up) = given_up {
            lock(&self.all_waits).forget(given_up);
        }
        if calls_worker {
            self.servers.worker.call();
        }
    }

    /// The gate's own thread sends it.
    fn leave_to_worker(&self, number: u64, dropped: Option<Dropped>) {
        if let Some(dropped) = dropped {
            dropped.failed();
        }
        // That thread looks at all of them. In an outage it would do so for each one that fails.
        let node_of = |key: &[u8]| self.servers.node_of(key);
        let now = self.servers.clock.now();
        if !self.outbox.look(|outbox| outbox.waits(number, node_of, now)) {
            self.servers.worker.call();
        }
    }

    // The order of calls.

    /// The moment of a call that is sent now.
    pub(crate) fn mark(&self) -> Mark {
        self.outbox.mark()
    }

    /// Returns when this call may be sent: what precedes it is released, or posted on the connection that it
    /// will use. Waits until `until` at most; `None`: for the read timeout. An error means that a release of
    /// its own id is not confirmed, or that the time is over.
    pub(crate) async fn before(
        &self,
        call: Ordered<'_>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<Preceded, CallError> {
        let mark = self.mark();
        if call.after.is_none() && !self.outbox.is_waited_for() {
            return Ok(Preceded { mark, floor: 0 });
        }
        let Releases { servers, .. } = self;
        let until = until.unwrap_or_else(|| servers.clock.now() + servers.timeouts.read);
        let preceded = servers.worker.limited(Some(until), mode, self.settle(call, until, mode));
        preceded.await.unwrap_or_else(|| Err(late()))
    }

    async fn settle(&self, mut call: Ordered<'_>, until: Instant, mode: Mode) -> Result<Preceded, CallError> {
        let clock = &self.servers.clock;
        loop {
            let look = |outbox: &mut Outbox<_>| match outbox.before(call, clock.now(), is_open) {
                Before::Wait => None,
                before => Some((before, outbox.mark())),
            };
            let found = self.outbox.until(clock.machine_time(until), mode, look).await;
            let (before, mark) = found.ok_or_else(late)?;
            match before {
                Before::Send { numbers, is_own } => {
                    let driver = Driver { releases: self, node: None, numbers };
                    match self.drive(driver, Some(until), mode).await {
                        Ok(()) => {}
                        Err(error) if may_go_on(is_own, &error) => call.only_own = true,
                        Err(error) => return Err(unsettled(error)),
                    }
                }
                Before::Clear { floor } => return Ok(Preceded { mark, floor }),
                Before::Wait => {}
            }
        }
    }

    /// Whether a call for this key that followed `mark`, and is answered, may have run before a release that
    /// precedes it.
    pub(crate) fn is_overtaken(&self, key: &[u8], mark: Mark) -> bool {
        self.mark().delays != mark.delays || self.outbox.look(|outbox| outbox.is_overtaken(key, mark))
    }

    /// Returns when all releases are confirmed, or their permits have ended by themselves, and no lost call
    /// can run any more. `false`: not by `until`.
    pub(crate) async fn all_confirmed(&self, until: Instant, mode: Mode) -> bool {
        self.servers.worker.limited(Some(until), mode, self.confirm_all(until, mode)).await == Some(true)
    }

    /// A connection whose server is silent would keep one release for as long as it is open, so it is closed.
    async fn confirm_all(&self, until: Instant, mode: Mode) -> bool {
        let latest = self.servers.clock.machine_time(until);
        loop {
            let look = |outbox: &mut Outbox<_>| match outbox.silent(is_open) {
                None => outbox.is_empty().then_some(None),
                silent => Some(silent),
            };
            match self.outbox.until(latest, mode, look).await {
                None => return false,
                Some(None) => return true,
                Some(Some(silent)) => self.close_silent(&silent),
            }
        }
    }

    fn close_silent(&self, connection: &Connection) {
        connection.close();
        self.servers.worker.call();
    }

    // Driving.

    /// Releases once, by `until`. If the server did not confirm it, or if this is dropped, the gate's own
    /// thread repeats it.
    pub(crate) async fn release(
        &self,
        release: PendingRelease,
        until: Instant,
        mode: Mode,
    ) -> Result<(), CallError> {
        let number = self.outbox.change(|outbox| outbox.send(release));
        self.drive(Driver { releases: self, node: None, numbers: vec![number] }, Some(until), mode).await
    }

    /// Sends these releases, in one packet if there are several. Returns the first error.
    async fn drive(&self, driver: Driver<'_>, until: Option<Instant>, mode: Mode) -> Result<(), CallError> {
        let (numbers, sending) = (&driver.numbers, Sending { until, ..Sending::of(mode) });
        let calls = self.outbox.look(|outbox| {
            let calls = numbers.iter().filter_map(|number| Some((*number, outbox.call(*number)?)));
            calls.collect::<Vec<(u64, Packed)>>()
        });
        let (numbers, calls): (Vec<u64>, Vec<Packed>) = calls.into_iter().unzip();
        let outcomes = self.servers.send_all(&calls, sending).await;
        let mut result = Ok(());
        for (number, mut outcome) in numbers.into_iter().zip(outcomes) {
            let sent = loop {
                let next = outcome.and_then(|answered| {
                    answered.read(|reply| self.outbox.change(|outbox| outbox.sent(number, reply)))
                });
                match next {
                    Err(unanswered) => break Err(unanswered.error),
                    Ok(Some(call)) => outcome = self.servers.send(&call, sending).await,
                    Ok(None) => break Ok(()),
                }
            };
            match sent {
                Ok(()) => self.confirm(number),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    async fn send_batch(self: Arc<Releases>, node: NodeId, numbers: Vec<u64>) {
        let driver = Driver { releases: &self, node: Some(node), numbers };
        let _ = self.drive(driver, None, Mode::Worker).await; // an error leaves a release unconfirmed
    }
}

/// The driver of releases that are being sent. Those that are not confirmed when this is dropped are due
/// again.
struct Driver<'a> {
    releases: &'a Releases,
    /// For a batch of the gate's own thread: its server.
    node: Option<NodeId>,
    numbers: Vec<u64>,
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let Driver { releases, node, numbers } = self;
        if releases.servers.is_own_process() {
            let now = releases.servers.clock.now();
            releases.outbox.change(|outbox| outbox.unsent(numbers, *node, now));
            releases.servers.worker.call();
        }
    }
}

impl Job for Releases {
    fn work(self: Arc<Releases>) -> NextWork {
        loop {
            let now = self.servers.clock.now();
            let node_of = |key: &[u8]| self.servers.node_of(key);
            match self.outbox.change(|outbox| outbox.next(now, node_of, is_open)) {
                OutboxWork::At(at) => return NextWork::At(at),
                OutboxWork::Closed => return NextWork::Never,
                OutboxWork::Post(post) => self.post_on(post, None),
                OutboxWork::Close(connection) => connection.close(),
                OutboxWork::Send(node, batch) => {
                    self.servers.worker.spawn(self.clone().send_batch(node, batch))
                }
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
    let text = format!("an earlier release is not confirmed: {}", words::of(failure));
    CallError::Failed(Failure::new(failure.kind(), text))
}
