//! The attempts of one call: repeated if a connection broke, redirected if its slot has moved.

use super::PendingConnection;
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::pool::Pool;
use super::topology::Topology;
use crate::clock::Clock;
use crate::error::CallError;
#[cfg(feature = "cluster")]
use crate::error::failure::Redirect;
use crate::error::failure::{Failure, FailureKind};
use crate::protocol::lease::Moment;
use redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many times a call is redirected to another node at most.
#[cfg(feature = "cluster")]
const MOST_REDIRECTS: u32 = 16;

/// The pause while a slot is moving and only a part of its keys has arrived.
#[cfg(feature = "cluster")]
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The outcome of a call.
pub(crate) type Outcome = Result<Answered, Unanswered>;

/// A call that was answered.
pub(crate) struct Answered {
    pub(crate) reply: Value,
    /// The moment before the answered call was sent.
    pub(crate) sent: Moment,
    /// An earlier attempt was not answered, so the server may have run the call twice.
    pub(crate) repeated: bool,
    /// The reason why the call does not count yet: too few replicas confirmed it.
    pub(crate) unconfirmed: Option<Failure>,
    pub(super) pool: Arc<Pool>,
    pub(super) generation: u64,
}

impl Answered {
    /// Reads the answer. If the reply breaks the contract, its connection is not used any more.
    pub(crate) fn read<T>(self, read: impl FnOnce(Value) -> Result<T, CallError>) -> Result<T, Unanswered> {
        read(self.reply).map_err(|error| {
            self.pool.outdate(self.generation);
            error.into()
        })
    }
}

/// A call without a valid answer.
#[must_use = "a call that may have run has to be undone"]
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// The connection on which the call was sent, if it still works.
    pub(crate) connection: Option<PendingConnection>,
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Unanswered {
        Unanswered { error, connection: None }
    }
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Unanswered {
        CallError::Failed(failure).into()
    }
}

/// The state of a call between two attempts.
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "only a cluster has several nodes"))]
pub(super) struct Route<'a> {
    topology: &'a Topology,
    clock: &'a Clock,
    key: &'a [u8],
    until: Option<Instant>,
    /// The call was repeated because a connection broke.
    is_repeated: bool,
    may_have_run: bool,
    /// After this time no redirect is followed.
    latest: Option<Instant>,
    redirects: u32,
    /// The node for the next attempt only, after an `ASK` redirect.
    asking: Option<Arc<Pool>>,
}

impl<'a> Route<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        clock: &'a Clock,
        read_timeout: Duration,
        key: &'a [u8],
        until: Option<Instant>,
    ) -> Route<'a> {
        let latest = match topology {
            Topology::One(_) => {
                let _ = read_timeout;
                None // without a cluster there are no redirects
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(_) => Some(clock.now() + read_timeout),
        };
        Route {
            topology,
            clock,
            key,
            until,
            latest: latest.into_iter().chain(until).min(),
            is_repeated: false,
            may_have_run: false,
            redirects: 0,
            asking: None,
        }
    }

    /// The server for the next attempt.
    pub(super) fn pool(&self) -> Result<Arc<Pool>, Unanswered> {
        if let Some(node) = &self.asking {
            return Ok(node.clone());
        }
        match self.topology {
            Topology::One(pool) => Ok(pool.clone()),
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => cluster.owner(self.key, self.until).map_err(|failure| self.failed(failure)),
        }
    }

    /// Whether `ASKING` must precede the call, since the slot is still moving to this node.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The call could not be sent, or could not be repeated.
    pub(super) fn failed(&self, failure: Failure) -> Unanswered {
        match self.may_have_run {
            true => CallError::Unknown(failure).into(),
            false => failure.into(),
        }
    }

    /// Handles an attempt. Returns the outcome of the call, or `None` if the call must be sent again.
    pub(super) fn next(&mut self, pool: &Pool, outcome: Outcome) -> Option<Outcome> {
        let mut unanswered = match outcome {
            Ok(mut answered) => {
                answered.repeated |= self.may_have_run;
                return Some(Ok(answered));
            }
            Err(unanswered) => unanswered,
        };
        match &unanswered.error {
            CallError::Unknown(failure) => {
                self.may_have_run = true;
                let is_broken = failure.kind() == FailureKind::Disconnected;
                if is_broken && unanswered.connection.is_none() && !self.is_repeated {
                    self.is_repeated = true;
                    return None;
                }
            }
            // This attempt failed, but an earlier one may have run.
            CallError::Failed(failure) if self.may_have_run => {
                unanswered.error = CallError::Unknown(failure.clone());
            }
            CallError::Failed(_) | CallError::Invalid(_) => {}
        }
        match self.topology {
            Topology::One(_) => {
                let _ = pool;
                Some(Err(unanswered))
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => self.follow(cluster, pool, unanswered),
        }
    }

    /// Follows a slot that has moved or is moving.
    #[cfg(feature = "cluster")]
    fn follow(&mut self, cluster: &Cluster, pool: &Pool, unanswered: Unanswered) -> Option<Outcome> {
        let (CallError::Failed(failure) | CallError::Unknown(failure)) = &unanswered.error else {
            return Some(Err(unanswered));
        };
        self.redirects += 1;
        self.asking = None;
        let from = pool.node();
        let is_over = self.redirects > MOST_REDIRECTS || self.latest.is_some_and(|latest| latest <= self.clock.now());
        let followed = match failure.redirect() {
            Some(_) if is_over => return Some(Err(still_moving(unanswered))),
            Some(Redirect::Moved(to)) => cluster.moved(self.key, from, to),
            Some(Redirect::Ask(to)) => cluster.at(from, to).map(|node| self.asking = Some(node)),
            Some(Redirect::TryAgain) => {
                self.redirects = 0; // while a slot moves this answer repeats: only the time limits it
                std::thread::sleep(TRY_AGAIN);
                Ok(())
            }
            None if failure.may_mean_another_owner() => {
                cluster.doubt(from);
                // A call is not repeated on a stalled server: the first one is still in progress.
                if is_over || failure.kind() == FailureKind::TimedOut {
                    return Some(Err(unanswered));
                }
                let _ = cluster.ask_for_slots(Some(from), self.until);
                if cluster.known(self.key) == Some(from) {
                    return Some(Err(unanswered));
                }
                Ok(())
            }
            None => return Some(Err(unanswered)),
        };
        self.is_repeated = false;
        followed.err().map(|failure| Err(self.failed(failure)))
    }
}

/// The error for a slot that takes longer to move than a call may take.
#[cfg(feature = "cluster")]
fn still_moving(unanswered: Unanswered) -> Unanswered {
    let not_ready = |failure: Failure| Failure::new(FailureKind::NotReady, failure.text());
    Unanswered {
        error: match unanswered.error {
            CallError::Failed(failure) => CallError::Failed(not_ready(failure)),
            CallError::Unknown(failure) => CallError::Unknown(not_ready(failure)),
            invalid => invalid,
        },
        ..unanswered
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;
    use crate::transport::Timeouts;
    use crate::transport::address::Address;
    use crate::transport::pool::PoolOptions;
    use redis::{ErrorKind, RedisError, ServerErrorKind};

    /// The error of a call whose connection broke, and whose second attempt was answered with this error.
    fn error_after_a_break(kind: ServerErrorKind, read_timeout: Duration) -> CallError {
        let soon = Duration::from_secs(10);
        let timeouts = Timeouts { connect: soon, read: soon, write: soon };
        let address = Address::parse("redis+cluster://127.0.0.1:1").unwrap(); // no test connects to it
        let clock = Clock::real();
        let options = PoolOptions { clock: clock.clone(), counts: Arc::default(), timeouts, most: 1 };
        let topology = Topology::new(address, options).unwrap();
        let pool = topology.pool(0).unwrap();
        let mut route = Route::new(&topology, &clock, read_timeout, b"key", None);
        let broken = Failure::new(FailureKind::Disconnected, "broken");
        let again = route.next(&pool, Err(CallError::Unknown(broken).into()));
        assert!(again.is_none(), "it is not sent again");
        let kind = ErrorKind::Server(kind);
        let error = RedisError::from((kind, "", "1 nowhere".to_owned()));
        let outcome = route.next(&pool, Err(Failure::from(error).into()));
        outcome.unwrap().err().unwrap().error
    }

    #[test]
    fn a_call_that_may_have_run_is_unknown_wherever_a_cluster_sends_it_then() {
        use ServerErrorKind::{Ask, Moved, TryAgain};
        for (kind, read_timeout) in [
            (Moved, Duration::from_secs(10)), // the address is invalid
            (Ask, Duration::from_secs(10)),
            (Moved, Duration::ZERO), // the time is over
            (TryAgain, Duration::ZERO),
        ] {
            let error = error_after_a_break(kind, read_timeout);
            assert!(matches!(error, CallError::Unknown(_)), "{kind:?}: {error}");
            assert!(error.to_string().matches("call again").count() <= 1, "{error}");
        }
    }
}
