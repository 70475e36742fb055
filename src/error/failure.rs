//! A server that could not be used: what happened, told from the errors of the connection and of the server.

use crate::error::permission;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;

/// What kept the server from answering as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection could be made: nobody listens there, or the address does not resolve.
    Unreachable,
    /// No reply came in time.
    TimedOut,
    /// The connection broke.
    Disconnected,
    /// All connections of the pool were busy for as long as a call may take.
    PoolExhausted,
    /// The server wants a user name and a password, or other ones.
    Authentication,
    /// The user of this connection may not do what is needed; the text names the command, the keys or the channel.
    Permission,
    /// No secure connection could be made: a certificate is not accepted, or only one of both sides speaks TLS.
    Tls,
    /// The server is a replica, which takes no writes.
    ReadOnly,
    /// Fewer replicas confirmed than the gate asks for.
    TooFewReplicas,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// A key holds something else than it is for.
    WrongType,
    /// The keys hold the state of another version of luagate, which stores it in another layout. Nothing was changed.
    WrongVersion,
    /// The key lives on another node of a cluster.
    Moved,
    /// The server is up but does not serve yet: it loads its data, looks for its master, or moves a slot.
    NotReady,
    /// What answered does not speak the protocol of Redis.
    NotRedis,
    /// The reply does not fit the contract of the scripts.
    UnexpectedReply,
    /// This process was forked from the one that opened the gate.
    Forked,
    /// Anything else; the text is the server's or the system's.
    Other,
}

/// The server could not be used: what happened, and what to do about it.
#[derive(Clone, Debug)]
pub struct Failure(Box<Cause>); // in a box, since every call returns an error of this size or its answer

#[derive(Clone, Debug)]
struct Cause {
    kind: FailureKind,
    text: String,
    source: Option<RedisError>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure(Box::new(Cause { kind, text: text.into(), source: None }))
    }

    /// A failure of this kind, whatever `error` looks like by itself.
    pub(crate) fn of_error(kind: FailureKind, text: String, error: RedisError) -> Failure {
        Failure(Box::new(Cause { kind, text, source: Some(error) }))
    }

    /// What the server or the system said, without advice.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// What happened.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// The connection is of no use any more.
    pub(crate) fn is_broken(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, Disconnected | Unreachable | NotRedis | ReadOnly)
    }

    /// Time may heal it: worth another try, on a new connection.
    pub(crate) fn is_passing(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, Disconnected | Unreachable | TimedOut | NotReady | ReadOnly | PoolExhausted)
    }

    /// Where a node of a cluster sends the call. It has not run the script.
    #[cfg(feature = "cluster")]
    pub(crate) fn redirect(&self) -> Option<Redirect<'_>> {
        let error = self.0.source.as_ref()?;
        let to = || error.redirect_node().map(|(to, _)| to);
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => to().map(Redirect::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => to().map(Redirect::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::TryAgain),
            _ => None,
        }
    }

    /// The node may be gone, or no master any more, and another one have its slots.
    #[cfg(feature = "cluster")]
    pub(crate) fn may_mean_another_owner(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, Disconnected | Unreachable | TimedOut | ReadOnly | NotReady)
    }

    /// No reply was seen, so the server may have run the script or not.
    pub(crate) fn leaves_unknown(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, Disconnected | TimedOut | NotRedis | UnexpectedReply)
    }
}

/// Where a node of a cluster sends a call.
#[cfg(feature = "cluster")]
pub(crate) enum Redirect<'a> {
    /// For good.
    Moved(&'a str),
    /// This once: the slot is on its way there.
    Ask(&'a str),
    /// Nowhere yet: the slot is on its way, and some of the keys are there and some here.
    TryAgain,
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        let mut text = error.to_string();
        let kind = kind_of(&error, &text);
        if kind == FailureKind::Permission
            && let Some(detail) = error.detail()
        {
            text = detail.to_owned();
        }
        Failure::of_error(kind, text, error)
    }
}

fn kind_of(error: &RedisError, text: &str) -> FailureKind {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => return FailureKind::TimedOut,
        ErrorKind::Io if error.is_connection_refusal() => return FailureKind::Unreachable,
        ErrorKind::Io => return FailureKind::Disconnected,
        ErrorKind::AuthenticationFailed => return FailureKind::Authentication,
        ErrorKind::Parse => return FailureKind::NotRedis,
        ErrorKind::UnexpectedReturnType => return FailureKind::UnexpectedReply,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::ReadOnly => return FailureKind::ReadOnly,
            ServerErrorKind::NoPerm => return FailureKind::Permission,
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain => return FailureKind::NotReady,
            ServerErrorKind::Moved | ServerErrorKind::Ask => return FailureKind::Moved,
            _ => {}
        },
        _ => {}
    }
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => FailureKind::Authentication,
        Some("BUSY") => FailureKind::NotReady, // some other script runs for long
        Some("OOM") => FailureKind::OutOfMemory,
        Some("WRONGTYPE") => FailureKind::WrongType,
        // Redis 6 wraps the error of a command in a script into one of its own, and keeps only the text.
        _ if text.contains("READONLY ") => FailureKind::ReadOnly,
        _ if text.contains("max number of clients") => FailureKind::NotReady,
        _ if text.contains("OOM ") => FailureKind::OutOfMemory,
        _ if text.contains("WRONGTYPE ") => FailureKind::WrongType,
        Some("NOPERM") => FailureKind::Permission,
        _ if permission::is_refusal(text) => FailureKind::Permission,
        _ => FailureKind::Other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FailureKind::*;
        let advice = match self.0.kind {
            Unreachable => "the server cannot be reached; check that it runs and that the address is right",
            TimedOut => "the server did not answer in time; it is stalled or far away, or the timeout is too short",
            Disconnected => "the connection to the server broke; call again",
            PoolExhausted => "all connections are busy; give the gate more with `connections`",
            Authentication => "the server refused user name and password; check the ones in the address",
            Permission => {
                "the server's ACL does not let this user do this; `guide::production` has the permissions that luagate needs"
            }
            Tls => return write!(f, "no secure connection could be made: {}", self.0.text),
            ReadOnly => "the server is a read-only replica; connect to its master",
            TooFewReplicas => {
                "too few replicas confirmed, so it does not count; check that they follow their master, or ask for fewer with `min_replicas`"
            }
            OutOfMemory => "the server is out of memory; raise `maxmemory`, releasing and removing still work",
            WrongType => "a key of this name holds something else; choose another name or prefix",
            WrongVersion => {
                "another version of luagate wrote this state; use the same version in all programs, or choose another prefix"
            }
            Moved => {
                "the server is one node of a cluster, and another has this key; open the gate on the cluster, with an address that begins with redis+cluster://"
            }
            NotReady => "the server is not ready; call again",
            NotRedis => "what answers at this address is not Redis or Valkey; check host and port",
            UnexpectedReply => "the reply is none that the scripts give; is there a proxy that changes replies?",
            Forked => "the gate was opened before this process was forked; open one of its own here",
            Other => "the server refused the call",
        };
        write!(f, "{advice} ({})", self.0.text)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}
