//! A wait in the task of its caller. Executes the actions of the waiter and reports their results as events.

use super::inboxes::Inboxes;
use super::polled::{Asked, Polled};
use super::registry::Registered;
use crate::aio::lease::releases::PendingRelease;
use crate::aio::shared::Shared;
use crate::aio::transport::servers::Make;
use crate::aio::transport::{Connection, Sending, Server, Unanswered};
use crate::clock::Busy;
use crate::error::failure::Failure;
use crate::error::{AcquireError, CallError, Invalid, TryAcquireError, WaitError};
use crate::protocol::call::Packed;
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::Mail;
use crate::protocol::waiter::{
    Action, Ask, Event, GiveBack, Granted, LAST_CALL, LatchTarget, PermitTarget, Target, Waiter,
};
use crate::wait::cancel::Cancel;
use futures_util::FutureExt;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// The release that a dropped wait needs.
trait Abandon: Target + Send + Sync {
    /// The release of everything that the server may have granted to this wait. `None`: it grants nothing.
    fn release(&self, connection: Option<Arc<Connection>>, now: Instant) -> Option<PendingRelease>;
}

impl Abandon for PermitTarget {
    fn release(&self, connection: Option<Arc<Connection>>, now: Instant) -> Option<PendingRelease> {
        Some(PermitTarget::release(self, connection, now))
    }
}

/// A latch gives nothing. The server forgets a waiter that does not ask again.
impl Abandon for LatchTarget {
    fn release(&self, _: Option<Arc<Connection>>, _: Instant) -> Option<PendingRelease> {
        None
    }
}

impl Shared {
    /// Asks for permits once. If they are not granted, nothing remains on the server. The caller has checked the process.
    ///
    /// # Cancel safety
    /// If this is dropped, the permits are released.
    pub(in crate::aio) async fn at_once(
        &self,
        target: &mut PermitTarget,
        polled: &Polled,
    ) -> Result<Granted, TryAcquireError> {
        self.prepare(target, None).await?;
        loop {
            polled.asks(vec![asked(target, None)]);
            let mut call = Once { shared: self, target, connection: None, is_sent: false };
            let (answer, sent) = call.send().await?;
            if polled.is_given_back() {
                drop(call); // releases
                self.releases.settle(&self.servers, &target.keys, &target.id, None).boxed().await?;
                polled.asks_again();
                continue;
            }
            let (result, gives_back) = call.target.at_once(answer, sent);
            if gives_back {
                call.release_now().boxed().await;
            }
            call.is_sent = false;
            if let Err(TryAcquireError::Denied(_)) = &result {
                self.servers.counts.denied.add_one();
            }
            return result;
        }
    }

    /// Waits in line for permits, until `deadline` at the latest.
    ///
    /// # Cancel safety
    /// If this is dropped, the place in line is given up and a grant is released.
    pub(in crate::aio) async fn in_line(
        &self,
        target: &PermitTarget,
        deadline: Option<Instant>,
        cancel: Option<&Cancel>,
        polled: &Polled,
    ) -> Result<(Granted, Busy), AcquireError> {
        self.prepare(target, deadline).await?;
        let Some(registered) = self.inboxes.registry.register(&target.keys, &target.id) else {
            let why = format!(
                "{} already waits for this semaphore. Accepted: one wait per id. Use another id, or end the other wait",
                target.id
            );
            return Err(Invalid::new("id", why).into());
        };
        polled.asks(vec![asked(target, Some(&registered))]);
        let mut wait = Wait::new(self, registered, &target.keys.meta, target.clone(), deadline);
        let result = wait.run(cancel, Some(polled)).await;
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
    pub(in crate::aio) async fn until_open(
        &self,
        target: LatchTarget,
        key: &str,
        deadline: Option<Instant>,
        cancel: Option<&Cancel>,
    ) -> Result<(), WaitError> {
        self.check_process()?;
        let registered = self.inboxes.registry.register_shared(key);
        Wait::new(self, registered, key, target, deadline).run(cancel, None).await
    }

    /// Reports arguments that are invalid for every server. Waits until no earlier release of an id chosen by the
    /// caller is pending.
    async fn prepare(&self, target: &PermitTarget, until: Option<Instant>) -> Result<(), CallError> {
        self.ensure_task(); // for releases of permits that were dropped after the end of an earlier runtime
        target.check()?;
        if target.lease.own_id {
            self.check_process()?; // before the lock of the releases
            self.releases.settle(&self.servers, &target.keys, &target.id, until).boxed().await?;
        }
        Ok(())
    }
}

/// The permits that this wait asks for.
fn asked(target: &PermitTarget, registered: Option<&Registered>) -> Asked {
    Asked {
        keys: target.keys.clone(),
        id: target.id.clone(),
        longest: target.longest(),
        mailbox: registered.map(|registered| registered.mailbox.clone()),
    }
}

/// One call that does not wait. If this is dropped before its answer is handled, a grant is released.
struct Once<'a> {
    shared: &'a Shared,
    target: &'a mut PermitTarget,
    connection: Option<Arc<Connection>>,
    is_sent: bool,
}

impl Once<'_> {
    async fn send(&mut self) -> Result<(<PermitTarget as Target>::Answer, Moment), CallError> {
        let shared = self.shared;
        let call = Target::call(&*self.target, Ask::First, "");
        self.is_sent = true;
        let key = call.key().to_owned();
        let mut make = MakeOnce { call: &call, connection: &mut self.connection };
        let answered = shared.servers.send_checked_as(&key, Sending::default(), &mut make).await;
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

    /// Releases everything that the id has, within the time of the last call. If that fails, the task continues.
    async fn release_now(&mut self) {
        let now = self.shared.now();
        let pending = PermitTarget::release(self.target, None, now);
        self.shared.releases.now(&self.shared.servers, pending, now + LAST_CALL).await;
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if self.is_sent {
            let pending = PermitTarget::release(self.target, self.connection.take(), self.shared.now());
            self.shared.release_later([pending]);
        }
    }
}

struct MakeOnce<'a> {
    call: &'a Packed,
    connection: &'a mut Option<Arc<Connection>>,
}

impl Make for MakeOnce<'_> {
    async fn make(&mut self, _: &Arc<Server>) -> Result<Cow<'_, Packed>, Failure> {
        Ok(Cow::Borrowed(self.call))
    }

    fn sends_on(&mut self, connection: &Arc<Connection>) {
        *self.connection = Some(connection.clone());
    }
}

/// One wait. If this is dropped before its end, it leaves the line, and a grant is released.
struct Wait<'a, T: Abandon> {
    shared: &'a Shared,
    registered: Registered,
    key: &'a str,
    waiter: Waiter<T>,
    deadline: Option<Instant>,
    /// The connection of the last call, until it is answered.
    connection: Option<Arc<Connection>>,
    is_over: bool,
}

impl<'a, T: Abandon> Wait<'a, T> {
    fn new(
        shared: &'a Shared,
        registered: Registered,
        key: &'a str,
        target: T,
        deadline: Option<Instant>,
    ) -> Wait<'a, T> {
        let waiter = Waiter::new(target, deadline, shared.outage, shared.now());
        Wait { shared, registered, key, waiter, deadline, connection: None, is_over: false }
    }

    async fn run(&mut self, cancel: Option<&Cancel>, polled: Option<&Polled>) -> Result<T::Granted, T::Error> {
        let clock = &self.shared.servers.clock;
        let mailbox = self.registered.mailbox.clone();
        if let Some(cancel) = cancel {
            cancel.watch(mailbox.clone());
        }
        let node = self.shared.servers.node_of(self.key);
        let listens = self.shared.inboxes.is_opened(node) || mailbox.is_cancelled();
        let mut action = self.waiter.start(listens);
        loop {
            let event = match action {
                // In separate memory: a waiter that sleeps does not need it.
                Action::Ask { ask, until } => self.ask(ask, until, polled).boxed().await,
                Action::Sleep { until } => match mailbox.take(until).await {
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

    /// Sends one call and returns the event that it leads to.
    async fn ask(&mut self, ask: Ask, until: Option<Instant>, polled: Option<&Polled>) -> Event<T::Answer> {
        if let Some(polled) = polled.filter(|polled| polled.is_given_back()) {
            if let Some(PendingRelease { keys, id, .. }) = self.waiter.target.release(None, self.shared.now()) {
                let settled = self.shared.releases.settle(&self.shared.servers, &keys, &id, until).boxed().await;
                if let Err(error) = settled {
                    return Event::Unanswered(error);
                }
            }
            polled.asks_again();
        }
        let event = match self.send(ask, until).await {
            Ok((answer, sent)) => {
                self.connection = None;
                Event::Answered { answer, sent }
            }
            Err(unanswered) => {
                self.connection = unanswered.connection;
                Event::Unanswered(unanswered.error)
            }
        };
        match polled.is_some_and(Polled::is_given_back) {
            true => Event::GivenBack,
            false => event,
        }
    }

    /// Sends one call of a wait. A call in line contains the inbox at the server that has the key.
    async fn send(&mut self, ask: Ask, until: Option<Instant>) -> Result<(T::Answer, Moment), Unanswered> {
        let sending = Sending { until, ..Sending::default() };
        let mut make = MakeAsk {
            target: &self.waiter.target,
            ask,
            registered: &self.registered,
            inboxes: &self.shared.inboxes,
            deadline: self.deadline,
            connection: &mut self.connection,
        };
        let answered = self.shared.servers.send_as(self.key.as_bytes(), sending, &mut make).await?;
        let sent = answered.sent;
        Ok((answered.read(|reply| self.waiter.target.answer(ask, reply))?, sent))
    }

    /// Gives back a grant or a place in line at the end of the wait.
    async fn end(&mut self, give_back: GiveBack) {
        if give_back.now {
            self.give_back_now().boxed().await;
        }
        self.is_over = true;
        if give_back.later {
            self.abandon();
        }
    }

    async fn give_back_now(&self) {
        let now = self.shared.now();
        if let Some(pending) = self.waiter.target.release(None, now) {
            let (keys, id) = (pending.keys.clone(), pending.id.clone());
            if !self.shared.releases.now(&self.shared.servers, pending, now + LAST_CALL).await {
                self.shared.inboxes.registry.give_up(&keys, &id);
            }
        }
    }

    /// Releases in the background, after the last call, a grant that this call may still cause.
    fn abandon(&mut self) {
        if let Some(pending) = self.waiter.target.release(self.connection.take(), self.shared.now()) {
            self.shared.inboxes.registry.give_up(&pending.keys, &pending.id);
            self.shared.release_later([pending]);
        }
    }
}

impl<T: Abandon> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        if !self.is_over && self.shared.servers.is_own_process() && self.waiter.may_leave_something() {
            self.abandon();
        }
    }
}

/// Makes the call of a wait for the server that will receive it.
struct MakeAsk<'a, T> {
    target: &'a T,
    ask: Ask,
    registered: &'a Registered,
    inboxes: &'a Inboxes,
    deadline: Option<Instant>,
    connection: &'a mut Option<Arc<Connection>>,
}

impl<T: Abandon> Make for MakeAsk<'_, T> {
    async fn make(&mut self, server: &Arc<Server>) -> Result<Cow<'_, Packed>, Failure> {
        let mut inbox = String::new();
        if self.ask == Ask::InLine
            && let Some(channel) = self.inboxes.channel(server, self.deadline).await?
        {
            inbox = self.registered.mailbox.inbox(&channel);
        }
        Ok(Cow::Owned(self.target.call(self.ask, &inbox)))
    }

    fn sends_on(&mut self, connection: &Arc<Connection>) {
        *self.connection = Some(connection.clone());
    }
}
