//! The way of one call: sent again where a connection broke, sent on where its slot has moved.

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

/// How often a call is sent to another node at most: a script that a node does not know yet is asked for twice.
#[cfg(feature = "cluster")]
const MOST_REDIRECTS: u32 = 16;

/// The pause while a slot is on its way and not all of its keys are there.
#[cfg(feature = "cluster")]
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// What became of a call.
pub(crate) type Outcome = Result<Answered, Unanswered>;

/// A call that was answered.
pub(crate) struct Answered {
    pub(crate) reply: Value,
    /// The moment before the answered call was sent.
    pub(crate) sent: Moment,
    /// It was sent before and not answered, so the server may have run it twice.
    pub(crate) repeated: bool,
    /// Why it does not count yet: too few replicas confirmed it.
    pub(crate) unconfirmed: Option<Failure>,
    pub(super) pool: Arc<Pool>,
    pub(super) generation: u64,
}

impl Answered {
    /// The answer in the reply. Where the reply fits no contract, its connection is not used any more.
    pub(crate) fn read<T>(self, read: impl FnOnce(Value) -> Result<T, CallError>) -> Result<T, Unanswered> {
        read(self.reply).map_err(|error| {
            self.pool.outdate(self.generation);
            error.into()
        })
    }
}

/// A call that was not answered as it should be.
#[must_use = "a call that may have run has to be undone"]
pub(crate) struct Unanswered {
    pub(crate) error: CallError,
    /// The connection that response it, if it still works.
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

/// Where a call is, between two attempts.
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "only a cluster has several nodes"))]
pub(super) struct Route<'a> {
    topology: &'a Topology,
    clock: &'a Clock,
    key: &'a [u8],
    until: Option<Instant>,
    /// It was sent again because a connection broke.
    is_repeated: bool,
    may_have_run: bool,
    /// When it is followed no more.
    latest: Option<Instant>,
    redirects: u32,
    /// The node to which the last one sent the call, this once.
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
                None // it is followed nowhere
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

    /// Where the call goes next.
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

    /// The server has the key's slot only in part yet, and wants to hear that the caller knows.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The call cannot be sent, or not again.
    pub(super) fn failed(&self, failure: Failure) -> Unanswered {
        match self.may_have_run {
            true => CallError::Unknown(failure).into(),
            false => failure.into(),
        }
    }

    /// After an attempt: what became of the call, or nothing where it is to be sent again.
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
            // Whatever became of this attempt: an earlier one may have been response out.
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

    /// Follows the slot where it has moved, or is just moving.
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
                self.redirects = 0; // a slot that moves answers this again and again: only the call's time limits it
                std::thread::sleep(TRY_AGAIN);
                Ok(())
            }
            None if failure.may_mean_another_owner() => {
                cluster.doubt(from);
                // A server that stalls is not asked twice: the first call is still on its way.
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

/// A slot that is on its way for longer than a call may take.
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

    /// What becomes of a call whose connection broke, and that was then answered with this error.
    fn error_after_a_break(kind: ServerErrorKind, read_timeout: Duration) -> CallError {
        let soon = Duration::from_secs(10);
        let timeouts = Timeouts { connect: soon, read: soon, write: soon };
        let address = Address::parse("redis+cluster://127.0.0.1:1").unwrap(); // nobody connects
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
            (Moved, Duration::from_secs(10)), // the address is none
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
