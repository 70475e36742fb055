//! What the replies to a packet mean: for its calls, and for its connection.

use super::exchange::{Exchange, Reply};
use super::replicas::MinReplicas;
use super::reply::error_of;
use crate::error::CallError;
use crate::error::failure::{Failure, FailureKind};
use redis::{RedisError, Value};

/// The outcome of one attempt to carry out a call.
pub type Outcome = Result<Answered, Unanswered>;

/// A call that was answered.
#[derive(Clone, Debug)]
pub struct Answered {
    pub reply: Value,
    /// The reason why the call does not count yet: too few replicas confirmed it.
    pub unconfirmed: Option<Failure>,
}

/// A call without a valid answer.
#[derive(Clone, Debug)]
pub struct Unanswered {
    pub error: CallError,
    /// Its connection still works, and the answer may come.
    pub is_late: bool,
}

impl Unanswered {
    /// A call with this error as its reply.
    pub fn new(error: RedisError) -> Unanswered {
        Unanswered { error: error_of(error), is_late: false }
    }

    /// A call that was not sent.
    pub fn not_sent(failure: Failure) -> Unanswered {
        Unanswered { error: CallError::Failed(failure), is_late: false }
    }

    /// Whether no other call may use its connection: it broke, its order of replies is not known any more, or its
    /// server no longer is a master.
    pub fn ends_connection(&self) -> bool {
        match &self.error {
            CallError::Failed(failure) => failure.is_broken(),
            CallError::Unknown(_) => !self.is_late,
            CallError::Invalid(_) => false,
        }
    }
}

/// The outcome of a call without others in its packet.
pub fn of_one(reply: Reply) -> Outcome {
    let reply = reply.map_err(Unanswered::new)?;
    Ok(Answered { reply, unconfirmed: None })
}

/// The outcome of each call of an exchange. `replicas`: those that had to confirm. `ended`: why there are no replies to its
/// last packet.
pub fn of_all(mut exchange: Exchange, replicas: Option<&MinReplicas>, ended: Option<Unanswered>) -> Vec<Outcome> {
    let last = exchange.last_reply.take();
    let unconfirmed = replicas.and_then(|replicas| replicas.check(last).err());
    let not_sent = || Failure::new(FailureKind::Other, "the call was not sent");
    let outcomes = exchange.outcomes().into_iter().map(|reply| match reply {
        None => Err(ended.clone().unwrap_or_else(|| Unanswered::not_sent(not_sent()))),
        Some(reply) => of_one(reply).map(|answered| Answered { unconfirmed: unconfirmed.clone(), ..answered }),
    });
    outcomes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{ErrorKind, ServerErrorKind};
    use std::time::Duration;

    fn io(kind: std::io::ErrorKind) -> RedisError {
        std::io::Error::from(kind).into()
    }

    fn server(kind: ServerErrorKind) -> RedisError {
        (ErrorKind::Server(kind), "refused").into()
    }

    #[test]
    fn a_call_may_have_run_if_its_reply_is_missing_and_only_then() {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
        // The error; whether the call may have run, and whether its connection ends, if nothing more can come on it.
        let cases = [
            (io(TimedOut), true, true),
            (io(ConnectionReset), true, true),
            ((ErrorKind::Parse, "no reply").into(), true, true),
            ((ErrorKind::UnexpectedReturnType, "too few replies").into(), true, true),
            (io(ConnectionRefused), false, true),
            (server(ServerErrorKind::ReadOnly), false, true),
            (server(ServerErrorKind::BusyLoading), false, false),
            (server(ServerErrorKind::Moved), false, false),
            (server(ServerErrorKind::NoPerm), false, false),
            (server(ServerErrorKind::CrossSlot), false, false),
        ];
        for (error, may_have_run, ends) in cases {
            let text = error.to_string();
            let unanswered = Unanswered::new(error);
            assert_eq!(matches!(unanswered.error, CallError::Unknown(_)), may_have_run, "{text}");
            assert_eq!(unanswered.ends_connection(), ends, "{text}");
            // While the missing reply may still come, the connection stays.
            let late = Unanswered { is_late: may_have_run, ..unanswered };
            assert_eq!(late.ends_connection(), ends && !may_have_run, "{text}");
        }
    }

    #[test]
    fn a_grant_that_too_few_replicas_confirm_does_not_count() {
        let replicas = MinReplicas { count: 2, timeout: Duration::from_millis(10) };
        for (confirmed, counts) in [(Some(Ok(Value::Int(2))), true), (Some(Ok(Value::Int(1))), false), (None, false)] {
            let keys = crate::protocol::keys::LatchKeys::new("luagate", "l").unwrap();
            let call = crate::protocol::call::Call::pack(&crate::protocol::latch::Count { keys: &keys });
            let calls = [&call];
            let mut exchange = Exchange::new(&calls);
            exchange.last = Some(replicas.command());
            exchange.receive(std::iter::once(Ok(Value::Int(7))).chain(confirmed.clone()));
            let outcomes = of_all(exchange, Some(&replicas), None);
            let [Ok(answered)] = outcomes.as_slice() else {
                panic!("{outcomes:?}");
            };
            assert_eq!(answered.unconfirmed.is_none(), counts, "{confirmed:?}");
        }
    }

    #[test]
    fn a_call_that_was_not_sent_has_the_failure_of_its_packet() {
        let keys = crate::protocol::keys::LatchKeys::new("luagate", "l").unwrap();
        let call = crate::protocol::call::Call::pack(&crate::protocol::latch::Count { keys: &keys });
        let calls = [&call];
        let failure = Failure::new(FailureKind::Unreachable, "refused");
        let outcomes = of_all(Exchange::new(&calls), None, Some(Unanswered::not_sent(failure)));
        let [Err(Unanswered { error: CallError::Failed(failure), is_late: false })] = outcomes.as_slice() else {
            panic!("{outcomes:?}");
        };
        assert_eq!(failure.text(), "refused");
    }
}
