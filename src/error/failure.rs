//! Failures of the server or the connection, classified by the error that was reported.

use super::kind::FailureKind;
use super::replies::{self, Meaning};
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;

/// The server could not be used: the kind of the failure, and a text with its remedy.
#[derive(Clone, Debug)]
pub struct Failure(Box<Cause>); // boxed, since every result of a call has the size of its error

#[derive(Clone, Debug)]
struct Cause {
    kind: FailureKind,
    text: String,
    source: Option<RedisError>,
    /// The server may have run the call that ended so.
    may_have_run: bool,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure(Box::new(Cause { kind, text: text.into(), source: None, may_have_run: false }))
    }

    /// A failure of this kind with `error` as its source. Nothing was run.
    pub(crate) fn of_error(kind: FailureKind, text: String, error: RedisError) -> Failure {
        Failure(Box::new(Cause { kind, text, source: Some(error), may_have_run: false }))
    }

    /// The text of the server or the system, without the remedy.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// The kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// Whether no other call may use the connection: it broke, its order of replies is not known any more, its server no
    /// longer is a master, or it is not logged in any more.
    pub(crate) fn ends_connection(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, Disconnected | Unreachable | NotRedis | UnexpectedReply | ReadOnly | Authentication)
    }

    /// Whether the server refuses calls only for now: the same call can succeed soon, and nobody has to do anything.
    pub(crate) fn is_refusal_for_now(&self) -> bool {
        use FailureKind::*;
        matches!(self.0.kind, NotReady | ReadOnly)
    }

    /// Whether a retry on a new connection can succeed without any other change.
    pub(crate) fn is_passing(&self) -> bool {
        use FailureKind::*;
        self.is_refusal_for_now() || matches!(self.0.kind, Disconnected | Unreachable | TimedOut)
    }

    /// Whether a caller that has a place in line keeps it: also while a password is being changed, and while the server's
    /// memory is full, since a release gives it a permit then, too.
    pub(crate) fn keeps_place(&self) -> bool {
        use FailureKind::*;
        self.is_passing() || matches!(self.0.kind, Authentication | OutOfMemory)
    }

    /// Where a node of a cluster redirects the call. The node has not run the script.
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

    /// Whether the server may have run the call that ended so.
    pub(crate) fn may_have_run(&self) -> bool {
        self.0.may_have_run
    }
}

/// Where a node of a cluster redirects a call.
pub(crate) enum Redirect<'a> {
    /// Permanently.
    Moved(&'a str),
    /// For this call only: the slot is being moved there.
    Ask(&'a str),
    /// To no node yet: the slot is being moved, and its keys are on both nodes.
    TryAgain,
}

impl Failure {
    /// The failure of a call that ended with this error.
    pub(crate) fn of(error: RedisError) -> Failure {
        let Meaning { kind, may_have_run } = replies::meaning(&error).unwrap_or_else(|| without_reply(&error));
        let text = match error.detail() {
            Some(detail) if kind == FailureKind::Permission => detail.to_owned(),
            _ => error.to_string(),
        };
        Failure(Box::new(Cause { kind, text, source: Some(error), may_have_run }))
    }
}

/// The meaning of an error that the server did not reply.
fn without_reply(error: &RedisError) -> Meaning {
    use FailureKind::*;
    let (kind, may_have_run) = match error.kind() {
        ErrorKind::Io if error.is_timeout() => (TimedOut, true),
        ErrorKind::Io if error.is_connection_refusal() => (Unreachable, false),
        ErrorKind::Io => (Disconnected, true),
        ErrorKind::AuthenticationFailed => (Authentication, false),
        ErrorKind::Parse => (NotRedis, true),
        ErrorKind::UnexpectedReturnType => (UnexpectedReply, true),
        _ => (Other, false),
    };
    Meaning { kind, may_have_run }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FailureKind::*;
        let advice = match self.0.kind {
            Unreachable => "cannot connect to the server. Check that it runs and that the address is right",
            TimedOut => "the server did not answer in time. Check its load and the network, or raise the timeout",
            Disconnected => "the connection to the server broke. Call again",
            Authentication => {
                "cannot log in. Correct the user name or password in the address, or in what `credentials` returns"
            }
            Permission => {
                "the server's ACL does not permit this. `luagate doctor` names the missing permission; `guide::production` lists all"
            }
            Tls => return write!(f, "cannot make a TLS connection: {}", self.0.text),
            ReadOnly => "the server is a read-only replica. Connect to its master",
            TooFewReplicas => {
                "too few replicas confirmed, so the call failed. Check that they follow their master, or lower `min_replicas`"
            }
            OutOfMemory => "the server is out of memory. Raise `maxmemory`; releasing and removing still work",
            WrongType => "a key of this name holds another type of data. Choose another name or prefix",
            WrongVersion => {
                "another version of luagate wrote this state. Use one version in all programs, or choose another prefix"
            }
            Moved => {
                "this server is one node of a cluster, and another node has the key. Use an address that begins with redis+cluster://"
            }
            NotReady => "the server is not ready. Call again",
            NotRedis => "the program at this address is not Redis or Valkey. Check host and port",
            UnexpectedReply => {
                "unexpected reply; the scripts never return this. Check for a proxy that changes replies"
            }
            Forked => "this process is a fork of the one that opened the gate. Open a new gate in this process",
            Other => "the call failed. Correct the cause that follows, then call again",
        };
        write!(f, "{advice} ({})", self.0.text)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}
