//! Runs calls by the SHA-1 of their scripts, in as few packets as the server allows, and reads their outcomes.
//!
//! A server answers `NOSCRIPT` if it does not know a script: after a restart, `SCRIPT FLUSH`, a failover, or when it has
//! evicted the script. Then the first of these calls is repeated with the text (`EVAL`), which also stores the script, and
//! the others follow by their SHA-1 in the same packet. A server reads a long packet in pieces, and may forget the script
//! in between. Even then each round completes at least one call.

use super::call::Packed;
use super::reply::error_of;
use super::resp;
use crate::error::CallError;
use crate::error::failure::Failure;
use crate::error::kind::FailureKind;
use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use std::borrow::Cow;
use std::time::Duration;

/// The reply to one command, or its error.
pub type RawReply = RedisResult<Value>;

/// Calls that are sent to one server together. Each has its own outcome.
pub struct Exchange<'a> {
    calls: &'a [&'a Packed],
    replies: Vec<Option<RawReply>>,
    /// The first call of the next packet contains the text of its script.
    with_text: bool,
    /// The slot of the key is still moving to this server. `ASKING` is sent before each call.
    asking: bool,
    /// A command after the calls in each packet, and its last reply.
    pub last: Option<Vec<u8>>,
    pub last_reply: Option<RawReply>,
}

/// Commands that are sent together, and the number of their replies.
pub struct Packet<'a> {
    pub bytes: Cow<'a, [u8]>,
    pub replies: usize,
}

impl<'a> Packet<'a> {
    /// One call, by its SHA-1.
    pub fn of(call: &'a Packed) -> Packet<'a> {
        Packet { bytes: Cow::Borrowed(call.by_sha1()), replies: 1 }
    }
}

impl<'a> Exchange<'a> {
    pub fn new(calls: &'a [&'a Packed]) -> Exchange<'a> {
        Exchange {
            calls,
            replies: calls.iter().map(|_| None).collect(),
            with_text: false,
            asking: false,
            last: None,
            last_reply: None,
        }
    }

    pub fn asking(self, asking: bool) -> Exchange<'a> {
        Exchange { asking, ..self }
    }

    /// For calls that were answered `NOSCRIPT`.
    pub fn with_text(calls: &'a [&'a Packed]) -> Exchange<'a> {
        Exchange { with_text: true, ..Exchange::new(calls) }
    }

    /// The next packet to send. `None` once each call has its outcome.
    pub fn packet(&self) -> Option<Packet<'a>> {
        let mut open = self.open().peekable();
        open.peek()?;
        if let ([call], false, None, false) = (self.calls, self.asking, &self.last, self.with_text) {
            return Some(Packet::of(call));
        }
        let (mut bytes, mut replies) = (Vec::new(), 0);
        for (number, (_, call)) in open.enumerate() {
            if self.asking {
                resp::begin(&mut bytes, 1);
                resp::word(&mut bytes, b"ASKING");
                replies += 1;
            }
            if number == 0 && self.with_text {
                call.write_with_text(&mut bytes)
            } else {
                bytes.extend_from_slice(call.by_sha1())
            }
            replies += 1;
        }
        if let Some(last) = &self.last {
            bytes.extend_from_slice(last);
            replies += 1;
        }
        let bytes = Cow::Owned(bytes);
        Some(Packet { bytes, replies })
    }

    /// Takes the replies to the last packet, as many as [`Packet::replies`].
    pub fn receive(&mut self, replies: impl IntoIterator<Item = RawReply>) {
        let mut replies = replies.into_iter().map(error_in);
        let mut had_text = std::mem::replace(&mut self.with_text, true);
        for outcome in self.replies.iter_mut().filter(|outcome| outcome.is_none()) {
            let had_text = std::mem::take(&mut had_text);
            let asked = if self.asking { replies.next() } else { None };
            let reply = match (asked, replies.next()) {
                (Some(Err(error)), _) => Err(error),
                (_, reply) => reply.unwrap_or_else(missing),
            };
            match reply {
                Err(error) if is_no_script(&error) && !had_text => {}
                reply => *outcome = Some(reply),
            }
        }
        self.last_reply = replies.next();
    }

    /// The outcome of each call. `None`: the server did not run it.
    pub fn outcomes(self) -> Vec<Option<RawReply>> {
        self.replies
    }

    /// The reply to each call, and why they do not count yet: too few replicas confirmed them. `replicas`: those that had to
    /// confirm. `ended`: why there are no replies to the last packet.
    pub fn results(
        mut self,
        replicas: Option<&MinReplicas>,
        ended: Option<CallError>,
    ) -> (Vec<Result<Value, CallError>>, Option<Failure>) {
        let last = self.last_reply.take();
        let unconfirmed = replicas.and_then(|replicas| replicas.check(last).err());
        let not_sent = || CallError::Failed(Failure::new(FailureKind::Other, "the call was not sent"));
        let results = self.replies.into_iter().map(|reply| match reply {
            None => Err(ended.clone().unwrap_or_else(not_sent)),
            Some(reply) => reply.map_err(error_of),
        });
        (results.collect(), unconfirmed)
    }

    /// The calls without an outcome, each with its index.
    fn open(&self) -> impl Iterator<Item = (usize, &'a Packed)> {
        let calls = self.calls.iter().zip(&self.replies).enumerate();
        calls.filter_map(|(index, (call, reply))| reply.is_none().then_some((index, *call)))
    }
}

/// Takes the place of a reply that the server did not send.
pub fn missing() -> RawReply {
    Err((ErrorKind::UnexpectedReturnType, "fewer replies than calls").into())
}

/// A reply of the server. An error value in it becomes an `Err`.
pub fn error_in(reply: RawReply) -> RawReply {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

/// Whether the error means that the server does not know the script.
pub fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The number of replicas that must confirm, and the time within which they must.
#[derive(Clone, Copy, Debug)]
pub struct MinReplicas {
    pub count: u32,
    pub timeout: Duration,
}

impl MinReplicas {
    /// The command that follows the calls to confirm, on the same connection.
    pub fn command(&self) -> Vec<u8> {
        let mut wait = redis::cmd("WAIT");
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        wait.arg(self.count).arg(timeout.max(1)); // 0 would mean no timeout
        wait.get_packed_command()
    }

    /// Fails unless the reply reports enough confirmations.
    pub fn check(&self, reply: Option<RawReply>) -> Result<(), Failure> {
        let confirmed = match reply {
            Some(reply) => reply.and_then(|value| Ok(u32::from_redis_value(value)?)),
            None => Ok(0),
        };
        let confirmed = confirmed.map_err(|error| match Failure::of(error) {
            refused if refused.kind() == FailureKind::Permission => refused,
            // The calls have run, and nothing is known of the replicas: for example, the server is a replica itself by now.
            unknown => Failure::new(FailureKind::TooFewReplicas, unknown.text()),
        })?;
        if confirmed >= self.count {
            return Ok(());
        }
        let MinReplicas { count, timeout } = self;
        let text = format!("{confirmed} of {count} confirmed within {timeout:?}");
        Err(Failure::new(FailureKind::TooFewReplicas, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: std::io::ErrorKind) -> RedisError {
        std::io::Error::from(kind).into()
    }

    fn server(kind: ServerErrorKind) -> RedisError {
        (ErrorKind::Server(kind), "refused").into()
    }

    #[test]
    fn a_call_may_have_run_if_its_reply_is_missing_and_only_then() {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
        // The error; whether the call may have run, and whether its connection ends.
        let cases = [
            (io(TimedOut), true, false), // the missing reply may still come
            (io(ConnectionReset), true, true),
            ((ErrorKind::Parse, "no reply").into(), true, true),
            ((ErrorKind::UnexpectedReturnType, "too few replies").into(), true, true),
            (io(ConnectionRefused), false, true),
            (server(ServerErrorKind::ReadOnly), false, true),
            ((ErrorKind::AuthenticationFailed, "no login").into(), false, true),
            (server(ServerErrorKind::BusyLoading), false, false),
            (server(ServerErrorKind::Moved), false, false),
            (server(ServerErrorKind::NoPerm), false, false),
            (server(ServerErrorKind::CrossSlot), false, false),
        ];
        for (error, may_have_run, ends) in cases {
            let text = error.to_string();
            let error = error_of(error);
            assert_eq!(matches!(error, CallError::Unknown(_)), may_have_run, "{text}");
            assert_eq!(error.ends_connection(), ends, "{text}");
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
            let (results, unconfirmed) = exchange.results(Some(&replicas), None);
            assert!(matches!(results.as_slice(), [Ok(Value::Int(7))]), "{results:?}");
            assert_eq!(unconfirmed.is_none(), counts, "{confirmed:?}");
        }
    }

    #[test]
    fn a_server_that_never_knows_the_script_is_asked_twice() {
        let keys = crate::protocol::keys::LatchKeys::new("luagate", "l").unwrap();
        let call = crate::protocol::call::Call::pack(&crate::protocol::latch::Count { keys: &keys });
        let calls = [&call];
        let mut exchange = Exchange::new(&calls);
        let mut packets = 0;
        while let Some(packet) = exchange.packet() {
            packets += 1;
            assert!(packets <= 2, "it asks for ever");
            exchange.receive((0..packet.replies).map(|_| Err(server(ServerErrorKind::NoScript))));
        }
        assert_eq!(packets, 2);
        let (results, _) = exchange.results(None, None);
        let [Err(CallError::Failed(failure))] = results.as_slice() else {
            panic!("{results:?}");
        };
        assert_eq!(failure.kind(), FailureKind::NotReady);
    }

    #[test]
    fn a_call_counts_as_unconfirmed_if_its_server_stops_waiting_for_replicas() {
        let replicas = MinReplicas { count: 1, timeout: Duration::from_millis(10) };
        let unblocked = redis::make_extension_error("UNBLOCKED".to_owned(), Some("instance state changed".to_owned()));
        let failure = replicas.check(Some(Err(unblocked))).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    }

    #[test]
    fn a_call_that_was_not_sent_has_the_failure_of_its_packet() {
        let keys = crate::protocol::keys::LatchKeys::new("luagate", "l").unwrap();
        let call = crate::protocol::call::Call::pack(&crate::protocol::latch::Count { keys: &keys });
        let calls = [&call];
        let failure = Failure::new(FailureKind::Unreachable, "refused");
        let (results, _) = Exchange::new(&calls).results(None, Some(CallError::Failed(failure)));
        let [Err(CallError::Failed(failure))] = results.as_slice() else {
            panic!("{results:?}");
        };
        assert_eq!(failure.text(), "refused");
    }
}
