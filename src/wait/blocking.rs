//! A wait in the thread of its caller. Executes the actions of the waiter and reports their results as events.

use super::cancel::Cancel;
use super::inboxes::Inboxes;
use super::registry::Registered;
use super::subscriber::Subscriber;
use crate::clock::Busy;
use crate::error::{AcquireError, CallError, Invalid, TryAcquireError, WaitError};
use crate::lease::releases::Releases;
use crate::protocol::lease::Moment;
use crate::protocol::mailbox::Mail;
use crate::protocol::waiter::{
    Action, Ask, Event, GiveBack, Granted, LAST_CALL, LatchTarget, PermitTarget, Target, Waiter,
};
use crate::transport::PendingConnection;
use crate::transport::pool::{Pool, Sending};
use crate::transport::route::Unanswered;
use crate::transport::servers::Servers;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of a gate that a wait uses.
pub(crate) struct Waits {
    pub(crate) servers: Arc<Servers>,
    pub(crate) inboxes: Inboxes,
    pub(crate) releases: Arc<Releases>,
    /// How long a wait continues while the server cannot be reached.
    pub(crate) outage: Duration,
}

/// The end of a wait.
struct End<T: Target> {
    target: T,
    result: Result<T::Granted, T::Error>,
    give_back: GiveBack,
    /// The connection of the last call that was not answered.
    connection: Option<PendingConnection>,
}

impl Waits {
    /// Asks for permits once. If they are not granted, nothing remains on the server. Blocks for one round trip.
    pub(crate) fn at_once(&self, target: &mut PermitTarget) -> Result<Granted, TryAcquireError> {
        self.prepare(target, None)?;
        let answer = self.servers.ask(&target.acquire(Ask::First, ""), Sending::default());
        let (answer, sent) = answer.map_err(|unanswered| {
            if let CallError::Unknown(_) = unanswered.error {
                self.release_later(target, unanswered.connection);
            }
            unanswered.error
        })?;
        let (result, gives_back) = target.at_once(answer, sent);
        if gives_back {
            self.release_now(target);
        }
        if let Err(TryAcquireError::Denied(_)) = &result {
            self.servers.counts.denied.add_one();
        }
        result
    }

    /// Waits in line for permits, until `deadline` at the latest.
    pub(crate) fn in_line(
        &self,
        target: PermitTarget,
        deadline: Option<Instant>,
        cancel: Option<&Cancel>,
    ) -> Result<(Granted, Busy), AcquireError> {
        self.prepare(&target, deadline)?;
        let (keys, id) = (target.keys.clone(), target.id.clone());
        let Some(registered) = self.inboxes.registry.register(&keys, &id, cancel.is_some()) else {
            let why = format!(
                "{id} already waits for this semaphore. Accepted: one wait per id. Use another id, or end the other wait"
            );
            return Err(Invalid::new("id", why).into());
        };
        let end = self.run(&registered, &keys.meta, target, deadline, cancel);
        if end.give_back.now {
            self.release_now(&end.target);
        }
        if end.give_back.later {
            self.release_later(&end.target, end.connection);
        }
        if let Err(error) = &end.result {
            self.servers.counts.refuse(error);
        }
        let busy = self.servers.clock.busy(); // until the permit is registered for renewal
        end.result.map(|granted| (granted, busy))
    }

    /// Waits until a latch is open, until `deadline` at the latest.
    pub(crate) fn until_open(
        &self,
        target: LatchTarget,
        key: &str,
        deadline: Option<Instant>,
        cancel: Option<&Cancel>,
    ) -> Result<(), WaitError> {
        self.servers.check_process().map_err(CallError::Failed)?;
        let registered = self.inboxes.registry.register_shared(key, cancel.is_some());
        self.run(&registered, key, target, deadline, cancel).result
    }

    fn run<T: Target>(
        &self,
        registered: &Registered,
        key: &str,
        target: T,
        deadline: Option<Instant>,
        cancel: Option<&Cancel>,
    ) -> End<T> {
        let clock = &self.servers.clock;
        let mailbox = &registered.mailbox;
        if let Some(cancel) = cancel {
            cancel.watch(mailbox.clone());
        }
        let mut waiter = Waiter::new(target, deadline, self.outage, clock.now());
        let (mut connection, mut subscriber) = (None, None);
        let listens = self.inboxes.is_opened(key) || mailbox.is_cancelled();
        let mut action = waiter.start(listens);
        loop {
            let event = match action {
                Action::Ask { ask, until } => {
                    let asked = (&waiter.target, ask, until);
                    match self.ask(registered, key, asked, deadline, &mut subscriber) {
                        Ok((answer, sent)) => Event::Answered { answer, sent },
                        Err(unanswered) => {
                            connection = unanswered.connection.or(connection);
                            Event::Unanswered(unanswered.error)
                        }
                    }
                }
                Action::Sleep { until } => {
                    let mail = match &subscriber {
                        Some(subscriber) => subscriber.take(mailbox, until),
                        None => mailbox.take(until),
                    };
                    match mail {
                        Mail::Message { message, received } => Event::Message { message, received },
                        Mail::Called => Event::Called,
                        Mail::Cancelled => Event::Cancelled,
                        Mail::Timer => Event::Timer,
                    }
                }
                Action::Done { result, give_back } => {
                    return End { target: waiter.target, result, give_back, connection };
                }
            };
            action = waiter.on(event, clock.moment());
        }
    }

    /// Sends one call of a wait. A call in line contains the inbox at the server that has the key.
    fn ask<T: Target>(
        &self,
        registered: &Registered,
        key: &str,
        (target, ask, until): (&T, Ask, Option<Instant>),
        deadline: Option<Instant>,
        subscriber: &mut Option<Arc<Subscriber>>,
    ) -> Result<(T::Answer, Moment), Unanswered> {
        let mut make = |server: &Arc<Pool>| {
            let mut inbox = String::new();
            if ask == Ask::InLine {
                *subscriber = self.inboxes.subscriber(server, deadline)?;
                if let Some(subscriber) = subscriber {
                    inbox = subscriber.inbox(&registered.mailbox);
                }
            }
            Ok(Cow::Owned(target.call(ask, &inbox)))
        };
        let sending = Sending { until, ..Sending::default() };
        let answered = self.servers.send_as(key.as_bytes(), sending, &mut make)?;
        let sent = answered.sent;
        Ok((answered.read(|reply| target.answer(ask, reply))?, sent))
    }

    /// Reports arguments that are invalid for every server. Blocks until no earlier release of an id chosen by the
    /// caller is pending.
    fn prepare(&self, target: &PermitTarget, until: Option<Instant>) -> Result<(), CallError> {
        self.servers.check_process().map_err(CallError::Failed)?;
        target.check()?;
        if target.lease.own_id {
            self.releases.settle(&target.keys, &target.id, until)?;
        }
        Ok(())
    }

    /// Releases everything that the id has, within the time of the last call. If that fails, the background thread
    /// continues.
    fn release_now(&self, target: &PermitTarget) {
        let until = self.servers.clock.now() + LAST_CALL;
        if !self.releases.now(target.release(None, self.servers.clock.now()), until) {
            self.inboxes.registry.give_up(&target.keys, &target.id);
        }
    }

    fn release_later(&self, target: &PermitTarget, connection: Option<PendingConnection>) {
        self.inboxes.registry.give_up(&target.keys, &target.id);
        self.releases.later([target.release(connection, self.servers.clock.now())]);
    }
}
