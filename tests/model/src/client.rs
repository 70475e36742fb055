//! A client with a future that waits for the permit, as `wait` and `semaphore` of the library do it.

use crate::clock::Clock;
use crate::engine::mode::Mode;
use crate::engine::slot::Slot;
use crate::engine::worker::Worker;
use crate::foreign;
use crate::releases::Releases;
use crate::remote::Remote;
use crate::semaphore::{Inbox, LEASE_MS};
use crate::wait::polled::{Futures, KeptTicket};
use crate::world::{fail, has_failed, now, sleep, tell};
use luagate_core::inbox::{Mail, Mailbox};
use luagate_core::keys::Keys;
use luagate_core::lease::{LeaseOptions, Sent};
use luagate_core::release::{LostCalls, PendingRelease, ReleaseTarget};
use luagate_core::waiter::{Action, AskKind, Event, Granted, PermitTarget, QueueEntry, WaitTarget, Waiter};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long the permit is used.
const USE: Duration = Duration::from_millis(10);

/// The id of the future.
pub(crate) const ID: &str = "future";

pub(crate) struct Client {
    pub(crate) remote: Arc<Remote>,
    worker: Worker,
    releases: Arc<Releases>,
    futures: Arc<Futures>,
}

impl Client {
    pub(crate) fn open() -> Arc<Client> {
        let foreign = foreign::new();
        let (remote, worker) = (Remote::open(&foreign), Worker::new(&foreign, &Clock::real()));
        let releases = Releases::new(&remote);
        let futures = Futures::new(&Clock::real(), &worker, &releases);
        Arc::new(Client { remote, worker, releases, futures })
    }

    /// Waits for the permit, and releases it.
    pub(crate) async fn use_permit(self: Arc<Client>) {
        let kept = KeptTicket::default();
        let make = || {
            let (client, kept) = (self.clone(), kept.clone());
            async move { client.acquire(&kept).await }
        };
        let fence = self.futures.watch(make).await;
        if self.remote.look(|semaphore| semaphore.fence_of(ID)) != Some(fence) {
            fail(format!("the permit with fence {fence} is used, but was given back"));
        }
        sleep(USE);
        if self.remote.look(|semaphore| semaphore.fence_of(ID)) != Some(fence) {
            fail(format!("the permit with fence {fence} was given back while it was used"));
        }
        drop(Permit { client: &self, fence, is_handed_on: false });
    }

    /// As `Semaphore::in_line`.
    async fn acquire(&self, kept: &KeptTicket) -> u64 {
        let inbox: Inbox =
            Arc::new(Slot::of_machine(&self.remote.foreign, Mailbox::new(Some("secret".into()))));
        let longest = Duration::from_millis(LEASE_MS);
        let waiter = Waiter::new(target(kept.ticket().unwrap_or(0)), None, longest, now());
        let mut wait = Wait { client: self, kept, inbox, waiter, is_over: false };
        let granted = wait.run().await;
        drop(wait);
        kept.keep(granted.ticket.unwrap_or(0));
        let mut permit = Permit { client: self, fence: granted.grant.fence, is_handed_on: false };
        self.remote.ask(|_| ()).await; // some grants must be confirmed
        permit.is_handed_on = true;
        permit.fence
    }
}

/// A permit that is released when it is dropped.
struct Permit<'a> {
    client: &'a Client,
    fence: u64,
    is_handed_on: bool,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.is_handed_on && !has_failed() {
            let target = ReleaseTarget::Fence(self.fence);
            self.client.releases.post(PendingRelease::of_grant(&keys(), ID, false, target, None));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !has_failed() {
            self.releases.close();
            self.worker.call();
        }
    }
}

fn keys() -> Keys {
    Keys::semaphore("luagate", "name").unwrap()
}

fn target(ticket: u64) -> PermitTarget {
    let mut entry = QueueEntry::default();
    entry.ticket = ticket;
    PermitTarget {
        keys: keys(),
        id: ID.into(),
        permits: Some(1),
        limit: 1,
        strict: false,
        max_waiting: 0,
        head_start_ms: 0,
        lease: LeaseOptions { lease_ms: LEASE_MS, renewed: false, own_id: false, at_least_ms: 0 },
        entry,
    }
}

/// As `RunningWait` of the library.
struct Wait<'a> {
    client: &'a Client,
    kept: &'a KeptTicket,
    inbox: Inbox,
    waiter: Waiter<PermitTarget>,
    is_over: bool,
}

impl Wait<'_> {
    async fn run(&mut self) -> Granted {
        let mut action = self.waiter.start(false);
        loop {
            let event = match action {
                Action::Ask { ask, .. } => self.ask(ask).await,
                Action::Sleep { until } => Event::Mail(self.mail(until).await),
                Action::Done { result, .. } => {
                    self.is_over = true;
                    return result.unwrap_or_else(|error| fail(format!("{error:?}")));
                }
            };
            action = self.waiter.on(event, Clock::real().moment());
        }
    }

    async fn mail(&self, until: Instant) -> Mail {
        loop {
            let take = |mail: &mut Mailbox| mail.take(until, now());
            let at = match self.inbox.look(take) {
                Ok(mail) => return mail,
                Err(at) => at,
            };
            let mut sleep = pin!(self.client.worker.sleep(at, Mode::Async));
            let mut found = pin!(self.inbox.until(Some(at), Mode::Async, |mail| take(mail).ok()));
            let mail = poll_fn(|cx| match found.as_mut().poll(cx) {
                Poll::Ready(mail) => Poll::Ready(mail),
                Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
            });
            if let Some(mail) = mail.await {
                return mail;
            }
        }
    }

    async fn ask(&mut self, ask: AskKind) -> Event<luagate_core::semaphore::AcquireAnswer> {
        let sent = Sent { at: Clock::real().moment(), repeated: None };
        let (ticket, inbox) = (self.waiter.target.entry.ticket, self.inbox.clone());
        let in_line = ask == AskKind::InLine;
        let call = move |remote: &Remote| {
            remote.look(|semaphore| semaphore.acquire(ID, ticket, in_line, Some(&inbox)))
        };
        let answer = self.client.remote.ask(call).await;
        tell(|| format!("gets {answer:?}"));
        Event::Answered { answer, sent }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.is_over && !has_failed() && self.waiter.may_leave_something() {
            self.kept.keep(self.waiter.target.kept_ticket());
            let (lost, lease) = (LostCalls::default(), Duration::from_millis(LEASE_MS));
            self.client.releases.post(PendingRelease::of_call(&keys(), ID, false, lost, lease, now()));
        }
    }
}
