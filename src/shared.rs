//! The parts of a gate that its semaphores, locks, latches and permits share.

use crate::engine::mode::Mode;
use crate::engine::servers::{Servers, Unanswered};
use crate::lease::permits::Permits;
use crate::lease::releases::Releases;
use crate::lua::SCRIPTS;
use crate::wait::WaitDriver;
use crate::wait::polled::Futures;
use luagate_core::call::Call;
use luagate_core::failure::CallError;
use luagate_core::lease::Sent;
use luagate_core::outbox::Ordered;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Shared {
    pub(crate) servers: Arc<Servers>,
    pub(crate) permits: Arc<Permits>,
    pub(crate) releases: Arc<Releases>,
    pub(crate) waits: WaitDriver,
    pub(crate) futures: Arc<Futures>,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        self.servers.clock.now()
    }

    /// The deadline of a wait that begins now. `None`: no time limit, since the clock cannot hold the
    /// deadline.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.now().checked_add(timeout)
    }

    /// As `call`. Also returns when the answered call was sent.
    pub(crate) async fn call_at<C: Call>(
        &self,
        call: &C,
        mode: Mode,
    ) -> Result<(C::Answer, Sent), CallError> {
        self.servers.check_process()?;
        let packed = call.pack(&SCRIPTS);
        let mut after = None;
        loop {
            let ordered = Ordered { key: packed.key(), own_id: None, after, only_own: false };
            let mark = self.releases.before(ordered, None, mode).await?.mark;
            let answered = self.servers.send(&packed, self.servers.patiently(mode)).await;
            let read = answered.and_then(|answered| answered.read_at(|reply| call.answer(reply)));
            let answer = read.map_err(|unanswered: Unanswered| unanswered.error)?;
            if !call.only_reads() || after.is_some() || !self.releases.is_overtaken(packed.key(), mark) {
                return Ok(answer);
            }
            after = Some(mark);
        }
    }

    /// Sends a call that needs no care if its outcome stays unknown: it can be repeated, or has no lasting
    /// effect.
    pub(crate) async fn call<C: Call>(&self, call: &C, mode: Mode) -> Result<C::Answer, CallError> {
        Ok(self.call_at(call, mode).await?.0)
    }

    /// Watches the future of an operation that may get a grant. `make` returns another one after it was
    /// stopped.
    pub(crate) async fn watch<T, E, F>(&self, make: impl Fn() -> F + Unpin) -> Result<T, E>
    where
        E: From<CallError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.servers.check_process()?; // before any lock
        self.futures.watch(make).await
    }
}

impl Drop for Shared {
    /// The permits are not watched any more. The gate's own thread continues with the releases that are not
    /// confirmed.
    fn drop(&mut self) {
        if self.servers.is_own_process() {
            self.permits.close();
            self.releases.close();
            self.servers.worker.call();
        }
    }
}
