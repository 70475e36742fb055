//! A failure of the server or the connection, with its text.

use super::{FailureKind, received, words};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The server could not be used: the kind of the failure, and a text with its remedy.
#[derive(Clone, Debug)]
pub struct Failure(Box<Cause>); // boxed, since every result of a call has the size of its error

#[derive(Clone, Debug)]
struct Cause {
    kind: FailureKind,
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// The kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }
}

impl From<luagate_core::failure::Failure> for Failure {
    fn from(failure: luagate_core::failure::Failure) -> Failure {
        let (kind, text) = (failure.kind(), words::of(&failure));
        Failure(Box::new(Cause { kind, text, source: received::source_of(failure.reason()) }))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FailureKind::*;
        let advice = match self.0.kind {
            Unreachable => "cannot connect to the server. Check that it runs and that the address is right",
            TimedOut => {
                "the server did not answer in time. Check its load and the network, or raise the timeout"
            }
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
            OutOfMemory => {
                "the server is out of memory. Raise `maxmemory`; releasing and removing still work"
            }
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
            Forked => {
                "this process is a fork of the one that opened the gate. Open a new gate in this process"
            }
            _ => "the call failed. Correct the cause that follows, then call again",
        };
        write!(f, "{advice} ({})", self.0.text)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
