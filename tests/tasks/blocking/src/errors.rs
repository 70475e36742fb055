//! The errors of luagate. Those that contain a permit or a guard contain the blocking one.

use crate::gate::Origin;
use crate::{Permit, RwLockWriteGuard};
use luagate::{aio, errors};
use std::error::Error;
use std::fmt;

pub use luagate::errors::{
    AboveLimit, AcquireError, AcquireSeveralError, AlreadyHeld, Blocked, CallError, Cancelled, Denied, Failure,
    FailureKind, Invalid, LimitMismatch, LineFull, Lost, NamedUsage, PlaceRevoked, RefreshError, StillClosed, TimedOut,
    TryAcquireError, TryAcquireSeveralError, WaitError,
};

/// A guard that wraps one of the async API.
pub trait Wrapped: Sized {
    type Aio: fmt::Debug;

    #[doc(hidden)]
    fn of(guard: Self::Aio, origin: &Origin) -> Self;
}

/// An error that wraps the one of the async API.
macro_rules! wrapped {
    ($name:ident $(<$guard:ident>)?: $of:ty) => {
        pub struct $name $(<$guard: Wrapped>)? {
            aio: $of,
            origin: Origin,
        }

        impl $(<$guard: Wrapped>)? $name $(<$guard>)? {
            pub(crate) fn new(aio: $of, origin: &Origin) -> Self {
                $name { aio, origin: origin.clone() }
            }
        }

        impl $(<$guard: Wrapped>)? fmt::Debug for $name $(<$guard>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.aio.fmt(f)
            }
        }

        impl $(<$guard: Wrapped>)? fmt::Display for $name $(<$guard>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.aio.fmt(f)
            }
        }

        impl $(<$guard: Wrapped>)? Error for $name $(<$guard>)? {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.aio.source()
            }
        }

        impl $(<$guard: Wrapped>)? From<$name $(<$guard>)?> for luagate::Error {
            fn from(error: $name $(<$guard>)?) -> luagate::Error {
                error.aio.into()
            }
        }
    };
}

wrapped!(ReleaseError: errors::ReleaseError<aio::Permit>);
wrapped!(UnlockError<G>: errors::UnlockError<G::Aio>);
wrapped!(DowngradeError: errors::DowngradeError<aio::RwLockWriteGuard>);

impl ReleaseError {
    pub fn into_permit(self) -> Permit {
        Permit::new(self.aio.into_permit(), &self.origin)
    }

    pub fn error(&self) -> &CallError {
        self.aio.error()
    }
}

impl<G: Wrapped> UnlockError<G> {
    pub fn into_guard(self) -> G {
        G::of(self.aio.into_guard(), &self.origin)
    }

    pub fn error(&self) -> &CallError {
        self.aio.error()
    }
}

impl DowngradeError {
    pub fn into_guard(self) -> RwLockWriteGuard {
        RwLockWriteGuard::of(self.aio.into_guard(), &self.origin)
    }

    pub fn error(&self) -> &RefreshError {
        self.aio.error()
    }
}
