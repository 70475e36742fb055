//! Runs calls by the SHA-1 of their scripts, in as few packets as the server allows, and reads their
//! outcomes.
//!
//! A server answers `NOSCRIPT` if it does not know a script: after a restart, `SCRIPT FLUSH`, a failover, or
//! when it has evicted the script. Then the first of these calls is repeated with the text (`EVAL`), which
//! also stores the script, and the others follow by their SHA-1 in the same packet. A server reads a long
//! packet in pieces, and may forget the script in between. Even then each round completes at least one call.

use super::call::Packed;
use super::reply::error_of;
use super::resp;
use crate::failure::{CallError, Failure, Reason};
use crate::kind::FailureKind;
use crate::value::Value;
use std::borrow::Cow;
use std::time::Duration;

/// The maximum number of refreshes or releases in one packet.
pub const BATCH: usize = 100;

/// The reply to one command, or its error.
pub type RawReply = Result<Value, Failure>;

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

    /// The reply to each call, and why they do not count yet: too few replicas confirmed them. `replicas`:
    /// those that had to confirm. `ended`: why there are no replies to the last packet.
    pub fn results(
        mut self,
        replicas: Option<&MinReplicas>,
        ended: Option<CallError>,
    ) -> (Vec<Result<Value, CallError>>, Option<Failure>) {
        let last = self.last_reply.take();
        let unconfirmed = replicas.and_then(|replicas| replicas.check(last).err());
        let not_sent = || CallError::Failed(Failure::because(FailureKind::Other, Reason::NotSent));
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
    Err(Failure::missing_reply())
}

/// A reply of the server. An error value in it becomes an `Err`.
pub fn error_in(reply: RawReply) -> RawReply {
    match reply {
        Ok(Value::Error(refusal)) => Err(Failure::refused(refusal)),
        reply => reply,
    }
}

/// Whether the error means that the server does not know the script.
pub fn is_no_script(failure: &Failure) -> bool {
    failure.refusal().is_some_and(|refusal| refusal.code() == "NOSCRIPT")
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
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let mut wait = Vec::new();
        resp::begin(&mut wait, 3);
        resp::word(&mut wait, b"WAIT");
        resp::number(&mut wait, self.count.into());
        resp::number(&mut wait, timeout.max(1)); // 0 would mean no timeout
        wait
    }

    /// Fails unless the reply reports enough confirmations.
    pub fn check(&self, reply: Option<RawReply>) -> Result<(), Failure> {
        let confirmed = match reply.map(error_in) {
            Some(Ok(Value::Int(confirmed))) => u32::try_from(confirmed).unwrap_or_default(),
            Some(Err(refused)) if refused.kind() == FailureKind::Permission => return Err(refused),
            // The calls have run, and nothing is known of the replicas: for example, the server is a replica
            // itself by now.
            Some(Err(unknown)) => return Err(unknown.of_kind(FailureKind::TooFewReplicas)),
            Some(Ok(_)) | None => 0,
        };
        if confirmed >= self.count {
            return Ok(());
        }
        let reason = Reason::TooFewReplicas { confirmed, count: self.count, timeout: self.timeout };
        Err(Failure::because(FailureKind::TooFewReplicas, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::keys::LatchKeys;
    use crate::latch::Count;
    use crate::script::Scripts;
    use crate::value::Refusal;
    use once_cell::sync::Lazy;

    fn refused(text: &str) -> Failure {
        Failure::refused(Refusal::read(text))
    }

    static SCRIPTS: Lazy<Scripts> = Lazy::new(|| Scripts::new(|_| "return 1"));

    fn call() -> Packed {
        let keys = LatchKeys::new("luagate", "l").unwrap();
        Count { keys: &keys }.pack(&SCRIPTS)
    }

    #[test]
    fn a_call_may_have_run_if_its_reply_is_missing_and_only_then() {
        // The error; whether the call may have run, and whether its connection ends.
        let cases = [
            (Failure::missing_reply(), true, true),
            (refused("READONLY You can't write against a read only replica."), false, true),
            (refused("LOADING Redis is loading the dataset in memory"), false, false),
            (refused("MOVED 1 a:1"), false, false),
            (refused("NOPERM no permission"), false, false),
            (refused("CROSSSLOT Keys in request don't hash to the same slot"), false, false),
            (refused("ERR of an unknown kind"), true, false),
        ];
        for (failure, may_have_run, ends) in cases {
            let text = format!("{failure:?}");
            let error = error_of(failure);
            assert_eq!(matches!(error, CallError::Unknown(_)), may_have_run, "{text}");
            assert_eq!(error.ends_connection(), ends, "{text}");
        }
    }

    #[test]
    fn a_grant_that_too_few_replicas_confirm_does_not_count() {
        let replicas = MinReplicas { count: 2, timeout: Duration::from_millis(10) };
        for (confirmed, counts) in
            [(Some(Ok(Value::Int(2))), true), (Some(Ok(Value::Int(1))), false), (None, false)]
        {
            let call = call();
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
        let call = call();
        let calls = [&call];
        let mut exchange = Exchange::new(&calls);
        let mut packets = 0;
        while let Some(packet) = exchange.packet() {
            packets += 1;
            assert!(packets <= 2, "it asks for ever");
            exchange.receive((0..packet.replies).map(|_| Err(refused("NOSCRIPT No matching script."))));
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
        let unblocked = refused("UNBLOCKED instance state changed");
        let failure = replicas.check(Some(Err(unblocked))).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::TooFewReplicas);
    }

    #[test]
    fn a_call_that_was_not_sent_has_the_failure_of_its_packet() {
        let call = call();
        let calls = [&call];
        let failure = Failure::new(FailureKind::Unreachable, "refused");
        let (results, _) = Exchange::new(&calls).results(None, Some(CallError::Failed(failure)));
        let [Err(CallError::Failed(failure))] = results.as_slice() else {
            panic!("{results:?}");
        };
        assert_eq!(failure.kind(), FailureKind::Unreachable);
    }
}
