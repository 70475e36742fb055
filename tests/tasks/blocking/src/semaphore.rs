//! The counting semaphore.

use crate::gate::Origin;
use crate::inspection::Inspection;
use crate::permit::Permit;
use crate::runtime::wait;
use crate::{Resized, Revoked};
use luagate::aio;
use luagate::errors::{AcquireError, CallError, RefreshError, TryAcquireError};
use std::time::Duration;

/// A type that wraps one of the async API, with the settings that all locks have. `made`: what it makes on demand.
macro_rules! wrapped {
    ($name:ident $($made:ident: $of:ty)?) => {
        #[derive(Clone)]
        pub struct $name {
            aio: luagate::aio::$name,
            origin: $crate::gate::Origin,
            $($made: $of,)?
        }

        impl $name {
            pub(crate) fn new(aio: luagate::aio::$name, origin: &$crate::gate::Origin) -> $name {
                $name { aio, origin: origin.clone(), $($made: <$of>::default())? }
            }
        }

        $crate::semaphore::settings!($name:
            lease(lease: std::time::Duration)
            auto_renew()
            permanent()
            max_waiting(n: u32)
            at_least(least: std::time::Duration)
            label(label: &str)
            cancelled_by(cancel: &luagate::Cancel)
            on_lost(on_lost: impl Fn(&luagate::errors::Lost) + Send + Sync + 'static));

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.aio.fmt(f)
            }
        }
    };
}
pub(crate) use wrapped;

/// Settings that are passed on.
macro_rules! settings {
    ($type:ident: $($name:ident($($argument:ident: $of:ty),*))*) => {
        impl $type {
            $(#[must_use]
            pub fn $name(self, $($argument: $of),*) -> Self {
                Self::new(self.aio.$name($($argument),*), &self.origin)
            })*
        }
    };
}
pub(crate) use settings;

/// Functions that block until the function of the same name is ready.
macro_rules! blocking {
    ($type:ident: $($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {
        impl $type {
            $(pub fn $name(&self, $($argument: $of),*) -> $result {
                $crate::runtime::wait(self.aio.$name($($argument),*))
            })*
        }
    };
}
pub(crate) use blocking;

wrapped!(Semaphore);
settings!(Semaphore: id(id: &str) strict());

blocking! { Semaphore:
    revoke(id: &str) -> Result<Revoked, CallError>;
    resize(limit: u32) -> Result<Resized, CallError>;
    compare_and_resize(expected: u32, limit: u32) -> Result<Resized, CallError>;
    unpin() -> Result<(), CallError>;
    available_permits() -> Result<u32, CallError>;
    inspect() -> Result<Inspection, CallError>;
    inspect_page(offset: u32, count: u32) -> Result<Inspection, CallError>;
}

/// Functions that return a permit.
macro_rules! granting {
    ($($name:ident($($argument:ident: $of:ty),*) -> $error:ty;)*) => {
        impl Semaphore {
            $(pub fn $name(&self, $($argument: $of),*) -> Result<Permit, $error> {
                wait(self.aio.$name($($argument),*)).map(|permit| Permit::new(permit, &self.origin))
            })*
        }
    };
}

granting! {
    try_acquire() -> TryAcquireError;
    try_acquire_many(permits: u32) -> TryAcquireError;
    try_acquire_all() -> TryAcquireError;
    acquire() -> AcquireError;
    acquire_many(permits: u32) -> AcquireError;
    acquire_timeout(timeout: Duration) -> AcquireError;
    acquire_many_timeout(permits: u32, timeout: Duration) -> AcquireError;
    adopt(id: &str) -> RefreshError;
}

impl Semaphore {
    pub fn name(&self) -> &str {
        self.aio.name()
    }

    pub(crate) fn aio(&self) -> &aio::Semaphore {
        &self.aio
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }
}
