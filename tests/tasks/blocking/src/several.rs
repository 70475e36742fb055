//! Permits of several semaphores.

use crate::Released;
use crate::errors::{AcquireSeveralError, RefreshError, TryAcquireSeveralError, UnlockError, Wrapped};
use crate::gate::Origin;
use crate::permit::{Held, Permit};
use crate::runtime::wait;
use crate::semaphore::wrapped;
use luagate::aio;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

wrapped!(Several);

impl Several {
    pub fn try_acquire(&self) -> Result<SeveralPermits, TryAcquireSeveralError> {
        wait(self.aio.try_acquire()).map(|permits| SeveralPermits::of(permits, &self.origin))
    }

    pub fn acquire_timeout(&self, timeout: Duration) -> Result<SeveralPermits, AcquireSeveralError> {
        wait(self.aio.acquire_timeout(timeout)).map(|permits| SeveralPermits::of(permits, &self.origin))
    }
}

#[must_use = "the permits are released as soon as their guard is dropped"]
pub struct SeveralPermits {
    /// `None`: consumed.
    held: Option<Arc<aio::SeveralPermits>>,
    lent: Vec<Permit>,
    origin: Origin,
}

impl Wrapped for SeveralPermits {
    type Aio = aio::SeveralPermits;

    fn of(permits: aio::SeveralPermits, origin: &Origin) -> SeveralPermits {
        let count = permits.iter().count();
        let held = Arc::new(permits);
        let lent = (0..count).map(|index| Permit::of(Held::OneOf(held.clone(), index), origin));
        SeveralPermits { lent: lent.collect(), held: Some(held), origin: origin.clone() }
    }
}

impl SeveralPermits {
    fn held(&self) -> &aio::SeveralPermits {
        self.held.as_ref().expect("held until it is consumed")
    }

    /// Takes the permits of the async API out. Nothing is left to drop.
    fn take(mut self) -> aio::SeveralPermits {
        self.lent.clear();
        self.held.take().and_then(Arc::into_inner).expect("held until it is consumed")
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Permit)> {
        self.held().iter().map(|(name, _)| name).zip(&self.lent)
    }

    pub fn get(&self, name: &str) -> Option<&Permit> {
        let index = self.held().iter().position(|(other, _)| other == name)?;
        self.lent.get(index)
    }

    pub fn fence(&self, name: &str) -> Option<u64> {
        self.held().fence(name)
    }

    pub fn remaining(&self) -> Option<Duration> {
        self.held().remaining()
    }

    pub fn is_lost(&self) -> bool {
        self.held().is_lost()
    }

    pub fn refresh(&self) -> Result<(), RefreshError> {
        wait(self.held().refresh())
    }

    pub fn release(self) -> Result<Released, UnlockError<SeveralPermits>> {
        let origin = self.origin.clone();
        wait(self.take().release()).map_err(|error| UnlockError::new(error, &origin))
    }

    #[must_use = "the permits are released as soon as they are dropped"]
    pub fn into_permits(self) -> Vec<Permit> {
        let origin = self.origin.clone();
        self.take().into_permits().into_iter().map(|permit| Permit::new(permit, &origin)).collect()
    }
}

impl Drop for SeveralPermits {
    fn drop(&mut self) {
        self.lent.clear();
        if let Some(held) = self.held.take() {
            drop(held);
            self.origin.wait_after_drop();
        }
    }
}

impl fmt::Debug for SeveralPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held().fmt(f)
    }
}
