//! Runs calls by the SHA-1 of their scripts, in as few packets as the server allows.
//!
//! A server answers `NOSCRIPT` if it does not know a script (after a restart, `SCRIPT FLUSH` or a failover). Then one
//! packet stores the text and repeats the call. A server reads a long packet in pieces and may forget the text in
//! between. Therefore, from the third round on, the first call contains the text, so that each round completes at least
//! one call. A call that runs twice is harmless: the same id has the same outcome.

use super::call::Packed;
use super::resp;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::borrow::Cow;

/// The reply to one command, or its error.
pub type Reply = RedisResult<Value>;

/// Calls that are sent to one server together. Each has its own outcome.
pub struct Exchange<'a> {
    calls: &'a [&'a Packed],
    replies: Vec<Option<Reply>>,
    round: Round,
    /// The slot of the key is still moving to this server. `ASKING` is sent before each call.
    asking: bool,
    /// Stores a script on the server if it is missing there. A connection to a whole cluster cannot do that.
    pub stores: bool,
    /// A command after the calls in each packet, and its last reply.
    pub last: Option<Vec<u8>>,
    pub last_reply: Option<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    BySha1,
    /// Stores the script first.
    Store,
    /// The first call contains the text.
    WithText,
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
            round: Round::BySha1,
            asking: false,
            stores: true,
            last: None,
            last_reply: None,
        }
    }

    pub fn asking(self, asking: bool) -> Exchange<'a> {
        Exchange { asking, ..self }
    }

    /// For calls that were answered `NOSCRIPT`.
    pub fn of_unknown(calls: &'a [&'a Packed]) -> Exchange<'a> {
        Exchange { round: Round::Store, ..Exchange::new(calls) }
    }

    /// The next packet to send. `None` once each call has its outcome.
    pub fn packet(&self) -> Option<Packet<'a>> {
        let mut open = self.open().peekable();
        open.peek()?;
        if let ([call], false, None, Round::BySha1) = (self.calls, self.asking, &self.last, self.round) {
            return Some(Packet::of(call));
        }
        let (mut bytes, mut replies) = (Vec::new(), 0);
        for (number, (_, call)) in open.enumerate() {
            if number == 0 && self.round == Round::Store {
                call.write_load(&mut bytes);
                replies += 1;
            }
            if self.asking {
                resp::begin(&mut bytes, 1);
                resp::word(&mut bytes, b"ASKING");
                replies += 1;
            }
            if number == 0 && self.round == Round::WithText {
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
    pub fn receive(&mut self, replies: impl IntoIterator<Item = Reply>) {
        let mut replies = replies.into_iter().map(error_in);
        let refused = match self.round {
            Round::Store => replies.next().and_then(Result::err),
            Round::BySha1 | Round::WithText => None,
        };
        for (outcome, call) in self.replies.iter_mut().zip(self.calls) {
            if outcome.is_some() {
                continue;
            }
            let asked = if self.asking { replies.next() } else { None };
            let reply = match (asked, replies.next()) {
                (Some(Err(error)), _) => Err(error),
                (_, reply) => reply.unwrap_or_else(missing),
            };
            let reply = match reply {
                Err(error) if is_no_script(&error) => match &refused {
                    Some(refused) => Err(refused.clone()), // clearer than the reason that the script is unknown
                    None => continue,
                },
                reply => reply,
            };
            *outcome = Some(reply.map_err(|error| call.explain(error)));
        }
        self.last_reply = replies.next();
        self.round = match self.round {
            Round::BySha1 if self.stores => Round::Store,
            Round::BySha1 | Round::Store | Round::WithText => Round::WithText,
        };
    }

    /// The outcome of each call. `None`: the server did not run it.
    pub fn outcomes(self) -> Vec<Option<Reply>> {
        self.replies
    }

    /// The calls without an outcome, each with its index.
    fn open(&self) -> impl Iterator<Item = (usize, &'a Packed)> {
        let calls = self.calls.iter().zip(&self.replies).enumerate();
        calls.filter_map(|(index, (call, reply))| reply.is_none().then_some((index, *call)))
    }
}

/// Takes the place of a reply that the server did not send.
pub fn missing() -> Reply {
    Err((ErrorKind::UnexpectedReturnType, "fewer replies than calls").into())
}

/// A reply of the server. An error value in it becomes an `Err`.
pub fn error_in(reply: Reply) -> Reply {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

/// Whether the error means that the server does not know the script.
pub fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
