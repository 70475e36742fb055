//! The errors: one small enum for each kind of operation. All of them convert into [`Error`].

pub(crate) mod failure;
mod outcome;
pub(crate) mod received;
mod ticket;
pub(crate) mod words;

pub use luagate_core::invalid::Invalid;
pub use luagate_core::kind::FailureKind;
pub(crate) use outcome::Used;
pub use outcome::{
    AboveLimit, AlreadyHeld, Cancelled, Denied, LimitMismatch, Lost, PlaceRevoked, StillClosed,
};
pub use ticket::Ticket;

use crate::error::failure::Failure;
use luagate_core::held::Identity;
use luagate_core::keeper::NotRefreshed;
use luagate_core::keys::Keys;
use luagate_core::latch_target::NotOpen;
use luagate_core::waiter::NotGranted;
use std::fmt;

// Remedies, which follow the text of an outcome.
const LATER: &str = ". Try again later, or wait in line";
const LONGER: &str = ". Call again to wait again, or use a longer timeout";
const SHORTER: &str = ". Try again later, or raise `max_waiting`";

/// Defines an enum whose variants each hold one value. A variant displays its words before that value, and
/// its remedy after it.
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
    /// Why a call failed that neither takes a permit nor waits for one, for example `open`, `inspect` or
    /// `resize`.
    CallError {
        /// An argument is invalid. Nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. Nothing was changed.
        Failed(Failure) "",
        /// The call was sent, and sent again with the same id, but no reply came, or one that does not say
        /// whether the server ran it.
        Unknown(Failure) "unknown whether the server ran the call: ",
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
        /// The server may have run the call: no reply came, or one that does not say it. The background sends
        /// a release for its id, so nothing stays held.
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
        /// The server may have run the call: no reply came, or one that does not say it. The background sends
        /// a release for its id, so nothing stays held.
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
        /// The server may have run the call: no reply came, or one that does not say it. After a refresh, the
        /// permit counts until its old or its new lease ends, whichever is first.
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
        /// The server may have run the call: no reply came, or one that does not say it. A wait holds
        /// nothing: call again.
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
        /// The permit was lost before the work ended. The work was dropped at an `await`, or it ended after
        /// the loss. Another caller may have held a permit at the same time.
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

/// Converts an error of the core into the sets that contain its variants.
macro_rules! from_core {
    ($($target:ident)*) => {
        $(impl From<luagate_core::failure::CallError> for $target {
            fn from(error: luagate_core::failure::CallError) -> $target {
                use luagate_core::failure::CallError as Core;
                match error {
                    Core::Invalid(invalid) => $target::Invalid(invalid),
                    Core::Failed(failure) => $target::Failed(failure.into()),
                    Core::Unknown(failure) => $target::Unknown(failure.into()),
                }
            }
        })*
    };
}

from_core! { CallError TryAcquireError AcquireError PermitError WaitError Error }

impl AcquireError {
    /// Why the wait of this id ended.
    pub(crate) fn of(error: NotGranted, keys: &Keys, id: &str) -> AcquireError {
        let name = || keys.name().to_owned();
        match error {
            NotGranted::TimedOut(denied) => AcquireError::TimedOut(Denied::of(keys.name(), &denied)),
            NotGranted::LineFull(denied) => AcquireError::LineFull(Denied::of(keys.name(), &denied)),
            NotGranted::Cancelled { ticket } => {
                AcquireError::Cancelled(Cancelled { ticket: ticket.map(Ticket::new) })
            }
            NotGranted::Revoked => AcquireError::Revoked(PlaceRevoked { name: name(), id: id.to_owned() }),
            NotGranted::AlreadyHeld { permits, fence } => {
                AcquireError::AlreadyHeld(AlreadyHeld { name: name(), id: id.to_owned(), permits, fence })
            }
            NotGranted::LimitMismatch { declared, in_force } => {
                AcquireError::LimitMismatch(LimitMismatch { name: name(), declared, in_force })
            }
            NotGranted::AboveLimit { permits, limit } => {
                AcquireError::AboveLimit(AboveLimit { name: name(), permits, limit })
            }
            NotGranted::Unanswered(error) => error.into(),
        }
    }
}

impl TryAcquireError {
    /// Why this id was not granted at once.
    pub(crate) fn of(error: NotGranted, keys: &Keys, id: &str) -> TryAcquireError {
        match AcquireError::of(error, keys, id) {
            AcquireError::TimedOut(denied) | AcquireError::LineFull(denied) => {
                TryAcquireError::Denied(denied)
            }
            AcquireError::AlreadyHeld(held) => TryAcquireError::AlreadyHeld(held),
            AcquireError::LimitMismatch(mismatch) => TryAcquireError::LimitMismatch(mismatch),
            AcquireError::AboveLimit(above) => TryAcquireError::AboveLimit(above),
            AcquireError::Invalid(invalid) => TryAcquireError::Invalid(invalid),
            AcquireError::Failed(failure) => TryAcquireError::Failed(failure),
            AcquireError::Unknown(failure) => TryAcquireError::Unknown(failure),
            AcquireError::Cancelled(_) | AcquireError::Revoked(_) | AcquireError::Lost(_) => {
                TryAcquireError::Unknown(luagate_core::failure::Failure::queued_out_of_turn().into())
            }
        }
    }
}

impl WaitError {
    /// Why the wait for a latch ended.
    pub(crate) fn of(error: NotOpen) -> WaitError {
        match error {
            NotOpen::StillClosed(still) => {
                WaitError::StillClosed(StillClosed { left: still.left, count: still.count })
            }
            NotOpen::Cancelled => WaitError::Cancelled(Cancelled { ticket: None }),
            NotOpen::Unanswered(error) => error.into(),
        }
    }
}

impl PermitError {
    /// Why this permit has no new lease.
    pub(crate) fn of(error: NotRefreshed, identity: &Identity) -> PermitError {
        match error {
            NotRefreshed::Lost => PermitError::Lost(Lost::of(identity)),
            NotRefreshed::Unanswered(error) => error.into(),
        }
    }
}
