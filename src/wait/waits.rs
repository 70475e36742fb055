//! One wait, of a thread or a task. Executes the actions of the waiter in `protocol`, and reports their results as events.

use super::cancel::Cancel;
use super::inboxes::Inboxes;
use super::polled::{Asked, Polled};
use super::registry::Registered;
use crate::clock::Busy;
use crate::engine::connection::{Connection, Listening};
use crate::engine::mode::Mode;
use crate::engine::server::Server;
use crate::engine::servers::{Make, Sending, Servers, Unanswered};
use crate::engine::worker::Worker;
use crate::error::failure::Failure;
use crate::error::{AcquireError, CallError, Invalid, TryAcquireError, WaitError};
use crate::lease::releases::{PendingRelease, Releases};
use crate::protocol::call::Packed;
use crate::protocol::inbox::{MEMORY, Mail};
use crate::protocol::lease::Moment;
use crate::protocol::waiter::{
    Action, Ask, Event, GiveBack, Granted, LAST_CALL, LatchTarget, PermitTarget, Target, Waiter,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of a gate that a wait uses.
pub(crate) struct Waits {
    pub(crate) servers: Arc<Servers>,
    pub(crate) worker: Worker,
    pub(crate) inboxes: Inboxes,
    pub(crate) releases: Arc<Releases>,
    /// How long a wait continues while the server cannot be reached.
    pub(crate) outage: Duration,
}

/// Who asks, and how it waits.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) mode: Mode,
    pub(crate) cancel: Option<&'a Cancel>,
    /// For a future: whether its grants were given back because it was not polled.
    pub(crate) polled: Option<&'a Polled>,
}

impl Caller<'_> {
    pub(crate) fn of(mode: Mode) -> Caller<'static> {
        Caller { mode, cancel: None, polled: None }
    }

    /// A task that is watched.
    pub(crate) fn polled(polled: &Polled) -> Caller<'_> {
        Caller { mode: Mode::Async, cancel: None, polled: Some(polled) }
    }

    /// Whether a grant that arrives now is given back already.
    pub(crate) fn is_given_back(&self) -> bool {
        self.polled.is_some_and(Polled::is_given_back)
    }

    /// The caller has its grant. Returns whether it keeps it.
    pub(crate) fn keeps_grant(&self) -> bool {
        self.polled.is_none_or(Polled::keeps_grant)
    }
}

/// The release that a wait needs if it is dropped.
pub(crate) trait Abandon: Target + Send + Sync {
    /// The release of everything that the server may have granted to this wait. `None`: it grants nothing.
    fn undo(&self, connection: Option<Arc<Connection>>, now: Instant) -> Option<PendingRelease>;
}

impl Abandon for PermitTarget {
    fn undo(&self, connection: Option<Arc<Connection>>, now: Instant) -> Option<PendingRelease> {
        Some(self.release(connection, now))
    }
}

/// A latch gives nothing. The server forgets a waiter that does not ask again.
impl Abandon for LatchTarget {
    fn undo(&self, _: Option<Arc<Connection>>, _: Instant) -> Option<PendingRelease> {
        None
    }
}

impl Waits {
    /// Asks for permits once. If they are not granted, nothing remains on the server.
    ///
    /// # Cancel safety
    /// If this is dropped, the permits are released.
    pub(crate) async fn at_once(
        &self,
        target: &mut PermitTarget,
        caller: Caller<'_>,
    ) -> Result<Granted, TryAcquireError> {
        self.prepare(target, None, caller.mode).await?;
        if let Some(polled) = caller.polled {
            polled.asks(vec![Asked::of(target, None)]);
        }
        loop {
            let earlier = self.releases.earlier();
            let mut once = Once { waits: self, target, connection: None, is_sent: false };
            let (answer, sent) = once.ask(caller.mode).await?;
            if caller.is_given_back() {
                drop(once); // releases
                self.settle(target, None, caller.mode).await?;
                caller.polled.inspect(|polled| polled.asks_again());
                continue;
            }
            let (result, gives_back) = once.target.at_once(answer, sent);
            if gives_back {
                self.release_now(once.target, caller.mode).await;
            }
            once.is_sent = false;
            if let Err(TryAcquireError::Denied(_)) = &result {
                let PermitTarget { keys, id, .. } = &*once.target;
                if self.releases.has_overtaken(keys.meta.as_bytes(), Some(id), earlier, caller.mode).await? {
                    continue;
                }
                self.servers.counts.denied.add_one();
            }
            return result;
        }
    }

    /// Waits in line for permits, until `deadline` at the latest.
    ///
    /// # Cancel safety
    /// If this is dropped, the place in line is given up and a grant is released.
    pub(crate) async fn in_line(
        &self,
        target: PermitTarget,
        deadline: Option<Instant>,
        caller: Caller<'_>,
    ) -> Result<(Granted, Busy), AcquireError> {
        self.prepare(&target, deadline, caller.mode).await?;
        let Some(registered) = self.inboxes.registry.register(&target.keys, &target.id) else {
            let why = format!(
                "{} already waits for this semaphore. Accepted: one wait per id. Use another id, or end the other wait",
                target.id
            );
            return Err(Invalid::new("id", why).into());
        };
        if let Some(polled) = caller.polled {
            polled.asks(vec![Asked::of(&target, Some(&registered.mailbox))]);
        }
        let keys = target.keys.clone();
        let mut wait = Wait::new(self, registered, &keys.meta, target, deadline, caller);
        let result = wait.run().await;
        if let Err(error) = &result {
            self.servers.counts.refuse(error);
        }
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
        self.servers.check_process().map_err(CallError::Failed)?;
        let registered = self.inboxes.registry.register_shared(key);
        Wait::new(self, registered, key, target, deadline, caller).run().await
    }

    /// Reports arguments that are invalid for every server. Waits until no earlier release of this name must be repeated.
    async fn prepare(&self, target: &PermitTarget, until: Option<Instant>, mode: Mode) -> Result<(), CallError> {
        self.servers.check_process().map_err(CallError::Failed)?;
        target.check()?;
        self.settle(target, until, mode).await
    }

    async fn settle(&self, target: &PermitTarget, until: Option<Instant>, mode: Mode) -> Result<(), CallError> {
        self.releases.settle(target.keys.meta.as_bytes(), Some(&target.id), until, mode).await
    }

    /// Releases everything that the id has, within the time of the last call. If that fails, it is repeated in the
    /// background.
    async fn release_now(&self, target: &PermitTarget, mode: Mode) {
        let now = self.servers.clock.now();
        if !self.releases.now(target.release(None, now), now + LAST_CALL, mode).await {
            self.inboxes.registry.give_up(&target.keys, &target.id);
        }
    }
}

/// One call that does not wait in line. If this is dropped before its answer is handled, a grant is released.
struct Once<'a> {
    waits: &'a Waits,
    target: &'a mut PermitTarget,
    connection: Option<Arc<Connection>>,
    is_sent: bool,
}

impl Once<'_> {
    async fn ask(&mut self, mode: Mode) -> Result<(<PermitTarget as Target>::Answer, Moment), CallError> {
        let call = Target::call(&*self.target, Ask::First, "");
        self.is_sent = true;
        let mut make = MakeOnce { call: &call, connection: &mut self.connection };
        let answered = self.waits.servers.send_as(call.key(), Sending::of(mode), &mut make).await;
        let read = answered.and_then(|answered| {
            let sent = answered.sent;
            Ok((answered.read(|reply| self.target.answer(Ask::First, reply))?, sent))
        });
        read.map_err(|Unanswered { error, connection }| {
            self.is_sent = matches!(error, CallError::Unknown(_));
            self.connection = connection;
            error
        })
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if self.is_sent && self.waits.servers.is_own_process() {
            let now = self.waits.servers.clock.now();
            self.waits.releases.post(self.target.release(self.connection.take(), now));
        }
    }
}

/// Makes a call that does not wait in line.
pub(crate) struct MakeOnce<'a> {
    pub(crate) call: &'a Packed,
    /// The connection on which it is sent.
    pub(crate) connection: &'a mut Option<Arc<Connection>>,
}

impl Make for MakeOnce<'_> {
    fn sends_on(&mut self, connection: &Arc<Connection>) {
        *self.connection = Some(connection.clone());
    }

    fn call(&self) -> &Packed {
        self.call
    }
}

/// One wait. If this is dropped before its end, it leaves the line, and a grant is released.
struct Wait<'a, T: Abandon> {
    waits: &'a Waits,
    registered: Registered<'a>,
    key: &'a str,
    waiter: Waiter<T>,
    deadline: Option<Instant>,
    caller: Caller<'a>,
    inbox: Inbox,
    /// The connection of the last call, until it is answered.
    connection: Option<Arc<Connection>>,
    is_over: bool,
}

/// The connection that brings the messages of a wait.
#[derive(Default)]
struct Inbox {
    connection: Option<Arc<Connection>>,
    /// The connection's own thread reads it for this wait.
    listening: Option<Listening>,
}

impl<'a, T: Abandon> Wait<'a, T> {
    fn new(
        waits: &'a Waits,
        registered: Registered<'a>,
        key: &'a str,
        target: T,
        deadline: Option<Instant>,
        caller: Caller<'a>,
    ) -> Wait<'a, T> {
        let waiter = Waiter::new(target, deadline, waits.outage, waits.servers.clock.now());
        let inbox = Inbox::default();
        Wait { waits, registered, key, waiter, deadline, caller, inbox, connection: None, is_over: false }
    }

    async fn run(&mut self) -> Result<T::Granted, T::Error> {
        let clock = &self.waits.servers.clock;
        if let Some(cancel) = self.caller.cancel {
            cancel.watch(self.registered.mailbox.clone());
        }
        let listens = self.waits.inboxes.is_opened(self.key) || self.registered.mailbox.is_cancelled();
        let mut action = self.waiter.start(listens);
        loop {
            let event = match action {
                Action::Ask { ask, until } => self.ask(ask, until).await,
                Action::Sleep { until } => match self.mail(until).await {
                    Mail::Message { message, received } => Event::Message { message, received },
                    Mail::Called => Event::Called,
                    Mail::Cancelled => Event::Cancelled,
                    Mail::Timer => Event::Timer,
                },
                Action::Done { result, give_back } => {
                    self.end(give_back).await;
                    return result;
                }
            };
            action = self.waiter.on(event, clock.moment());
        }
    }

    async fn mail(&self, until: Instant) -> Mail {
        let reads = self.inbox.connection.as_ref().filter(|_| self.inbox.listening.is_none());
        self.registered.mailbox.take(until, reads, &self.waits.worker, self.caller.mode).await
    }

    /// Sends one call and returns the event that it leads to.
    async fn ask(&mut self, ask: Ask, until: Option<Instant>) -> Event<T::Answer> {
        if self.caller.is_given_back() {
            if let Some(PendingRelease { keys, id, .. }) = self.waiter.target.undo(None, self.waits.servers.clock.now())
            {
                let key = keys.meta.as_bytes();
                if let Err(error) = self.waits.releases.settle(key, Some(&id), until, self.caller.mode).await {
                    return Event::Unanswered(error);
                }
            }
            self.caller.polled.inspect(|polled| polled.asks_again());
        }
        // In separate memory: a task that sleeps does not need it. A thread has it on its stack.
        let asked = match self.caller.mode {
            Mode::Blocking(_) => self.send(ask, until).await,
            Mode::Async => Box::pin(self.send(ask, until)).await,
        };
        let event = match asked {
            Ok((answer, sent)) => {
                self.connection = None;
                Event::Answered { answer, sent }
            }
            Err(unanswered) => {
                self.connection = unanswered.connection;
                Event::Unanswered(unanswered.error)
            }
        };
        if self.caller.is_given_back() { Event::GivenBack } else { event }
    }

    /// Sends one call of a wait. A call in line contains the inbox at the server that has the key.
    async fn send(&mut self, ask: Ask, until: Option<Instant>) -> Result<(T::Answer, Moment), Unanswered> {
        let sending = Sending { until, ..Sending::of(self.caller.mode) };
        let mut make = MakeAsk {
            call: self.waiter.target.call(ask, ""),
            target: &self.waiter.target,
            ask,
            registered: &self.registered,
            inboxes: &self.waits.inboxes,
            deadline: self.deadline,
            is_woken_by_others: self.caller.cancel.is_some() || self.waits.servers.clock.is_moved(),
            inbox: &mut self.inbox,
            connection: &mut self.connection,
        };
        let answered = self.waits.servers.send_as(self.key.as_bytes(), sending, &mut make).await?;
        let sent = answered.sent;
        Ok((answered.read(|reply| self.waiter.target.answer(ask, reply))?, sent))
    }

    /// Gives back a grant or a place in line at the end of the wait.
    async fn end(&mut self, give_back: GiveBack) {
        let now = self.waits.servers.clock.now();
        if give_back.now
            && let Some(pending) = self.waiter.target.undo(None, now)
        {
            let (keys, id) = (pending.keys.clone(), pending.id.clone());
            if !Box::pin(self.waits.releases.now(pending, now + LAST_CALL, self.caller.mode)).await {
                self.waits.inboxes.registry.give_up(&keys, &id);
            }
        }
        self.is_over = true;
        if give_back.later {
            self.abandon();
        }
    }

    /// Releases, behind the last call, a grant that this call may still cause.
    fn abandon(&mut self) {
        let now = self.waits.servers.clock.now();
        if let Some(pending) = self.waiter.target.undo(self.connection.take(), now) {
            self.give_up(&pending);
            self.waits.releases.post(pending);
        }
    }

    /// A grant that still arrives is released.
    fn give_up(&self, pending: &PendingRelease) {
        self.waits.inboxes.registry.give_up(&pending.keys, &pending.id);
        if let Some(connection) = &self.inbox.connection {
            connection.listen_for(MEMORY);
        }
    }
}

impl<T: Abandon> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        if !self.is_over && self.waits.servers.is_own_process() && self.waiter.may_leave_something() {
            self.abandon();
        }
    }
}

/// Makes the call of a wait for the server that will receive it.
struct MakeAsk<'a, 'b, T> {
    /// As it is without an inbox, until it is prepared.
    call: Packed,
    target: &'a T,
    ask: Ask,
    registered: &'a Registered<'b>,
    inboxes: &'a Inboxes,
    deadline: Option<Instant>,
    /// A thread that reads is woken by messages only.
    is_woken_by_others: bool,
    inbox: &'a mut Inbox,
    connection: &'a mut Option<Arc<Connection>>,
}

impl<T: Abandon> Make for MakeAsk<'_, '_, T> {
    async fn prepare(&mut self, server: &Arc<Server>, mode: Mode) -> Result<(), Failure> {
        if self.ask != Ask::InLine {
            return Ok(());
        }
        let mut inbox = String::new();
        *self.inbox = Inbox::default();
        if let Some(connection) = self.inboxes.connection(server, self.deadline, mode).await? {
            inbox = self.registered.mailbox.inbox(server.channel());
            let listens = self.is_woken_by_others || matches!(mode, Mode::Async);
            self.inbox.listening = listens.then(|| connection.listen());
            self.inbox.connection = Some(connection);
        }
        self.call = self.target.call(self.ask, &inbox);
        Ok(())
    }

    fn sends_on(&mut self, connection: &Arc<Connection>) {
        *self.connection = Some(connection.clone());
    }

    fn call(&self) -> &Packed {
        &self.call
    }
}
