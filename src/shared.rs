//! What a gate's semaphores and permits share: servers, inbox, renewal, and the thread for pending releases.

use crate::clock::Clock;
use crate::error::CallError;
use crate::lease::cleanup::Cleanup;
use crate::lease::renewal::Renewal;
use crate::protocol::replicas::MinReplicas;
use crate::transport::connections::{Answered, Unanswered};
use crate::transport::servers::Servers;
use crate::wait::inbox::Inbox;
use redis::ConnectionLike;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Engine {
    pub(crate) servers: Arc<Servers>,
    pub(crate) cleanup: Arc<Cleanup>,
    pub(crate) inbox: Inbox,
    pub(crate) renewal: Renewal,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
    /// Who else must have a grant, or a new lease, before it counts.
    pub(crate) replicas: Option<MinReplicas>,
    /// How long a wait goes on while the server cannot be reached.
    pub(crate) outage: Duration,
}

impl Engine {
    pub(crate) fn clock(&self) -> &Clock {
        &self.servers.clock
    }

    pub(crate) fn now(&self) -> Instant {
        self.servers.clock.now()
    }

    /// Runs a script that may be run again, where `key` is; what was left of a call without an answer is dropped.
    pub(crate) fn call<T>(
        &self,
        key: &str,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut dyn ConnectionLike) -> Result<T, CallError>,
    ) -> Result<Answered<T>, CallError> {
        let outcome: Result<_, Unanswered> = self.servers.call(key, until, call);
        outcome.map_err(|unanswered| unanswered.error)
    }

    /// Nothing of a gate may be touched in a fork.
    pub(crate) fn check_process(&self) -> Result<(), CallError> {
        self.servers.check_process().map_err(CallError::Failed)
    }
}
