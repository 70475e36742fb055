//! Sends one call until it has an outcome: repeated if a connection broke, redirected if its slot has moved.

#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::connection::Connection;
use super::server::Server;
use super::topology::Topology;
use crate::clock::Clock;
use crate::error::CallError;
use crate::error::failure::Failure;
use crate::protocol::lease::Moment;
use crate::transport::attempts::{Attempts, Next};
#[cfg(feature = "cluster")]
use futures_util::FutureExt;
use redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The outcome of a call.
pub(in crate::aio) type Outcome = Result<Answered, Unanswered>;

/// A call that was answered.
pub(in crate::aio) struct Answered {
    pub(super) reply: Value,
    /// The moment before the answered call was sent.
    pub(in crate::aio) sent: Moment,
    /// An earlier attempt was not answered, so the server may have run the call twice.
    pub(in crate::aio) repeated: bool,
    /// The reason why the call does not count yet: too few replicas confirmed it.
    pub(in crate::aio) unconfirmed: Option<Failure>,
    pub(super) connection: Arc<Connection>,
}

impl Answered {
    /// Reads the answer. If the reply breaks the contract, its connection is not used any more.
    pub(in crate::aio) fn read<T>(self, read: impl FnOnce(Value) -> Result<T, CallError>) -> Result<T, Unanswered> {
        read(self.reply).map_err(|error| {
            self.connection.outdate();
            error.into()
        })
    }
}

/// A call without a valid answer.
#[must_use = "a call that may have run has to be undone"]
pub(in crate::aio) struct Unanswered {
    pub(in crate::aio) error: CallError,
    /// The connection on which the call was sent, if it still works.
    pub(in crate::aio) connection: Option<Arc<Connection>>,
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
    asking: Option<Arc<Server>>,
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
    pub(super) async fn server(&self) -> Result<Arc<Server>, Unanswered> {
        #[cfg(feature = "cluster")]
        if let Some(node) = &self.asking {
            return Ok(node.clone());
        }
        match self.topology {
            Topology::One(server) => Ok(server.clone()),
            #[cfg(feature = "cluster")]
            Topology::Cluster(cluster) => {
                let owner = cluster.owner(self.key, self.until).boxed().await;
                owner.map_err(|failure| self.failed(failure))
            }
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
    #[cfg(feature = "cluster")]
    fn failed(&self, failure: Failure) -> Unanswered {
        self.attempts.failed(failure).into()
    }

    /// Handles an attempt. Returns the outcome of the call, or `None` if the call must be sent again.
    pub(super) async fn next(&mut self, server: &Server, outcome: Outcome) -> Option<Outcome> {
        let Unanswered { error, connection } = match outcome {
            Ok(mut answered) => {
                answered.repeated |= self.attempts.may_have_run();
                return Some(Ok(answered));
            }
            Err(unanswered) => unanswered,
        };
        let next = self.attempts.unanswered(error, connection.is_some(), self.clock.now());
        #[cfg(feature = "cluster")]
        if let Topology::Cluster(cluster) = self.topology {
            let error = self.follow(cluster, server, next).await.err()?;
            return Some(Err(Unanswered { error, connection }));
        }
        let _ = server; // only a cluster has several nodes
        match next {
            Next::Failed(error) => Some(Err(Unanswered { error, connection })),
            _ => None,
        }
    }

    /// Follows a slot that has moved or is moving. An error ends the call.
    #[cfg(feature = "cluster")]
    async fn follow(&mut self, cluster: &Cluster, server: &Server, next: Next) -> Result<(), CallError> {
        let from = server.node();
        if !matches!(next, Next::Again) {
            self.asking = None;
        }
        let followed = match next {
            Next::Again => Ok(()),
            Next::Failed(error) => return Err(error),
            Next::Moved(to) => cluster.moved(self.key, from, &to),
            Next::Ask(to) => cluster.at(from, &to).map(|node| self.asking = Some(node)),
            Next::Pause(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Next::Doubt { error, asks } => {
                cluster.doubt(from);
                if !asks {
                    return Err(error);
                }
                let _ = cluster.ask_for_slots(Some(from), self.until).boxed().await;
                if cluster.known(self.key) == Some(from) {
                    return Err(error);
                }
                Ok(())
            }
        };
        followed.map_err(|failure| self.attempts.failed(failure)) // the new address is not valid
    }
}
