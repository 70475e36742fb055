//! The permit.

use crate::Released;
use crate::errors::ReleaseError;
use crate::gate::Origin;
use crate::runtime::wait;
use crate::scripts::Keys;
use luagate::aio;
use luagate::errors::RefreshError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    held: Option<Held>,
    pub(crate) origin: Origin,
}

/// The owner of the permit in the async API.
pub(crate) enum Held {
    Permit(aio::Permit),
    Mutex(aio::MutexGuard),
    Read(aio::RwLockReadGuard),
    Write(aio::RwLockWriteGuard),
    /// One of several permits, which their guard owns.
    OneOf(Arc<aio::SeveralPermits>, usize),
}

impl Held {
    fn permit(&self) -> &aio::Permit {
        match self {
            Held::Permit(permit) => permit,
            Held::Mutex(guard) => guard,
            Held::Read(guard) => guard,
            Held::Write(guard) => guard,
            Held::OneOf(several, index) => several.iter().nth(*index).expect("its index").1,
        }
    }
}

impl Permit {
    pub(crate) fn new(permit: aio::Permit, origin: &Origin) -> Permit {
        Permit::of(Held::Permit(permit), origin)
    }

    pub(crate) fn of(held: Held, origin: &Origin) -> Permit {
        Permit { held: Some(held), origin: origin.clone() }
    }

    fn held(&self) -> &aio::Permit {
        self.held.as_ref().expect("held until it is consumed").permit()
    }

    /// Takes the permit of the async API out. Nothing is left to drop.
    pub(crate) fn take(mut self) -> (Held, Origin) {
        (self.held.take().expect("held until it is consumed"), self.origin.clone())
    }

    pub(crate) fn into_aio(self) -> aio::Permit {
        match self.take().0 {
            Held::Permit(permit) => permit,
            Held::Mutex(guard) => guard.into(),
            Held::Read(guard) => guard.into(),
            Held::Write(guard) => guard.into(),
            Held::OneOf(..) => unreachable!("the guard of several permits only lends them"),
        }
    }

    pub fn fence(&self) -> u64 {
        self.held().fence()
    }

    pub fn id(&self) -> &str {
        self.held().id()
    }

    pub fn keys(&self) -> &Keys {
        self.held().keys()
    }

    pub fn permits(&self) -> u32 {
        self.held().permits()
    }

    pub fn limit(&self) -> u32 {
        self.held().limit()
    }

    pub fn ticket(&self) -> Option<u64> {
        self.held().ticket()
    }

    pub fn remaining(&self) -> Option<Duration> {
        self.held().remaining()
    }

    pub fn is_lost(&self) -> bool {
        self.held().is_lost()
    }

    pub fn stop_renewal(&self) {
        self.held().stop_renewal();
    }

    pub fn into_id(self) -> String {
        match self.take().0 {
            Held::Mutex(guard) => guard.into_id(),
            Held::Read(guard) => guard.into_id(),
            Held::Write(guard) => guard.into_id(),
            Held::Permit(permit) => permit.into_id(),
            Held::OneOf(..) => unreachable!("the guard of several permits only lends them"),
        }
    }

    pub fn refresh(&self) -> Result<(), RefreshError> {
        wait(self.held().refresh())
    }

    pub fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        wait(self.held().refresh_for(lease))
    }

    pub fn release(self) -> Result<Released, ReleaseError> {
        let origin = self.origin.clone();
        wait(self.into_aio().release()).map_err(|error| ReleaseError::new(error, &origin))
    }

    pub fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        match self.held.as_mut() {
            Some(Held::Permit(permit)) => wait(permit.release_some(permits)),
            _ => unreachable!("a guard only lends its permit"),
        }
    }

    pub fn refresh_all<'a, P: AsRef<Permit> + 'a>(
        permits: impl IntoIterator<Item = &'a P>,
    ) -> Vec<Result<(), RefreshError>> {
        wait(aio::Permit::refresh_all(permits.into_iter().map(|permit| permit.as_ref().held())))
    }

    pub fn release_all<P: Into<Permit>>(permits: impl IntoIterator<Item = P>) -> Vec<Result<Released, ReleaseError>> {
        let permits = permits.into_iter().map(|permit| {
            let permit: Permit = permit.into();
            (permit.origin.clone(), permit.into_aio())
        });
        let (origins, permits): (Vec<_>, Vec<_>) = permits.unzip();
        let outcomes = wait(aio::Permit::release_all(permits)).into_iter().zip(&origins);
        outcomes.map(|(outcome, origin)| outcome.map_err(|error| ReleaseError::new(error, origin))).collect()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match self.held.take() {
            None | Some(Held::OneOf(..)) => {}
            Some(held) => {
                drop(held);
                self.origin.wait_after_drop();
            }
        }
    }
}

impl AsRef<Permit> for Permit {
    fn as_ref(&self) -> &Permit {
        self
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.held(), f)
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.held(), f)
    }
}
