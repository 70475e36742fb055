//! The parts of a gate that its semaphores, locks, latches and permits share, and the task that works for them.

use super::lease::permits::Permits;
use super::lease::releases::{PendingRelease, Releases};
use super::transport::Sending;
use super::transport::servers::Servers;
use super::wait::inboxes::Inboxes;
use super::wait::polled::Futures;
use crate::error::CallError;
use crate::lease::store::OnLost;
use crate::protocol::call::Call;
use crate::protocol::held::HeldPermit;
use crate::protocol::keeper::Number;
use crate::protocol::lease::Moment;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The parts that the task of a gate uses too.
pub(super) struct Core {
    pub(super) servers: Arc<Servers>,
    pub(super) permits: Permits,
    pub(super) releases: Arc<Releases>,
    pub(super) inboxes: Inboxes,
    pub(super) futures: Arc<Futures>,
    /// How long a wait continues while the server cannot be reached.
    pub(super) outage: Duration,
    is_running: AtomicBool,
}

pub(super) struct Shared {
    core: Arc<Core>,
    pub(super) prefix: String,
    pub(super) label: Option<String>,
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Core {
    pub(super) fn new(
        servers: Arc<Servers>,
        permits: Permits,
        releases: Arc<Releases>,
        inboxes: Inboxes,
        outage: Duration,
    ) -> Core {
        let futures = Arc::new(Futures::new(&servers.clock));
        Core { servers, permits, releases, inboxes, futures, outage, is_running: AtomicBool::new(false) }
    }

    pub(super) fn now(&self) -> Instant {
        self.servers.clock.now()
    }

    /// As `call`. Also returns when the answered call was sent.
    pub(super) async fn call_at<C: Call>(&self, call: &C) -> Result<(C::Answer, Moment), CallError> {
        let answer = self.servers.ask(call, Sending::default()).await;
        answer.map_err(|unanswered| unanswered.error)
    }

    /// Sends a call that needs no care if its outcome stays unknown: it can be repeated, or has no lasting effect.
    pub(super) async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, CallError> {
        self.call_at(call).await.map(|(answer, _)| answer)
    }

    /// Fails in a forked child, which must not use a gate of its parent.
    pub(super) fn check_process(&self) -> Result<(), CallError> {
        self.servers.check_process().map_err(CallError::Failed)
    }

    /// The work of the task.
    async fn work(&self) {
        let releases = self.releases.work(&self.servers);
        let waits = futures_util::future::join(self.inboxes.work(&self.servers), self.futures.work(&self.releases));
        futures_util::future::join3(self.permits.work(), releases, waits).await;
    }
}

impl Shared {
    pub(super) fn new(core: Core, prefix: String, label: Option<String>) -> Shared {
        let shared = Shared { core: Arc::new(core), prefix, label };
        shared.ensure_task();
        shared
    }

    /// Starts the task on the current runtime if it does not run: at first, or after the end of an earlier runtime.
    /// Outside a runtime the next call tries again.
    pub(super) fn ensure_task(&self) {
        if self.is_running.load(Ordering::Acquire) {
            return;
        }
        if let Ok(runtime) = Handle::try_current()
            && !self.is_running.swap(true, Ordering::AcqRel)
        {
            let running = Running(self.core.clone());
            runtime.spawn(async move { running.0.work().await });
        }
    }

    /// Renews this permit and reports its loss from now on.
    pub(super) fn keep(&self, held: HeldPermit, on_lost: Option<&OnLost>) -> Number {
        let number = self.permits.keep(held, on_lost);
        self.ensure_task();
        number
    }

    /// Returns when all releases are confirmed, or their permits have ended by themselves.
    pub(super) async fn all_confirmed(&self) {
        self.ensure_task();
        self.releases.all_confirmed().await;
    }

    /// Hands releases to the task. Does not block, and works outside a runtime.
    pub(super) fn release_later(&self, pending: impl IntoIterator<Item = PendingRelease>) {
        self.releases.later(pending);
        self.ensure_task();
    }
}

impl Drop for Shared {
    /// The task continues for up to 30 s with the releases that are pending, then ends.
    fn drop(&mut self) {
        if self.servers.is_own_process() {
            self.ensure_task();
            self.permits.close();
            self.inboxes.registry.close();
            self.futures.close();
            self.releases.close();
        }
    }
}

/// The task runs until this is dropped, also with its runtime.
struct Running(Arc<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}
