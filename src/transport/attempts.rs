//! The attempts of one call, as a state machine: when to send it again, and where. It sends nothing itself.

use crate::error::CallError;
#[cfg(feature = "cluster")]
use crate::error::failure::Redirect;
use crate::error::failure::{Failure, FailureKind};
#[cfg(feature = "cluster")]
use std::time::Duration;
use std::time::Instant;

/// How many times a call is redirected to another node at most.
#[cfg(feature = "cluster")]
const MOST_REDIRECTS: u32 = 16;

/// The pause while a slot is moving and only a part of its keys has arrived.
#[cfg(feature = "cluster")]
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The attempts of a call so far.
pub(crate) struct Attempts {
    /// For a call to a cluster: after this time no redirect is followed.
    #[cfg(feature = "cluster")]
    latest: Option<Instant>,
    #[cfg(feature = "cluster")]
    redirects: u32,
    /// The call was repeated because a connection broke.
    is_repeated: bool,
    may_have_run: bool,
}

/// The next step after an attempt without an answer.
pub(crate) enum Next {
    Failed(CallError),
    /// Send it again to the same server, on another connection.
    Again,
    /// The slot has moved to this address. Send it again there.
    #[cfg(feature = "cluster")]
    Moved(String),
    /// The slot is moving to this address. Send it once there, after `ASKING`.
    #[cfg(feature = "cluster")]
    Ask(String),
    /// Send it again after this pause.
    #[cfg(feature = "cluster")]
    Pause(Duration),
    /// The server may no longer have the slot. With `asks`, ask for the slots, and send it again if another server has
    /// this one. Otherwise the call fails with this error.
    #[cfg(feature = "cluster")]
    Doubt {
        error: CallError,
        asks: bool,
    },
}

impl Attempts {
    /// A call to one server.
    pub(crate) fn of_one() -> Attempts {
        Attempts {
            #[cfg(feature = "cluster")]
            latest: None,
            #[cfg(feature = "cluster")]
            redirects: 0,
            is_repeated: false,
            may_have_run: false,
        }
    }

    /// A call to a cluster. After `latest` no redirect is followed.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster(latest: Instant) -> Attempts {
        Attempts { latest: Some(latest), ..Attempts::of_one() }
    }

    /// Whether an attempt without an answer may have run.
    pub(crate) fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// The error of a call that could not be sent, or could not be repeated.
    pub(crate) fn failed(&self, failure: Failure) -> CallError {
        match self.may_have_run {
            true => CallError::Unknown(failure),
            false => CallError::Failed(failure),
        }
    }

    /// Handles an attempt without an answer. `is_late`: its connection still works, and the answer may come later.
    pub(crate) fn unanswered(&mut self, error: CallError, is_late: bool, now: Instant) -> Next {
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
        #[cfg(feature = "cluster")]
        if let Some(latest) = self.latest {
            return self.follow(error, latest <= now);
        }
        let _ = now; // only a cluster limits the time of redirects
        Next::Failed(error)
    }

    /// Follows a slot that has moved or is moving.
    #[cfg(feature = "cluster")]
    fn follow(&mut self, error: CallError, is_late: bool) -> Next {
        let (CallError::Failed(failure) | CallError::Unknown(failure)) = &error else {
            return Next::Failed(error);
        };
        self.redirects += 1;
        let is_over = is_late || self.redirects > MOST_REDIRECTS;
        let next = match failure.redirect() {
            Some(_) if is_over => return Next::Failed(still_moving(error)),
            Some(Redirect::Moved(to)) => Next::Moved(to.to_owned()),
            Some(Redirect::Ask(to)) => Next::Ask(to.to_owned()),
            Some(Redirect::TryAgain) => {
                self.redirects = 0; // while a slot moves this answer repeats: only the time limits it
                Next::Pause(TRY_AGAIN)
            }
            None if failure.may_mean_another_owner() => {
                // A call is not repeated on a stalled server: the first one is still in progress.
                let asks = !is_over && failure.kind() != FailureKind::TimedOut;
                Next::Doubt { error, asks }
            }
            None => return Next::Failed(error),
        };
        self.is_repeated = false;
        next
    }
}

/// The error for a slot that takes longer to move than a call may take.
#[cfg(feature = "cluster")]
fn still_moving(error: CallError) -> CallError {
    let not_ready = |failure: Failure| Failure::new(FailureKind::NotReady, failure.text());
    match error {
        CallError::Failed(failure) => CallError::Failed(not_ready(failure)),
        CallError::Unknown(failure) => CallError::Unknown(not_ready(failure)),
        invalid => invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> CallError {
        CallError::Unknown(Failure::new(FailureKind::Disconnected, "broken"))
    }

    #[test]
    fn a_call_is_repeated_once_if_its_connection_broke() {
        let mut attempts = Attempts::of_one();
        let now = Instant::now();
        assert!(matches!(attempts.unanswered(broken(), false, now), Next::Again));
        assert!(attempts.may_have_run());
        let refused = CallError::Failed(Failure::new(FailureKind::Unreachable, "refused"));
        let next = attempts.unanswered(refused, false, now);
        assert!(matches!(next, Next::Failed(CallError::Unknown(_))), "an earlier attempt may have run");
        assert!(matches!(attempts.unanswered(broken(), false, now), Next::Failed(CallError::Unknown(_))));
        assert!(matches!(Attempts::of_one().unanswered(broken(), true, now), Next::Failed(_)), "the answer may come");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn a_call_that_may_have_run_is_unknown_wherever_a_cluster_sends_it_then() {
        use redis::ServerErrorKind::{Ask, Moved, TryAgain};
        let now = Instant::now();
        let soon = now + Duration::from_secs(10);
        for (kind, latest) in [(Moved, now), (Ask, now), (TryAgain, now), (Moved, soon), (Ask, soon)] {
            let mut attempts = Attempts::of_cluster(latest);
            assert!(matches!(attempts.unanswered(broken(), false, now), Next::Again));
            let error = redis::RedisError::from((redis::ErrorKind::Server(kind), "", "1 nowhere".to_owned()));
            let error = match attempts.unanswered(CallError::Failed(error.into()), false, now) {
                Next::Failed(error) => error,
                _ => attempts.failed(Failure::new(FailureKind::UnexpectedReply, "no address")),
            };
            assert!(matches!(error, CallError::Unknown(_)), "{kind:?}: {error}");
            assert!(error.to_string().matches("call again").count() <= 1, "{error}");
        }
    }
}
