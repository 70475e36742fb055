//! Sends one call until it has an outcome: repeated if a connection broke, redirected if its slot has moved.

use super::PendingConnection;
use super::attempts::{Attempts, Next};
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::pool::Pool;
use super::topology::Topology;
use crate::clock::Clock;
use crate::error::CallError;
use crate::error::failure::Failure;
use crate::protocol::lease::Moment;
use redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// One call to a server, or to the nodes of a cluster.
pub(super) struct Route<'a> {
    topology: &'a Topology,
    clock: &'a Clock,
    attempts: Attempts,
    #[cfg(feature = "cluster")]
    key: &'a [u8],
    #[cfg(feature = "cluster")]
    until: Option<Instant>,
    /// The node for the next attempt only, after an `ASK` redirect.
    #[cfg(feature = "cluster")]
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
        #[cfg(not(feature = "cluster"))]
        let _ = (read_timeout, key, until); // only a cluster follows keys
        Route {
            topology,
            clock,
            attempts: match topology {
                Topology::One(_) => Attempts::of_one(),
                #[cfg(feature = "cluster")]
                Topology::Cluster(_) => {
                    let latest = clock.now() + read_timeout;
                    Attempts::of_cluster(until.map_or(latest, |until| until.min(latest)))
                }
            },
            #[cfg(feature = "cluster")]
            key,
            #[cfg(feature = "cluster")]
            until,
            #[cfg(feature = "cluster")]
            asking: None,
        }
    }

    /// The server for the next attempt.
    pub(super) fn pool(&self) -> Result<Arc<Pool>, Unanswered> {
        #[cfg(feature = "cluster")]
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
        #[cfg(feature = "cluster")]
        return self.asking.is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// The call could not be sent, or could not be repeated.
    pub(super) fn failed(&self, failure: Failure) -> Unanswered {
        self.attempts.failed(failure).into()
    }

    /// Handles an attempt. Returns the outcome of the call, or `None` if the call must be sent again.
    pub(super) fn next(&mut self, pool: &Pool, outcome: Outcome) -> Option<Outcome> {
        let Unanswered { error, connection } = match outcome {
            Ok(mut answered) => {
                answered.repeated |= self.attempts.may_have_run();
                return Some(Ok(answered));
            }
            Err(unanswered) => unanswered,
        };
        let next = self.attempts.unanswered(error, connection.is_some(), self.clock.now());
        let ended = |error| Some(Err(Unanswered { error, connection }));
        #[cfg(feature = "cluster")]
        if let Topology::Cluster(cluster) = self.topology {
            return self.follow(cluster, pool, next).err().and_then(ended);
        }
        let _ = pool; // only a cluster has several nodes
        match next {
            Next::Failed(error) => ended(error),
            _ => None,
        }
    }

    /// Follows a slot that has moved or is moving. An error ends the call.
    #[cfg(feature = "cluster")]
    fn follow(&mut self, cluster: &Cluster, pool: &Pool, next: Next) -> Result<(), CallError> {
        let from = pool.node();
        if !matches!(next, Next::Again) {
            self.asking = None;
        }
        let followed = match next {
            Next::Again => Ok(()),
            Next::Failed(error) => return Err(error),
            Next::Moved(to) => cluster.moved(self.key, from, &to),
            Next::Ask(to) => cluster.at(from, &to).map(|node| self.asking = Some(node)),
            Next::Pause(pause) => {
                std::thread::sleep(pause);
                Ok(())
            }
            Next::Doubt { error, asks } => {
                cluster.doubt(from);
                if !asks {
                    return Err(error);
                }
                let _ = cluster.ask_for_slots(Some(from), self.until);
                if cluster.known(self.key) == Some(from) {
                    return Err(error);
                }
                Ok(())
            }
        };
        followed.map_err(|failure| self.attempts.failed(failure)) // the new address is not valid
    }
}
