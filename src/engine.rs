//! What a gate's semaphores and permits share: connections, inbox, renewal, and the thread for what is left over.

use crate::background::{Background, Debt};
use crate::clock::Clock;
use crate::connections::{Answered, Connections, Unanswered, Wire};
use crate::error::CallError;
use crate::failure::{Failure, FailureKind};
use crate::inbox::Inbox;
use crate::name::Keys;
use crate::renewal::Renewal;
use redis::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Engine {
    pub(crate) connections: Arc<Connections>,
    pub(crate) background: Arc<Background>,
    pub(crate) inbox: Inbox,
    pub(crate) renewal: Renewal,
    pub(crate) prefix: String,
    pub(crate) label: Option<String>,
    /// How long a wait goes on while the server cannot be reached.
    pub(crate) outage: Duration,
}

impl Engine {
    pub(crate) fn clock(&self) -> &Clock {
        &self.connections.clock
    }

    pub(crate) fn now(&self) -> Instant {
        self.connections.clock.now()
    }

    /// Runs a script that may be run again; what was left of a call without an answer is dropped.
    pub(crate) fn call<T>(
        &self,
        until: Option<Instant>,
        call: &mut dyn FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<Answered<T>, CallError> {
        let outcome: Result<_, Unanswered> = self.connections.call(until, call);
        outcome.map_err(|unanswered| unanswered.error)
    }

    /// Nothing of a gate may be touched in a fork: even a lock may be held by a thread that does not exist there.
    pub(crate) fn check_process(&self) -> Result<(), CallError> {
        if self.connections.is_own_process() {
            return Ok(());
        }
        let failure = Failure::new(FailureKind::Forked, "forked process");
        Err(CallError::Failed(failure))
    }

    /// Leaves the release of these to the background, for as long as the server may still know them.
    pub(crate) fn release_later(
        &self,
        permits: Vec<(Keys, String)>,
        wire: Option<Box<Wire>>,
        until: Option<Instant>,
    ) {
        self.background.release(Debt {
            permits,
            wire,
            until,
        });
    }
}
