//! The mutex and the reader-writer lock.

use crate::errors::{AcquireError, CallError, DowngradeError, RefreshError, TryAcquireError, UnlockError, Wrapped};
use crate::gate::Origin;
use crate::inspection::Inspection;
use crate::permit::{Held, Permit};
use crate::runtime::wait;
use crate::semaphore::{Semaphore, blocking, settings, wrapped};
use crate::{Released, Revoked, RwLockUsage};
use luagate::aio;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A guard: the permit inside holds the guard of the async API.
macro_rules! guard {
    ($name:ident $held:ident) => {
        #[must_use = "the lock is given back as soon as its guard is dropped"]
        #[derive(Debug)]
        pub struct $name(Permit);

        impl Wrapped for $name {
            type Aio = aio::$name;

            fn of(guard: aio::$name, origin: &Origin) -> $name {
                $name(Permit::of(Held::$held(guard), origin))
            }
        }

        impl $name {
            pub fn into_id(self) -> String {
                self.0.into_id()
            }

            pub fn unlock(self) -> Result<Released, UnlockError<$name>> {
                let (guard, origin) = self.into_aio();
                wait(guard.unlock()).map_err(|error| UnlockError::new(error, &origin))
            }

            fn into_aio(self) -> (aio::$name, Origin) {
                match self.0.take() {
                    (Held::$held(guard), origin) => (guard, origin),
                    _ => unreachable!("it holds its own guard"),
                }
            }
        }

        impl Deref for $name {
            type Target = Permit;

            fn deref(&self) -> &Permit {
                &self.0
            }
        }

        impl AsRef<Permit> for $name {
            fn as_ref(&self) -> &Permit {
                &self.0
            }
        }

        impl From<$name> for Permit {
            fn from(guard: $name) -> Permit {
                let (guard, origin) = guard.into_aio();
                Permit::new(guard.into(), &origin)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

guard!(MutexGuard Mutex);
guard!(RwLockReadGuard Read);
guard!(RwLockWriteGuard Write);

/// Functions that return a guard.
macro_rules! granting {
    ($type:ident: $($name:ident($($argument:ident: $of:ty),*) -> $guard:ident, $error:ty;)*) => {
        impl $type {
            $(pub fn $name(&self, $($argument: $of),*) -> Result<$guard, $error> {
                wait(self.aio.$name($($argument),*)).map(|guard| $guard::of(guard, &self.origin))
            })*

            pub fn name(&self) -> &str {
                self.aio.name()
            }
        }
    };
}

wrapped!(Mutex semaphore: OnceLock<Semaphore>);
settings!(Mutex: id(id: &str));

impl Mutex {
    pub fn as_semaphore(&self) -> &Semaphore {
        self.semaphore.get_or_init(|| Semaphore::new(self.aio.as_semaphore().clone(), &self.origin))
    }
}

wrapped!(RwLock);
settings!(RwLock: id(id: &str));

granting! { Mutex:
    lock() -> MutexGuard, AcquireError;
    try_lock() -> MutexGuard, TryAcquireError;
    try_lock_for(timeout: Duration) -> MutexGuard, AcquireError;
    try_lock_until(deadline: Instant) -> MutexGuard, AcquireError;
    adopt(id: &str) -> MutexGuard, RefreshError;
}

granting! { RwLock:
    read() -> RwLockReadGuard, AcquireError;
    try_read() -> RwLockReadGuard, TryAcquireError;
    try_read_for(timeout: Duration) -> RwLockReadGuard, AcquireError;
    try_read_until(deadline: Instant) -> RwLockReadGuard, AcquireError;
    write() -> RwLockWriteGuard, AcquireError;
    try_write() -> RwLockWriteGuard, TryAcquireError;
    try_write_for(timeout: Duration) -> RwLockWriteGuard, AcquireError;
    try_write_until(deadline: Instant) -> RwLockWriteGuard, AcquireError;
    adopt(id: &str) -> RwLockGuard, RefreshError;
}

blocking! { Mutex:
    revoke(id: &str) -> Result<Revoked, CallError>;
    is_locked() -> Result<bool, CallError>;
    inspect() -> Result<Inspection, CallError>;
}

blocking! { RwLock:
    revoke(id: &str) -> Result<Revoked, CallError>;
    usage() -> Result<RwLockUsage, CallError>;
    inspect() -> Result<Inspection, CallError>;
}

#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub enum RwLockGuard {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

impl RwLockGuard {
    fn of(guard: aio::RwLockGuard, origin: &Origin) -> RwLockGuard {
        match guard {
            aio::RwLockGuard::Read(guard) => RwLockGuard::Read(RwLockReadGuard::of(guard, origin)),
            aio::RwLockGuard::Write(guard) => RwLockGuard::Write(RwLockWriteGuard::of(guard, origin)),
        }
    }
}

impl RwLockWriteGuard {
    pub fn downgrade(self) -> Result<RwLockReadGuard, DowngradeError> {
        let (guard, origin) = self.into_aio();
        match wait(guard.downgrade()) {
            Ok(guard) => Ok(RwLockReadGuard::of(guard, &origin)),
            Err(error) => Err(DowngradeError::new(error, &origin)),
        }
    }
}
