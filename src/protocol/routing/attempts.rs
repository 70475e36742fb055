//! The attempts of one call, as a state machine: when to send it again, and where. It sends nothing itself.

use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind, Redirect};
use std::time::{Duration, Instant};

/// How many redirects are followed at once. Two nodes may redirect to each other for a moment, until they agree about a slot.
const AT_ONCE: u32 = 4;

/// After more redirects in a row, the nodes are not asked for the slots again.
const MOST: u32 = 16;

/// The pause while nodes disagree about a slot, or while only a part of its keys has arrived.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The attempts of a call so far.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// For a call to a cluster: after this time no redirect is followed.
    latest: Option<Instant>,
    redirects: u32,
    /// The call was repeated because a connection broke.
    is_repeated: bool,
    may_have_run: bool,
}

/// The next step after an attempt without an answer.
pub enum Next {
    Failed(CallError),
    /// Send it again to the same server, on another connection.
    Again,
    /// The slot has moved to this address. Send it again there.
    Moved(String),
    /// The slot is moving to this address. Send it once there, after `ASKING`.
    Ask(String),
    /// Send it again after this pause.
    Pause(Duration),
    /// The server may no longer have the slot. With `asks`, ask for the slots, and send it again if another server has
    /// this one. Otherwise the call fails with this error.
    Doubt {
        error: CallError,
        asks: bool,
    },
}

impl Attempts {
    /// A call to one server.
    pub fn of_one() -> Attempts {
        Attempts { latest: None, redirects: 0, is_repeated: false, may_have_run: false }
    }

    /// A call to a cluster. After `latest` no redirect is followed.
    pub fn of_cluster(latest: Instant) -> Attempts {
        Attempts { latest: Some(latest), ..Attempts::of_one() }
    }

    /// Whether an attempt without an answer may have run.
    pub fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// The pause before the next redirect is followed.
    pub fn redirect_pause(&self) -> Option<Duration> {
        (self.redirects > AT_ONCE).then_some(TRY_AGAIN)
    }

    /// The error of a call that could not be sent, or could not be repeated.
    pub fn failed(&self, failure: Failure) -> CallError {
        if self.may_have_run { CallError::Unknown(failure) } else { CallError::Failed(failure) }
    }

    /// Handles an attempt without an answer. `is_late`: its connection still works, and the answer may come later.
    pub fn unanswered(&mut self, error: CallError, is_late: bool, now: Instant) -> Next {
        let error = match error {
            CallError::Unknown(failure) => {
                self.may_have_run = true;
                if failure.kind() == FailureKind::Disconnected && !is_late && !self.is_repeated {
                    self.is_repeated = true;
                    return Next::Again;
                }
                CallError::Unknown(failure)
            }
            // This attempt failed, but an earlier one may have run.
            CallError::Failed(failure) => self.failed(failure),
            invalid @ CallError::Invalid(_) => invalid,
        };
        match self.latest {
            Some(latest) => self.follow(error, latest <= now),
            None => Next::Failed(error),
        }
    }

    /// Follows a slot that has moved or is moving.
    fn follow(&mut self, error: CallError, is_late: bool) -> Next {
        let (CallError::Failed(failure) | CallError::Unknown(failure)) = &error else {
            return Next::Failed(error);
        };
        self.redirects += 1;
        let next = match failure.redirect() {
            Some(_) if is_late => return Next::Failed(still_moving(error)),
            Some(Redirect::Moved(to)) => Next::Moved(to.to_owned()),
            Some(Redirect::Ask(to)) => Next::Ask(to.to_owned()),
            Some(Redirect::TryAgain) => {
                self.redirects = 0; // while a slot moves this answer repeats: only the time limits it
                Next::Pause(TRY_AGAIN)
            }
            None if failure.may_mean_another_owner() => {
                // A call is not repeated on a stalled server: the first one is still in progress.
                let asks = !is_late && self.redirects <= MOST && failure.kind() != FailureKind::TimedOut;
                Next::Doubt { error, asks }
            }
            None => return Next::Failed(error),
        };
        self.is_repeated = false;
        next
    }
}

/// The error for a slot that takes longer to move than a call may take.
fn still_moving(error: CallError) -> CallError {
    let not_ready = |failure: Failure| Failure::new(FailureKind::NotReady, failure.text());
    match error {
        CallError::Failed(failure) => CallError::Failed(not_ready(failure)),
        CallError::Unknown(failure) => CallError::Unknown(not_ready(failure)),
        invalid => invalid,
    }
}
