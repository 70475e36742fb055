//! One wait, of a thread or a task. Executes the actions of the waiter in `protocol`, and reports their
//! results as events.

pub(crate) mod cancel;
pub(crate) mod polled;

use crate::clock::{Busy, Clock, machine_now};
use crate::engine::connection::{Connection, Listening, Receiver};
use crate::engine::mode::Mode;
use crate::engine::server::{Purpose, Server};
use crate::engine::servers::{Make, Sending, Servers, Unanswered};
use crate::engine::slot::Slot;
use crate::engine::worker::Worker;
use crate::error::{AcquireError, TryAcquireError, WaitError, words};
use crate::foreign::Foreign;
use crate::lease::outbox::SharedOutbox;
use crate::lease::releases::{AllWaits, LostCalls, PendingRelease, Preceded, Releases};
use crate::lua::SCRIPTS;
use crate::sync::lock;
use cancel::Cancel;
use luagate_core::call::{Call, Packed};
use luagate_core::failure::{CallError, Failure};
use luagate_core::inbox::{MEMORY, Mail, Mailbox, Received};
use luagate_core::invalid::Invalid;
use luagate_core::keys::Keys;
use luagate_core::kind::FailureKind;
use luagate_core::latch_target::LatchTarget;
use luagate_core::lease::Sent;
use luagate_core::outbox::{Mark, Ordered};
use luagate_core::release::GivenUpNumber;
use luagate_core::routing::NodeId;
use luagate_core::semaphore::AcquireAnswer;
use luagate_core::waiter::{
    Action, AskKind, Event, GiveBack, Granted, LAST_CALL, PermitTarget, WaitTarget, Waiter,
};
use polled::KeptTicket;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many waits of one caller may end because their grant arrived after its end. With a lease that is
/// shorter than the way of a reply, all of them do.
const MOST_LATE: usize = 3;

/// The pauses between attempts to subscribe again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A thread that waits for less does not read from the connection: a socket ends a read up to 8 ms too late.
const SHORTEST_READ: Duration = Duration::from_millis(2);

/// The parts of a gate that a wait uses.
pub(crate) struct WaitDriver {
    pub(crate) servers: Arc<Servers>,
    pub(crate) registry: Arc<Registry>,
    /// The servers to which the gate tries to subscribe again.
    pub(crate) retried: Arc<Mutex<BTreeSet<NodeId>>>,
    pub(crate) releases: Arc<Releases>,
    /// How long a wait continues while the server cannot be reached.
    pub(crate) outage: Duration,
}

/// The caller of an operation, and how it waits.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) mode: Mode,
    pub(crate) cancel: Option<&'a Cancel>,
    /// For a future that begins anew after it was stopped.
    pub(crate) kept: Option<&'a KeptTicket>,
}

impl Caller<'_> {
    pub(crate) fn of(mode: Mode) -> Caller<'static> {
        Caller { mode, cancel: None, kept: None }
    }
}

impl WaitDriver {
    /// Asks for permits once. If they are not granted, nothing remains on the server.
    ///
    /// # Cancel safety
    /// If this is dropped, the permits are released.
    pub(crate) async fn at_once(
        &self,
        target: &mut PermitTarget,
        caller: Caller<'_>,
    ) -> Result<Granted, TryAcquireError> {
        target.check()?;
        self.check_renewal(target)?;
        let acquire = target.acquire(AskKind::First, "");
        let doubts = |answer: &AcquireAnswer, sent: Sent, floor: u64| {
            let is_doubtful = target.is_doubtful(AskKind::Last, answer, sent.repeated, floor);
            is_doubtful.then(|| Doubt { still_held: 0, is_overtaken: target.is_of_released(answer, floor) })
        };
        let (answer, sent, floor) = self.once(&acquire, &[Part::of(target)], doubts, caller).await?;
        target.entry.floor = floor;
        let (result, gives_back) = target.at_once(answer, sent, self.servers.clock.moment());
        if gives_back {
            let now = self.servers.clock.now();
            self.release_now(target.release(LostCalls::default(), now), now + LAST_CALL, caller.mode).await;
        }
        let result = result.map_err(|error| TryAcquireError::of(error, &target.keys, &target.id));
        if let Err(TryAcquireError::Denied(_)) = &result {
            self.servers.counts.denied.add_one();
        }
        result
    }

    /// Sends a call that takes all of `parts` at once, or none. Also returns the fence up to which the
    /// permits of the id are released. `doubts`: whether a late release would change the answer. Permits from
    /// an earlier run of this call are released, and the call is made once more if it may have run before a
    /// release that precedes it.
    ///
    /// # Cancel safety
    /// If this is dropped, the permits are released.
    pub(crate) async fn once<C: Call>(
        &self,
        call: &C,
        parts: &[Part<'_>],
        doubts: impl Fn(&C::Answer, Sent, u64) -> Option<Doubt>,
        caller: Caller<'_>,
    ) -> Result<(C::Answer, Sent, u64), CallError> {
        self.servers.check_process()?;
        let mut preceded = self.before_all(parts, None, caller.mode).await?;
        let (packed, mut is_first) = (call.pack(&SCRIPTS), true);
        loop {
            let Preceded { mark, floor } = preceded;
            let mut once =
                Once { waits: self, call: &packed, parts, lost: LostCalls::default(), is_sent: true };
            let sending = self.servers.patiently(caller.mode);
            let answered = self.servers.send_as(packed.key(), sending, &mut once).await;
            let read = answered.and_then(|answered| answered.read_at(|reply| call.answer(reply)));
            let (answer, sent) = read.map_err(|Unanswered { error, .. }| {
                once.is_sent = matches!(error, CallError::Unknown(_));
                error
            })?;
            let doubt = doubts(&answer, sent, floor);
            once.is_sent = doubt.as_ref().is_some_and(|doubt| doubt.still_held > 0);
            once.lost = LostCalls::default();
            drop(once); // releases
            let is_overtaken =
                doubt.is_some_and(|doubt| doubt.is_overtaken || self.is_overtaken(parts, mark));
            if !is_first || !is_overtaken {
                return Ok((answer, sent, floor));
            }
            is_first = false;
            preceded = self.before_all(parts, Some(mark), caller.mode).await?;
        }
    }

    async fn before_all(
        &self,
        parts: &[Part<'_>],
        after: Option<Mark>,
        mode: Mode,
    ) -> Result<Preceded, CallError> {
        let mark = self.releases.mark();
        let mut floor = 0;
        for Part { keys, id, .. } in parts {
            let ordered = Ordered { key: keys.meta.as_bytes(), own_id: Some(id), after, only_own: false };
            floor = floor.max(self.releases.before(ordered, None, mode).await?.floor);
        }
        Ok(Preceded { mark, floor })
    }

    fn is_overtaken(&self, parts: &[Part<'_>], mark: Mark) -> bool {
        parts.iter().any(|part| self.releases.is_overtaken(part.keys.meta.as_bytes(), mark))
    }

    /// Waits in line for permits, until `deadline` at the latest. If they had ended when their grant arrived,
    /// begins anew, a limited number of times.
    ///
    /// # Cancel safety
    /// If this is dropped, the place in line is given up and a grant is released.
    pub(crate) async fn in_line(
        &self,
        mut target: PermitTarget,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<(Granted, Busy), AcquireError> {
        self.servers.check_process()?;
        target.check()?;
        self.check_renewal(&target)?;
        let mut late = 0;
        loop {
            let mut again = None;
            let result = self.once_in_line(target, deadline, caller, &mut again).await;
            let is_over = deadline.is_some_and(|end| end <= self.servers.clock.now());
            late += 1;
            match again {
                Some(again) if late < MOST_LATE && !is_over => target = again,
                _ => return result,
            }
        }
    }

    /// Fails if the lease is to be renewed, and nobody could do it.
    fn check_renewal(&self, target: &PermitTarget) -> Result<(), CallError> {
        if target.lease.renewed { self.servers.check_worker() } else { Ok(()) }
    }

    /// Waits in line once. `again`: what to wait for again, if the permits had ended when their grant
    /// arrived.
    async fn once_in_line(
        &self,
        mut target: PermitTarget,
        deadline: Option<Instant>,
        caller: Caller<'_>,
        again: &mut Option<PermitTarget>,
    ) -> Result<(Granted, Busy), AcquireError> {
        let (key, own_id) = (target.keys.meta.as_bytes(), Some(target.id.as_str()));
        let ordered = Ordered { key, own_id, after: None, only_own: false };
        target.entry.floor = self.releases.before(ordered, deadline, caller.mode).await?.floor;
        let Some(registered) = self.registry.register(&target.keys, &target.id) else {
            let why = format!(
                "{} already waits for this semaphore. Accepted: one wait per id. Use another id, or end the other wait",
                target.id
            );
            return Err(Invalid::new("id", why).into());
        };
        let keys = target.keys.clone();
        let mut wait = RunningWait::new(self, registered, &keys.meta, self.waiter(target, deadline), caller);
        let result = wait.run().await.map_err(|error| AcquireError::of(error, &keys, &wait.registered.id));
        match &result {
            Ok(granted) => wait.release_others(granted),
            Err(error) => self.servers.counts.refuse(error),
        }
        *again = wait.waiter.target.entry.came_late.then(|| wait.waiter.target.again());
        let busy = self.servers.clock.busy(); // until the permit is registered for renewal
        drop(wait); // not earlier: until here, a test that moves the clock waits for its mailbox
        result.map(|granted| (granted, busy))
    }

    /// Waits until a latch is open, until `deadline` at the latest.
    ///
    /// # Cancel safety
    /// If this is dropped, the server forgets the waiter after some seconds.
    pub(crate) async fn until_open(
        &self,
        target: LatchTarget,
        key: &str,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<(), WaitError> {
        self.servers.check_process()?;
        let registered = self.registry.register_shared(key);
        let opened =
            RunningWait::new(self, registered, key, self.waiter(target, deadline), caller).run().await;
        opened.map_err(WaitError::of)
    }

    fn waiter<T: WaitTarget>(&self, target: T, deadline: Option<Instant>) -> Waiter<T> {
        Waiter::new(target, deadline, self.outage, self.servers.clock.now())
    }

    /// Releases until `until`. If that fails, it is repeated in the background.
    async fn release_now(&self, pending: PendingRelease, until: Instant, mode: Mode) {
        let _ = self.releases.release(pending, until, mode).await; // an error leaves it unconfirmed
    }

    /// The connection for the messages of this server. Subscribes if needed, until `until` at most. `None`:
    /// messages do not arrive, and the waiter asks without an inbox. If the user lacks a permission the
    /// result is a failure, since otherwise every wait would be slow without any report.
    async fn message_connection(
        &self,
        server: &Arc<Server>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        let latest = self.servers.latest(until, server.options.timeouts.to_connect());
        let subscribing = server.reach(Purpose::Messages, latest, mode);
        match self.servers.worker.limited(until, mode, subscribing).await {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(failure)) if failure.kind() == FailureKind::Permission => {
                Err(with_channel(failure, &server.channel))
            }
            Some(Err(_)) | None => {
                self.retry(server);
                Ok(None)
            }
        }
    }

    /// Tries to subscribe again in the background. Then each wait asks again, since it has no inbox yet.
    fn retry(&self, server: &Arc<Server>) {
        let node = server.node;
        if !lock(&self.retried).insert(node) {
            return;
        }
        let (server, registry, retried) =
            (Arc::downgrade(server), self.registry.clone(), self.retried.clone());
        let worker = self.servers.worker.clone();
        self.servers.worker.spawn(async move {
            let mut pause = FIRST_PAUSE;
            while registry.has_waits()
                && let Some(server) = server.upgrade()
                && !server.is_retired()
            {
                let clock = &server.options.clock;
                worker.sleep(clock.now() + pause, Mode::Worker).await;
                let latest = machine_now() + server.options.timeouts.to_connect();
                match server.reach(Purpose::Messages, latest, Mode::Worker).await {
                    Err(failure) if failure.kind() != FailureKind::Permission => {}
                    Ok(None) => break,
                    _ => {
                        registry.call_all(); // a waiter without the permission gets the error
                        break;
                    }
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            lock(&retried).remove(&node);
        });
    }
}

/// The refusal of a subscription. Servers do not name the channel.
fn with_channel(failure: Failure, channel: &str) -> Failure {
    let text = words::of(&failure);
    match channel.rsplit_once(':') {
        Some((pattern, _)) if text.contains(" channel") => {
            let text = format!("the permission &{pattern}:* is missing: {text}");
            Failure::new(FailureKind::Permission, text)
        }
        _ => failure,
    }
}

/// An answer that a late release would change.
pub(crate) struct Doubt {
    /// The number of semaphores of which the id has a permit from an earlier run of the call.
    pub(crate) still_held: usize,
    /// A release that precedes the call has run after it.
    pub(crate) is_overtaken: bool,
}

/// The permits of one semaphore that a call takes at once.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) id: &'a str,
    pub(crate) is_own_id: bool,
    /// How long the server may keep a grant.
    pub(crate) longest: Duration,
}

impl Part<'_> {
    fn of(target: &PermitTarget) -> Part<'_> {
        let PermitTarget { keys, id, lease, .. } = target;
        Part { keys, id, is_own_id: lease.own_id, longest: target.longest() }
    }
}

/// One call that does not wait in line. If this is dropped before its answer is handled, a grant is released.
struct Once<'a> {
    waits: &'a WaitDriver,
    call: &'a Packed,
    parts: &'a [Part<'a>],
    lost: LostCalls,
    is_sent: bool,
}

impl Make for Once<'_> {
    fn sends_on(&mut self, connection: &Arc<Connection>) {
        self.lost.sent_on(connection.clone());
    }

    fn call(&self) -> &Packed {
        self.call
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if self.is_sent && self.waits.servers.is_own_process() {
            let now = self.waits.servers.clock.now();
            for Part { keys, id, is_own_id, longest } in self.parts {
                let pending = PendingRelease::of_call(keys, id, *is_own_id, self.lost.clone(), *longest, now);
                self.waits.releases.post(pending);
            }
        }
    }
}

/// One wait. If this is dropped before its end, it leaves the line, and a grant is released.
struct RunningWait<'a, T: WaitTarget + Send + Sync> {
    waits: &'a WaitDriver,
    registered: Registered<'a>,
    key: &'a str,
    waiter: Waiter<T>,
    caller: Caller<'a>,
    inbox: MessageSource,
    /// Its calls without an answer.
    lost: LostCalls,
    is_over: bool,
}

/// The connection that brings the messages of a wait.
#[derive(Default)]
struct MessageSource {
    connection: Option<Arc<Connection>>,
    /// The connection's own thread reads it for this wait.
    listening: Option<Listening>,
}

impl<'a, T: WaitTarget + Send + Sync> RunningWait<'a, T> {
    fn new(
        waits: &'a WaitDriver,
        registered: Registered<'a>,
        key: &'a str,
        waiter: Waiter<T>,
        caller: Caller<'a>,
    ) -> Self {
        let inbox = MessageSource::default();
        let lost = LostCalls::default();
        RunningWait { waits, registered, key, waiter, caller, inbox, lost, is_over: false }
    }

    async fn run(&mut self) -> Result<T::Granted, T::Error> {
        let clock = &self.waits.servers.clock;
        if let Some(cancel) = self.caller.cancel {
            cancel.watch(&self.registered.mailbox, clock);
        }
        // An earlier wait used the server that has the key. Its subscription exists or is being made.
        let server = self.waits.servers.known(self.key.as_bytes()).filter(|server| server.is_subscribed());
        let listens = server.is_some() || self.registered.mailbox.look(|mail| mail.is_cancelled(clock.now()));
        let mut action = self.waiter.start(listens);
        loop {
            let event = match action {
                Action::Ask { ask, until } => self.ask(ask, until).await,
                Action::Sleep { until } => Event::Mail(self.mail(until).await),
                Action::Done { result, give_back } => {
                    self.end(give_back).await;
                    return result;
                }
            };
            action = self.waiter.on(event, clock.moment());
        }
    }

    /// The next event. Waits until `until` at most. A thread reads the connection for messages, if no other
    /// thread does.
    async fn mail(&self, until: Instant) -> Mail {
        let mailbox = &self.registered.mailbox;
        let reads = self.inbox.connection.as_ref().filter(|_| self.inbox.listening.is_none());
        let take = |mail: &mut Mailbox| mail.take(until, self.waits.servers.clock.now());
        loop {
            let at = match mailbox.look(take) {
                Ok(mail) => return mail,
                Err(at) => at,
            };
            let taken = |mail: &mut Mailbox| take(mail).ok();
            let is_short = at <= self.waits.servers.clock.now() + SHORTEST_READ;
            let mail = match (self.caller.mode, reads) {
                (Mode::Blocking(may), Some(connection)) if !is_short && !connection.has_ended() => {
                    connection.wait_for_message(mailbox, at, taken, may)
                }
                (mode, _) => {
                    let found = mailbox.until(Some(at), mode, taken);
                    self.waits.servers.worker.limited(Some(at), mode, found).await.flatten()
                }
            };
            if let Some(mail) = mail {
                return mail;
            }
        }
    }

    /// Sends one call and returns the event that it leads to. If the call may have run before a release that
    /// precedes it, it is sent once more.
    async fn ask(&mut self, ask: AskKind, until: Option<Instant>) -> Event<T::Answer> {
        let releases = self.waits.releases.clone();
        let (mut mark, mut is_first) = (releases.mark(), true);
        loop {
            // In separate memory: a task that sleeps does not need it. A thread has it on its stack.
            let asked = match self.caller.mode {
                Mode::Blocking(_) => self.send(ask, until).await,
                Mode::Async | Mode::Worker => Box::pin(self.send(ask, until)).await,
            };
            let (answer, sent) = match asked {
                Ok(answered) => answered,
                Err(error) => return Event::Unanswered(error),
            };
            let target = &self.waiter.target;
            let is_overtaken =
                || target.is_overtaken(&answer) || releases.is_overtaken(self.key.as_bytes(), mark);
            if !is_first || !target.doubts(ask, &answer, sent) || !is_overtaken() {
                return Event::Answered { answer, sent };
            }
            is_first = false;
            match self.before(mark, until).await {
                Ok(preceded) => mark = preceded,
                Err(error) => return Event::Unanswered(error),
            }
        }
    }

    /// Returns when the next call may be sent.
    async fn before(&mut self, after: Mark, until: Option<Instant>) -> Result<Mark, CallError> {
        let (key, own_id) = (self.key.as_bytes(), Some(self.registered.id.as_str()));
        let ordered = Ordered { key, own_id, after: Some(after), only_own: false };
        let preceded = self.waits.releases.before(ordered, until, self.caller.mode).await?;
        self.waiter.target.has_released(preceded.floor);
        Ok(preceded.mark)
    }

    /// Sends one call of a wait. A call in line contains the inbox at the server that has the key.
    async fn send(&mut self, ask: AskKind, until: Option<Instant>) -> Result<(T::Answer, Sent), CallError> {
        let sending = Sending { until, ..Sending::of(self.caller.mode) };
        let mut make = MakeAsk { call: self.waiter.target.call(ask, "", &SCRIPTS), ask, wait: self };
        let outcome = make.wait.waits.servers.send_as(make.wait.key.as_bytes(), sending, &mut make).await;
        match outcome {
            Ok(answered) => {
                self.lost.answered_on(answered.connection());
                let read = answered.read_at(|reply| self.waiter.target.answer(ask, reply));
                read.map_err(|unanswered| unanswered.error)
            }
            Err(Unanswered { error, connection }) => {
                // An error of the server is an answer too.
                if let (CallError::Failed(_), Some(connection)) = (&error, &connection) {
                    self.lost.answered_on(connection);
                }
                Err(error)
            }
        }
    }

    /// Gives back a grant or a place in line at the end of the wait.
    async fn end(&mut self, give_back: GiveBack) {
        let now = self.waits.servers.clock.now();
        if give_back.now
            && let Some(mut pending) = self.waiter.target.give_back(LostCalls::default(), now)
        {
            self.give_up(&mut pending);
            Box::pin(self.waits.release_now(pending, self.waiter.give_back_ends(now), self.caller.mode))
                .await;
        }
        self.is_over = true;
        if give_back.later {
            self.give_back_later();
        }
    }

    /// Releases, behind the calls without an answer, a grant that they may still cause, also if its message
    /// arrives later.
    fn give_back_later(&mut self) {
        let now = self.waits.servers.clock.now();
        if let Some(mut pending) = self.waiter.target.give_back(std::mem::take(&mut self.lost), now) {
            self.give_up(&mut pending);
            if let Some(connection) = &self.inbox.connection {
                connection.listen_for(MEMORY);
            }
            self.waits.releases.post(pending);
        }
    }

    /// From now on a grant that arrives for this wait is released, until this release is confirmed.
    fn give_up(&self, pending: &mut PendingRelease) {
        let given_up = self.waits.registry.give_up(&pending.keys, &pending.id);
        pending.given_up = given_up.filter(|_| self.lost.is_empty()); // else another release follows its lost calls
    }
}

impl RunningWait<'_, PermitTarget> {
    /// The wait has its permit. Releases what its calls without an answer may still cause, once the permit is
    /// released.
    fn release_others(&mut self, granted: &Granted) {
        let mut lost = std::mem::take(&mut self.lost);
        lost.forget_closed(|connection| !connection.is_closed());
        if !lost.is_empty() {
            let (longest, now) = (self.waiter.target.longest(), self.waits.servers.clock.now());
            self.waits.releases.post(PendingRelease::of_other(&granted.identity, lost, longest, now));
        }
    }
}

impl<T: WaitTarget + Send + Sync> Drop for RunningWait<'_, T> {
    fn drop(&mut self) {
        if !self.is_over && self.waits.servers.is_own_process() && self.waiter.may_leave_something() {
            self.caller.kept.inspect(|kept| kept.keep(self.waiter.target.kept_ticket()));
            self.give_back_later();
        }
    }
}

/// Makes the call of a wait for the server that will receive it.
struct MakeAsk<'a, 'b, T: WaitTarget + Send + Sync> {
    /// As it is without an inbox, until it is prepared.
    call: Packed,
    ask: AskKind,
    wait: &'a mut RunningWait<'b, T>,
}

impl<T: WaitTarget + Send + Sync> Make for MakeAsk<'_, '_, T> {
    async fn prepare(&mut self, server: &Arc<Server>, mode: Mode) -> Result<(), Failure> {
        if self.ask != AskKind::InLine {
            return Ok(());
        }
        let (wait, mut inbox) = (&mut *self.wait, String::new());
        wait.inbox = MessageSource::default();
        if let Some(connection) = wait.waits.message_connection(server, wait.waiter.deadline, mode).await? {
            inbox = wait.registered.mailbox.look(|mail| mail.inbox(&server.channel));
            // A thread that reads is woken by messages only.
            let is_woken_by_others = wait.caller.cancel.is_some() || wait.waits.servers.clock.is_moved();
            let listens = is_woken_by_others || !matches!(mode, Mode::Blocking(_));
            wait.inbox.listening = listens.then(|| connection.listen());
            wait.inbox.connection = Some(connection);
        }
        self.call = wait.waiter.target.call(self.ask, &inbox, &SCRIPTS);
        Ok(())
    }

    fn sends_on(&mut self, connection: &Arc<Connection>) {
        self.wait.lost.sent_on(connection.clone());
    }

    fn call(&self) -> &Packed {
        &self.call
    }
}

/// All waits of a gate.
pub(crate) struct Registry {
    foreign: Foreign,
    clock: Clock,
    worker: Worker,
    outbox: Arc<SharedOutbox>,
    pub(crate) all_waits: AllWaits,
}

impl Registry {
    pub(crate) fn new(worker: &Worker, outbox: Arc<SharedOutbox>) -> Registry {
        let (foreign, clock, worker) = (worker.foreign().clone(), worker.clock().clone(), worker.clone());
        Registry { foreign, clock, worker, outbox, all_waits: AllWaits::default() }
    }

    /// Registers a wait in line for its messages. `None`: this id already waits for this semaphore.
    fn register(&self, keys: &Keys, id: &str) -> Option<Registered<'_>> {
        let make = |secret| Arc::new(Slot::new(&self.foreign, &self.clock, Mailbox::new(Some(secret))));
        let mailbox = lock(&self.all_waits).add(keys, id, Uuid::new_v4(), make)?;
        Some(Registered { registry: self, id: id.to_owned(), mailbox })
    }

    /// Registers a wait for the messages about `key`. Any number of callers may wait for the same key.
    fn register_shared(&self, key: &str) -> Registered<'_> {
        let mailbox = Arc::new(Slot::new(&self.foreign, &self.clock, Mailbox::new(None)));
        lock(&self.all_waits).add_shared(key, &mailbox);
        Registered { registry: self, id: key.to_owned(), mailbox }
    }

    /// A wait is given up. From now on a grant that arrives for it is released.
    fn give_up(&self, keys: &Keys, id: &str) -> Option<GivenUpNumber> {
        lock(&self.all_waits).give_up(self.clock.now(), keys, id)
    }

    /// Hints to all waits to ask again.
    fn call_all(&self) {
        let all: Vec<_> = lock(&self.all_waits).all().cloned().collect();
        all.iter().for_each(|mailbox| mailbox.change(|mail| mail.called = true));
    }

    /// Whether somebody waits.
    fn has_waits(&self) -> bool {
        lock(&self.all_waits).all().next().is_some()
    }
}

impl Receiver for Registry {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        let (Some(received), Ok(channel)) = (Received::read(payload), std::str::from_utf8(channel)) else {
            return;
        };
        let now = self.clock.moment();
        // The lock is released here: a wait that gets its message ends, and needs the lock for that.
        let waiting = lock(&self.all_waits).of(&received.message.id);
        let mut is_taken = false;
        for mailbox in waiting {
            is_taken |= mailbox.change(|mail| mail.put(channel, &received, now));
        }
        if !is_taken && let Some(release) = lock(&self.all_waits).release_of(&received, now.instant()) {
            self.outbox.change(|outbox| outbox.add(release));
            self.worker.call(); // it sends the release
        }
    }

    fn ended(&self) {
        self.call_all();
    }
}

/// A registered wait. Dropping this ends the registration.
struct Registered<'a> {
    registry: &'a Registry,
    id: String,
    mailbox: Arc<Slot<Mailbox>>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if self.registry.foreign.is_own_process() {
            lock(&self.registry.all_waits).remove(&self.id, &self.mailbox);
        }
    }
}
