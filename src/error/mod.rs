//! What can go wrong, told apart by type: one small enum for each kind of operation, all of which turn into [`Error`].

pub(crate) mod failure;
mod outcome;
pub(crate) mod permission;

pub use outcome::{
    AboveLimit, AlreadyHeld, Blocked, Cancelled, Denied, LimitMismatch, LineFull, Lost, NamedUsage, PlaceRevoked,
    StillClosed, TimedOut,
};
pub(crate) use outcome::{MOST, Used};

use crate::error::failure::{Failure, FailureKind};
use std::fmt;

/// An argument that cannot be: which one, and what it takes. Nothing was sent, or the script refused it and changed
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: String,
    why: String,
}

impl Invalid {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Invalid {
        Invalid { what: what.to_owned(), why: why.into() }
    }

    /// The same, with where it was found in front.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
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

/// Writes an enum whose variants each hold one value that explains itself, after a few words of the variant's own.
macro_rules! one_of {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($inner:ty) $words:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant($inner),)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$variant(inner) => write!(f, "{}{inner}", $words),)* }
            }
        }

        /// As it is displayed: this is what people see of an error that leaves `main`.
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
    /// Why an operation that nobody waits for and nothing is granted by failed.
    CallError {
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing was changed.
        Failed(Failure) "",
        /// The call was sent, also again with the same id, and no reply came: it may have been carried out or not.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

impl CallError {
    /// Time may heal it: worth another try.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CallError::Failed(failure) | CallError::Unknown(failure) => failure.is_passing(),
            CallError::Invalid(_) => false,
        }
    }
}

one_of! {
    /// Why nothing was granted at once.
    TryAcquireError {
        /// Too many are inside, or others wait in front.
        Denied(Denied) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing is held.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting in line ended without a permit.
    AcquireError {
        /// The time was over. The place in line is given up.
        TimedOut(Denied) "timed out in line: ",
        /// As many wait in front as `max_waiting` allows.
        LineFull(Denied) "the line is full: ",
        /// The handle given with `cancelled_by` ended the wait. The place in line is given up.
        Cancelled(Cancelled) "",
        /// Somebody took the place in line away with `revoke`.
        Revoked(PlaceRevoked) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// The semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used; nothing is held.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release for its id follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why permits of several semaphores were not granted at once. Nothing is held of any of them.
    TryAcquireSeveralError {
        /// One of them has too little free, or others wait in front.
        Blocked(Blocked) "",
        /// A semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits of one of them were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The call was sent and no reply came. A release follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting for permits of several semaphores ended without them. Nothing is held of any of them.
    AcquireSeveralError {
        /// The time was over while waiting for this one. The place in line is given up.
        TimedOut(Blocked) "timed out in line: ",
        /// In front of this one as many wait as `max_waiting` allows.
        LineFull(Blocked) "the line is full: ",
        /// The handle given with `cancelled_by` ended the wait. The place in line is given up.
        Cancelled(Cancelled) "",
        /// Somebody took the place in line away with `revoke`.
        Revoked(PlaceRevoked) "",
        /// Permits that were granted already were lost while waiting for another semaphore.
        Lost(Lost) "",
        /// A semaphore is strict and another limit is in force.
        LimitMismatch(LimitMismatch) "",
        /// More permits of one of them were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// A call was sent and no reply came. A release follows in the background, so nothing stays held.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why a lease was not extended.
    RefreshError {
        /// The permit is not this holder's any more.
        Lost(Lost) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used. The permit lives on until its lease ends.
        Failed(Failure) "",
        /// The call was sent and no reply came. The permit counts by its old lease or by the new one, whichever ends first.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Why waiting for a latch ended before it was known to be open.
    WaitError {
        /// The time was over.
        TimedOut(StillClosed) "timed out: ",
        /// The handle given with `cancelled_by` ended the wait.
        Cancelled(Cancelled) "",
        /// An argument cannot be; nothing was changed.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// The call was sent and no reply came. A wait holds nothing, so it may simply be made again.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

one_of! {
    /// Anything that can go wrong here. Every other error of this crate turns into it.
    Error {
        /// Too many are inside, or others wait in front.
        Denied(Denied) "",
        /// The time to wait was over: in line, for several semaphores, or for a latch.
        TimedOut(TimedOut) "timed out ",
        /// As many wait in front as `max_waiting` allows.
        LineFull(LineFull) "the line is full: ",
        /// Of several semaphores, this one did not grant at once.
        Blocked(Blocked) "",
        /// The wait was cancelled.
        Cancelled(Cancelled) "",
        /// The place in line was revoked.
        Revoked(PlaceRevoked) "",
        /// The chosen id holds already.
        AlreadyHeld(AlreadyHeld) "",
        /// Another limit is in force than the one declared.
        LimitMismatch(LimitMismatch) "",
        /// More permits were asked for than the limit in force allows.
        AboveLimit(AboveLimit) "",
        /// The permit is not this holder's any more.
        Lost(Lost) "",
        /// An argument cannot be.
        Invalid(Invalid) "",
        /// The server could not be used.
        Failed(Failure) "",
        /// No reply came: the call may have been carried out or not.
        Unknown(Failure) "whether the server ran the call is not known: ",
    }
}

/// A smaller set of outcomes turns into a larger one, variant by variant, `in` another outcome where that is said.
macro_rules! widen {
    ($($source:ident => $target:ident { $($variant:ident $(in $outer:path)?),* })*) => {
        $(impl From<$source> for $target {
            fn from(error: $source) -> $target {
                match error { $($source::$variant(inner) => $target::$variant($($outer)?(inner)),)* }
            }
        })*
    };
}

widen! {
    CallError => TryAcquireError { Invalid, Failed, Unknown }
    CallError => AcquireError { Invalid, Failed, Unknown }
    CallError => RefreshError { Invalid, Failed, Unknown }
    CallError => TryAcquireSeveralError { Invalid, Failed, Unknown }
    CallError => AcquireSeveralError { Invalid, Failed, Unknown }
    RefreshError => AcquireSeveralError { Lost, Invalid, Failed, Unknown }
    TryAcquireSeveralError => Error { Blocked, LimitMismatch, AboveLimit, Invalid, Failed, Unknown }
    CallError => WaitError { Invalid, Failed, Unknown }
    CallError => Error { Invalid, Failed, Unknown }
    TryAcquireError => Error { Denied, AlreadyHeld, LimitMismatch, AboveLimit, Invalid, Failed, Unknown }
    RefreshError => Error { Lost, Invalid, Failed, Unknown }
    WaitError => Error { TimedOut in TimedOut::Latch, Cancelled, Invalid, Failed, Unknown }
    AcquireSeveralError => Error {
        TimedOut in TimedOut::Several, LineFull in LineFull::Several, Cancelled, Revoked, Lost, LimitMismatch, AboveLimit,
        Invalid, Failed, Unknown
    }
    AcquireError => Error {
        TimedOut in TimedOut::Acquire, LineFull in LineFull::Acquire, Cancelled, Revoked, AlreadyHeld, LimitMismatch,
        AboveLimit, Invalid, Failed, Unknown
    }
}

/// One outcome turns into the sets that have it.
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
    Invalid => CallError TryAcquireError AcquireError TryAcquireSeveralError AcquireSeveralError RefreshError WaitError Error,
    LimitMismatch => TryAcquireError AcquireError TryAcquireSeveralError,
    AboveLimit => TryAcquireError AcquireError,
}

impl TryAcquireError {
    /// What an error of a wait is for a caller that does not wait.
    pub(crate) fn of(error: AcquireError) -> TryAcquireError {
        match error {
            AcquireError::TimedOut(denied) | AcquireError::LineFull(denied) => TryAcquireError::Denied(denied),
            AcquireError::AlreadyHeld(held) => TryAcquireError::AlreadyHeld(held),
            AcquireError::LimitMismatch(mismatch) => TryAcquireError::LimitMismatch(mismatch),
            AcquireError::AboveLimit(above) => TryAcquireError::AboveLimit(above),
            AcquireError::Invalid(invalid) => TryAcquireError::Invalid(invalid),
            AcquireError::Failed(failure) => TryAcquireError::Failed(failure),
            AcquireError::Unknown(failure) => TryAcquireError::Unknown(failure),
            AcquireError::Cancelled(_) | AcquireError::Revoked(_) => {
                let text = error.to_string();
                TryAcquireError::Unknown(Failure::new(FailureKind::UnexpectedReply, text))
            }
        }
    }

    /// What it is for a caller whose time to wait was over before it asked.
    pub(crate) fn too_late(self) -> AcquireError {
        match self {
            TryAcquireError::Denied(denied) => AcquireError::TimedOut(denied),
            TryAcquireError::AlreadyHeld(held) => AcquireError::AlreadyHeld(held),
            TryAcquireError::LimitMismatch(mismatch) => AcquireError::LimitMismatch(mismatch),
            TryAcquireError::AboveLimit(above) => AcquireError::AboveLimit(above),
            TryAcquireError::Invalid(invalid) => AcquireError::Invalid(invalid),
            TryAcquireError::Failed(failure) => AcquireError::Failed(failure),
            TryAcquireError::Unknown(failure) => AcquireError::Unknown(failure),
        }
    }
}

/// What the errors say that have a guard with which to try again: these words, and why it failed.
macro_rules! try_again {
    ($type:ident $(<$guard:ident>)? $words:literal) => {
        impl $(<$guard>)? std::fmt::Display for $type $(<$guard>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}: {}", $words, self.error)
            }
        }

        impl $(<$guard: std::fmt::Debug>)? std::error::Error for $type $(<$guard>)? {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.error)
            }
        }

        impl $(<$guard>)? From<$type $(<$guard>)?> for $crate::error::Error {
            fn from(error: $type $(<$guard>)?) -> $crate::error::Error {
                error.error.into()
            }
        }
    };
}
pub(crate) use try_again;
