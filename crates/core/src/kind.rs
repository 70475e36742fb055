//! The kinds of failures.

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection could be made: no program listens at the address, or the address does not resolve.
    Unreachable,
    /// No reply came in time.
    TimedOut,
    /// The connection broke.
    Disconnected,
    /// The server requires a user name or a password, or refused the given ones, or the function of
    /// `GateBuilder::credentials` failed.
    Authentication,
    /// The user of this connection lacks a permission. `luagate doctor` names it. The text is the server's:
    /// since Redis 7.2 it names the command, and never the keys. It names the channel of messages.
    Permission,
    /// No TLS connection could be made: a certificate was not accepted, or only one of both sides uses TLS.
    Tls,
    /// The server is a replica and refuses writes.
    ReadOnly,
    /// Fewer replicas confirmed than the gate requires.
    TooFewReplicas,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// A key holds another type of data.
    WrongType,
    /// The keys hold the state of another version of luagate, with another layout. Nothing was changed.
    WrongVersion,
    /// The key is on another node of a cluster.
    Moved,
    /// The server, or a proxy before it, cannot run the call now: it loads its data, runs another script, has
    /// too few replicas (`NOREPLICAS`), cannot save its data (`MISCONF`), searches for its master, or moves a
    /// slot.
    NotReady,
    /// The program at this address does not use the protocol of Redis.
    NotRedis,
    /// The scripts never return this reply.
    UnexpectedReply,
    /// This process is a fork of the process that opened the gate.
    Forked,
    /// Any other failure. The text is from the server or the system.
    Other,
}
