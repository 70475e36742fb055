//! The parts of a gate that its semaphores, locks, latches and permits share.

use crate::error::CallError;
use crate::lease::permits::Permits;
use crate::lease::releases::Releases;
use crate::protocol::call::Call;
use crate::protocol::lease::Moment;
use crate::transport::pool::Sending;
use crate::transport::servers::Servers;
use crate::wait::blocking::Waits;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Shared {
    pub(crate) servers: Arc<Servers>,
    pub(crate) permits: Permits,
    pub(crate) releases: Arc<Releases>,
    pub(crate) waits: Waits,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
    /// A grant counts only after replicas have confirmed it.
    pub(crate) has_replicas: bool,
    /// The maximum time that dropping a permit blocks. A longer release continues in the background.
    pub(crate) drop_bound: Duration,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        self.servers.clock.now()
    }

    /// As `call`. Also returns when the answered call was sent.
    pub(crate) fn call_at<C: Call>(&self, call: &C) -> Result<(C::Answer, Moment), CallError> {
        let answer = self.servers.ask(call, Sending::default());
        answer.map_err(|unanswered| unanswered.error)
    }

    /// Sends a call that needs no care if its outcome stays unknown: it can be repeated, or has no lasting effect.
    pub(crate) fn call<C: Call>(&self, call: &C) -> Result<C::Answer, CallError> {
        self.call_at(call).map(|(answer, _)| answer)
    }

    /// Fails in a forked child, which must not use a gate of its parent.
    pub(crate) fn check_process(&self) -> Result<(), CallError> {
        self.servers.check_process().map_err(CallError::Failed)
    }
}
