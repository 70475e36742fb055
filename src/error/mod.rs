//! The errors: one small enum for each kind of operation. All of them convert into [`Error`].

pub(crate) mod failure;
pub(crate) mod kind;
mod outcome;
mod replies;
mod ticket;

pub use outcome::{AboveLimit, AlreadyHeld, Cancelled, Denied, LimitMismatch, Lost, PlaceRevoked, StillClosed};
pub(crate) use outcome::{MOST, Used};
pub use ticket::Ticket;

use crate::error::failure::Failure;
use crate::error::kind::FailureKind;
use std::fmt;

/// An invalid argument: its name, the defect and the accepted input. Nothing was sent, or the script refused the call
/// and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: String,
    why: String,
}

impl Invalid {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Invalid {
        Invalid { what: what.to_owned(), why: why.into() }
    }

    /// Checks a number of permits or of calls. `remedy` follows the text.
    pub(crate) fn check_count(what: &str, count: u32, remedy: &str) -> Result<(), Invalid> {
        if (1..=MOST).contains(&count) {
            return Ok(());
        }
        Err(Invalid::new(what, format!("{count} is out of range. Accepted: 1 to {MOST}{remedy}")))
    }

    /// The same error, with the place of the argument before the reason.
    pub(crate) fn within(self, place: &str) -> Invalid {
        Invalid { why: format!("{place}: {}", self.why), ..self }
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

// Remedies, which follow the text of an outcome.
const LATER: &str = ". Try again later, or wait in line";
const LONGER: &str = ". Call again to wait again, or use a longer timeout";
const SHORTER: &str = ". Try again later, or raise `max_waiting`";

/// Defines an enum whose variants each hold one value. A variant displays its words before that value, and its remedy
/// after it.
macro_rules! one_of {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($inner:ty) $words:literal $($remedy:ident)?,)* }) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant($inner),)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant(inner) => {
                    write!(f, "{}{inner}", $words)$(?; f.write_str($remedy))?
                })* }
            }
        }

        /// The variant and the displayed text. Rust prints this form of an error that `main` returns.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant(_) => write!(f, "{}: {self}", stringify!($variant)),)* }
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self { $($name::$variant(inner) => std::error::Error::source(inner),)* }
            }
        }
    };
}

one_of! {
    /// Why a call failed that neither takes a permit nor waits for one, for example `open`, `inspect` or `resize`.
    CallError {
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. Nothing was changed.
        Failed(Failure) "",
        /// The call was sent, and sent again with the same id, but no reply came, or one that does not say whether the server ran
        /// it.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

impl CallError {
    /// `None`: an argument was not valid.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => Some(failure),
            CallError::Invalid(_) => None,
        }
    }

    /// The error of a command that has no arguments to refuse.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => failure,
            CallError::Invalid(invalid) => Failure::new(FailureKind::Other, invalid.to_string()),
        }
    }

    /// Whether the call had too little time. This includes the case that no connection could be made in the time that
    /// was left.
    pub(crate) fn is_late(&self) -> bool {
        use FailureKind::*;
        self.failure().is_some_and(|failure| matches!(failure.kind(), TimedOut | Unreachable))
    }

    /// Whether no other call may use the connection of this call. If only the time is over, it still works, and the reply may
    /// come.
    pub(crate) fn ends_connection(&self) -> bool {
        self.failure().is_some_and(Failure::ends_connection)
    }
}

one_of! {
    /// Why no permit was granted at once.
    TryAcquireError {
        /// Too few permits are free, or other callers wait in line.
        Denied(Denied) "denied: " LATER,
        /// The chosen id already holds a permit.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict, and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// The caller asked for more permits than the limit in force.
        AboveLimit(AboveLimit) "",
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. The caller holds nothing.
        Failed(Failure) "",
        /// The server may have run the call: no reply came, or one that does not say it. The background sends a release for its
        /// id, so nothing stays held.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

one_of! {
    /// Why a wait in line ended without a permit.
    AcquireError {
        /// The timeout ended. The place in line is given up.
        TimedOut(Denied) "timed out in line: " LONGER,
        /// As many callers wait in line as `max_waiting` allows.
        LineFull(Denied) "the line is full: " SHORTER,
        /// The `cancelled_by` handle ended the wait. The place in line is given up.
        Cancelled(Cancelled) "",
        /// An operator or another program revoked the place in line with `revoke`.
        Revoked(PlaceRevoked) "",
        /// Of several semaphores, the permits of one were lost during the wait for another one.
        Lost(Lost) "",
        /// The chosen id already holds a permit.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict, and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// The caller asked for more permits than the limit in force.
        AboveLimit(AboveLimit) "",
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. The caller holds nothing.
        Failed(Failure) "",
        /// The server may have run the call: no reply came, or one that does not say it. The background sends a release for its
        /// id, so nothing stays held.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

one_of! {
    /// Why a call for a held permit failed: `refresh`, `release_some`, `downgrade` or `adopt`.
    PermitError {
        /// The permit no longer belongs to this holder.
        Lost(Lost) "",
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. Nothing was changed: the permit is held until its lease ends.
        Failed(Failure) "",
        /// The server may have run the call: no reply came, or one that does not say it. After a refresh, the permit counts until
        /// its old or its new lease ends, whichever is first.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

one_of! {
    /// Why a wait for a latch ended before the latch was known to be open.
    WaitError {
        /// The timeout ended.
        StillClosed(StillClosed) "timed out at the latch: " LONGER,
        /// The `cancelled_by` handle ended the wait.
        Cancelled(Cancelled) "",
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The server may have run the call: no reply came, or one that does not say it. A wait holds nothing: call again.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

one_of! {
    /// Any error of this crate. Every other error type converts into it.
    Error {
        /// Too few permits are free, or other callers wait in line.
        Denied(Denied) "denied: " LATER,
        /// The timeout ended in line.
        TimedOut(Denied) "timed out in line: " LONGER,
        /// The timeout ended, and the latch is not open.
        StillClosed(StillClosed) "timed out at the latch: " LONGER,
        /// As many callers wait in line as `max_waiting` allows.
        LineFull(Denied) "the line is full: " SHORTER,
        /// The wait was cancelled.
        Cancelled(Cancelled) "",
        /// The place in line was revoked.
        Revoked(PlaceRevoked) "",
        /// The chosen id already holds a permit.
        AlreadyHeld(AlreadyHeld) "",
        /// The limit in force is not the declared one.
        LimitMismatch(LimitMismatch) "",
        /// The caller asked for more permits than the limit in force.
        AboveLimit(AboveLimit) "",
        /// The permit no longer belongs to this holder.
        Lost(Lost) "",
        /// An argument is invalid.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The server may have run the call: no reply came, or one that does not say it.
        Unknown(Failure) "unknown whether the server ran the call: ",
    }
}

one_of! {
    /// Why work under a permit has no result: see [`Semaphore::run_async`](crate::Semaphore::run_async).
    RunError {
        /// There was no permit in time. The work did not run.
        NotAcquired(AcquireError) "",
        /// The permit was lost before the work ended. The work was dropped at an `await`, or it ended after the loss.
        /// Another caller may have held a permit at the same time.
        Lost(Lost) "",
    }
}

impl From<AcquireError> for RunError {
    fn from(error: AcquireError) -> RunError {
        RunError::NotAcquired(error)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Error {
        match error {
            RunError::NotAcquired(error) => error.into(),
            RunError::Lost(lost) => Error::Lost(lost),
        }
    }
}

/// Converts a smaller set of outcomes into a larger one, variant by variant.
macro_rules! widen {
    ($($source:ident => $target:ident { $($variant:ident),* })*) => {
        $(impl From<$source> for $target {
            fn from(error: $source) -> $target {
                match error { $($source::$variant(inner) => $target::$variant(inner),)* }
            }
        })*
    };
}

widen! {
    CallError => TryAcquireError { Invalid, Failed, Unknown }
    CallError => AcquireError { Invalid, Failed, Unknown }
    CallError => PermitError { Invalid, Failed, Unknown }
    PermitError => AcquireError { Lost, Invalid, Failed, Unknown }
    CallError => WaitError { Invalid, Failed, Unknown }
    CallError => Error { Invalid, Failed, Unknown }
    TryAcquireError => Error { Denied, AlreadyHeld, LimitMismatch, AboveLimit, Invalid, Failed, Unknown }
    PermitError => Error { Lost, Invalid, Failed, Unknown }
    WaitError => Error { StillClosed, Cancelled, Invalid, Failed, Unknown }
    AcquireError => Error {
        TimedOut, LineFull, Cancelled, Revoked, Lost, AlreadyHeld, LimitMismatch,
        AboveLimit, Invalid, Failed, Unknown
    }
}

/// Converts one outcome into the sets that contain it.
macro_rules! wrap {
    ($($variant:ident => $($target:ident)*,)*) => {
        $($(impl From<$variant> for $target {
            fn from(outcome: $variant) -> $target {
                $target::$variant(outcome)
            }
        })*)*
    };
}

wrap! {
    Invalid => CallError TryAcquireError AcquireError PermitError WaitError Error,
    Lost => Error,
    LimitMismatch => TryAcquireError AcquireError,
    AboveLimit => TryAcquireError AcquireError,
}

impl TryAcquireError {
    /// The error of a wait, for a caller that does not wait.
    pub(crate) fn of(error: AcquireError) -> TryAcquireError {
        match error {
            AcquireError::TimedOut(denied) | AcquireError::LineFull(denied) => TryAcquireError::Denied(denied),
            AcquireError::AlreadyHeld(held) => TryAcquireError::AlreadyHeld(held),
            AcquireError::LimitMismatch(mismatch) => TryAcquireError::LimitMismatch(mismatch),
            AcquireError::AboveLimit(above) => TryAcquireError::AboveLimit(above),
            AcquireError::Invalid(invalid) => TryAcquireError::Invalid(invalid),
            AcquireError::Failed(failure) => TryAcquireError::Failed(failure),
            AcquireError::Unknown(failure) => TryAcquireError::Unknown(failure),
            AcquireError::Cancelled(_) | AcquireError::Revoked(_) | AcquireError::Lost(_) => {
                let text = error.to_string();
                TryAcquireError::Unknown(Failure::new(FailureKind::UnexpectedReply, text))
            }
        }
    }
}
