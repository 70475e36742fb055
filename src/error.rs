//! What can go wrong, told apart by type: one small enum for each kind of operation, all of which turn into [`Error`].

use crate::permit::Permit;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;
use std::time::Duration;

/// An argument that cannot be: which one, and what it takes. Nothing was sent, or the script refused it and changed
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: String,
    why: String,
}

impl Invalid {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Invalid {
        Invalid {
            what: what.to_owned(),
            why: why.into(),
        }
    }

    /// The argument: `name`, `id`, `permits`, `limit`, `lease`, `timeout`, ...
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Invalid {}

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
    /// The user of this connection may not run the command.
    Permission,
    /// The server is a replica, which takes no writes.
    ReadOnly,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// A key of the semaphore holds something else.
    WrongType,
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
pub struct Failure {
    kind: FailureKind,
    text: String,
    source: Option<RedisError>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure {
            kind,
            text: text.into(),
            source: None,
        }
    }

    /// What happened.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The connection is of no use any more.
    pub(crate) fn is_broken(&self) -> bool {
        use FailureKind::*;
        matches!(self.kind, Disconnected | Unreachable | NotRedis | ReadOnly)
    }

    /// Time may heal it: worth another try, on a new connection.
    pub(crate) fn is_passing(&self) -> bool {
        use FailureKind::*;
        matches!(
            self.kind,
            Disconnected | Unreachable | TimedOut | NotReady | ReadOnly | PoolExhausted
        )
    }

    /// No reply was seen, so the server may have run the script or not.
    pub(crate) fn leaves_unknown(&self) -> bool {
        use FailureKind::*;
        matches!(
            self.kind,
            Disconnected | TimedOut | NotRedis | UnexpectedReply
        )
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        let text = error.to_string();
        Failure {
            kind: kind_of(&error, &text),
            text,
            source: Some(error),
        }
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
            _ => {}
        },
        _ => {}
    }
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => FailureKind::Authentication,
        Some("OOM") => FailureKind::OutOfMemory,
        Some("WRONGTYPE") => FailureKind::WrongType,
        // Redis 6 wraps the error of a command in a script into one of its own, and keeps only the text.
        _ if text.contains("READONLY ") => FailureKind::ReadOnly,
        _ if text.contains("OOM ") => FailureKind::OutOfMemory,
        _ if text.contains("WRONGTYPE ") => FailureKind::WrongType,
        _ if ["NOPERM ", "ACL failure", "can't run this command"]
            .iter()
            .any(|sign| text.contains(sign)) =>
        {
            FailureKind::Permission
        }
        _ => FailureKind::Other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FailureKind::*;
        let advice = match self.kind {
            Unreachable => {
                "the server cannot be reached; check that it runs and that the address is right"
            }
            TimedOut => {
                "the server did not answer in time; it is stalled or far away, or the timeout is too short"
            }
            Disconnected => "the connection to the server broke; call again",
            PoolExhausted => "all connections are busy; give the gate more with `connections`",
            Authentication => {
                "the server refused user name and password; check the ones in the address"
            }
            Permission => "the server's ACL does not let this user run a command; grant it",
            ReadOnly => "the server is a read-only replica; connect to its master",
            OutOfMemory => "the server is out of memory; raise `maxmemory`, releasing still works",
            WrongType => "a key of this name holds something else; choose another name or prefix",
            NotReady => "the server is not ready; call again",
            NotRedis => "what answers at this address is not Redis or Valkey; check host and port",
            UnexpectedReply => {
                "the reply is none that the scripts give; is there a proxy that changes replies?"
            }
            Forked => {
                "the gate was opened before this process was forked; open one of its own here"
            }
            Other => "the server refused the call",
        };
        write!(f, "{advice} ({})", self.text)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

/// Not granted: too many are inside, or others wait in front. Not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// How many permits are in use.
    pub in_use: u32,
    /// The limit in force.
    pub limit: u32,
    /// How many callers wait in line.
    pub waiting: u64,
    /// When asking again makes sense: after the next lease has ended. `None`: no lease that runs now ever ends.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} permits are in use and {} wait",
            self.in_use, self.limit, self.waiting
        )?;
        match self.retry_after {
            Some(after) => write!(f, "; ask again in {after:?} or wait in line"),
            None => write!(f, "; ask again when a holder has released"),
        }
    }
}

impl std::error::Error for Denied {}

/// The id that was chosen for this call holds already, and an id holds one permit at most.
///
/// It may be another caller with the same id, or an earlier call of this one whose reply was lost:
/// [`Semaphore::adopt`](crate::Semaphore::adopt) takes the permit over, [`Semaphore::revoke`](crate::Semaphore::revoke)
/// gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyHeld {
    /// The id.
    pub id: String,
    /// How many permits it holds.
    pub permits: u32,
    /// The fence of the permit that it holds.
    pub fence: u64,
}

impl fmt::Display for AlreadyHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the id {} holds already (fence {}); adopt it, revoke it, or use another id",
            self.id, self.fence
        )
    }
}

impl std::error::Error for AlreadyHeld {}

/// A strict semaphore found another limit in force than the one it declares. Nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitMismatch {
    /// What this caller declares.
    pub declared: u32,
    /// What is in force.
    pub in_force: u32,
}

impl fmt::Display for LimitMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the limit in force is {}, not {} as declared here; `resize` it, or declare the same everywhere",
            self.in_force, self.declared
        )
    }
}

impl std::error::Error for LimitMismatch {}

/// The permit is not this holder's any more: its lease ended, it was released or revoked, or the server forgot it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The id that held it.
    pub id: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} no longer holds its permit; stop what it protects, then acquire anew",
            self.id
        )
    }
}

impl std::error::Error for Lost {}

/// Writes an enum whose variants each hold one value that explains itself, with its conversions.
macro_rules! one_of {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($inner:ty),)* }) => {
        $(#[$docs])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant($inner),)* }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self { $($name::$variant(inner) => std::error::Error::source(inner),)* }
            }
        }
    };
}

/// `Failed` and `Unknown` hold the same type, so these conversions are written out.
macro_rules! from {
    ($($target:ident from $source:ty { $($pattern:pat => $value:expr,)* })*) => {
        $(impl From<$source> for $target {
            fn from(source: $source) -> $target {
                match source { $($pattern => $value,)* }
            }
        })*
    };
}

/// Displays each variant by the value in it, an unknown outcome with what follows from it.
macro_rules! display {
    ($($name:ident { $($variant:ident),* })*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$variant(inner) => inner.fmt(f),)*
                    $name::Unknown(failure) => write!(
                        f,
                        "whether the server ran the call is not known: {failure}"
                    ),
                }
            }
        })*
    };
}

one_of! {
    /// Why an operation that nobody waits for and nothing is granted by failed.
    CallError {
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid),
        /// The server could not be used; nothing was changed.
        Failed(Failure),
        /// The call was sent, also again with the same id, and no reply came: it may have been carried out or not.
        Unknown(Failure),
    }
}

one_of! {
    /// Why nothing was granted at once.
    TryAcquireError {
        /// Too many are inside, or others wait in front.
        Denied(Denied),
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld),
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch),
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid),
        /// The server could not be used; nothing is held.
        Failed(Failure),
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure),
    }
}

one_of! {
    /// Why waiting in line ended without a permit.
    AcquireError {
        /// The time was over. The place in line is given up.
        TimedOut(Denied),
        /// The handle given with `cancelled_by` ended the wait. The place in line is given up.
        Cancelled(Cancelled),
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld),
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch),
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid),
        /// The server could not be used; nothing is held.
        Failed(Failure),
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure),
    }
}

one_of! {
    /// Why a lease was not extended.
    RefreshError {
        /// The permit is not this holder's any more.
        Lost(Lost),
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid),
        /// The server could not be used. The permit lives on until its lease ends.
        Failed(Failure),
        /// The call was sent and no reply came. The permit counts by its old lease.
        Unknown(Failure),
    }
}

one_of! {
    /// Anything that can go wrong here. Every other error of this crate turns into it.
    Error {
        /// Too many are inside, or others wait in front.
        Denied(Denied),
        /// The time to wait in line was over.
        TimedOut(Denied),
        /// The wait was cancelled.
        Cancelled(Cancelled),
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld),
        /// Another limit is in force than the one declared.
        LimitMismatch(LimitMismatch),
        /// The permit is not this holder's any more.
        Lost(Lost),
        /// An argument cannot be.
        Invalid(Invalid),
        /// The server could not be used.
        Failed(Failure),
        /// No reply came: the call may have been carried out or not.
        Unknown(Failure),
    }
}

display! {
    CallError { Invalid, Failed }
    TryAcquireError { Denied, AlreadyHeld, LimitMismatch, Invalid, Failed }
    RefreshError { Lost, Invalid, Failed }
}

/// The time in line was over; told apart from a plain refusal only in its text.
macro_rules! display_waiting {
    ($($name:ident { $($variant:ident),* })*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$variant(inner) => inner.fmt(f),)*
                    $name::TimedOut(denied) => write!(f, "timed out in line: {denied}"),
                    $name::Unknown(failure) => write!(f, "whether the server ran the call is not known: {failure}"),
                }
            }
        })*
    };
}

display_waiting! {
    AcquireError { Cancelled, AlreadyHeld, LimitMismatch, Invalid, Failed }
    Error { Denied, Cancelled, AlreadyHeld, LimitMismatch, Lost, Invalid, Failed }
}

/// The wait was ended from another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for Cancelled {}

macro_rules! same_variants {
    ($($source:ident => $target:ident { $($variant:ident),* })*) => {
        from! { $($target from $source { $($source::$variant(inner) => $target::$variant(inner),)* })* }
    };
}

same_variants! {
    CallError => TryAcquireError { Invalid, Failed, Unknown }
    CallError => AcquireError { Invalid, Failed, Unknown }
    CallError => RefreshError { Invalid, Failed, Unknown }
    CallError => Error { Invalid, Failed, Unknown }
    TryAcquireError => Error { Denied, AlreadyHeld, LimitMismatch, Invalid, Failed, Unknown }
    AcquireError => Error { TimedOut, Cancelled, AlreadyHeld, LimitMismatch, Invalid, Failed, Unknown }
    RefreshError => Error { Lost, Invalid, Failed, Unknown }
}

macro_rules! from_invalid {
    ($($target:ident),*) => {
        $(impl From<Invalid> for $target {
            fn from(invalid: Invalid) -> $target {
                $target::Invalid(invalid)
            }
        })*
    };
}

from! {
    TryAcquireError from LimitMismatch { mismatch => TryAcquireError::LimitMismatch(mismatch), }
    AcquireError from LimitMismatch { mismatch => AcquireError::LimitMismatch(mismatch), }
}

from_invalid! { CallError, TryAcquireError, AcquireError, RefreshError, Error }

/// A release that could not be confirmed. It has the permit, so that it can be tried again; dropping it releases in the
/// background.
#[derive(Debug)]
pub struct ReleaseError {
    permit: Box<Permit>,
    error: CallError,
}

impl ReleaseError {
    pub(crate) fn new(permit: Permit, error: CallError) -> ReleaseError {
        ReleaseError {
            permit: Box::new(permit),
            error,
        }
    }

    /// The permit, still to be released.
    #[must_use = "dropping the permit releases it in the background"]
    pub fn into_permit(self) -> Permit {
        *self.permit
    }

    /// Why it could not be released.
    pub fn error(&self) -> &CallError {
        &self.error
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not released, try again with the permit in this error: {}",
            self.error
        )
    }
}

impl std::error::Error for ReleaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<ReleaseError> for Error {
    fn from(error: ReleaseError) -> Error {
        error.error.into()
    }
}
