//! The guard of permits that were acquired together.

use super::Member;
use crate::error::RefreshError;
use crate::guard::UnlockError;
use crate::permit::{self, Permit, Released};
use std::fmt;
use std::time::Duration;

/// Permits of several semaphores, held; dropping it releases them all.
///
/// That takes at most 100 ms in the dropping thread; what takes longer is done in the background.
#[must_use = "the permits are released as soon as their guard is dropped"]
pub struct SeveralPermits {
    names: Vec<String>,
    permits: Vec<Permit>,
}

impl SeveralPermits {
    pub(super) fn new(members: &[Member], permits: Vec<Permit>) -> SeveralPermits {
        let names = members.iter().map(|member| member.semaphore.name().to_owned());
        SeveralPermits { names: names.collect(), permits }
    }

    pub(super) fn permits(&self) -> &[Permit] {
        &self.permits
    }

    /// Each name and what is held of it, in the order in which they were acquired.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Permit)> {
        self.names.iter().map(String::as_str).zip(&self.permits)
    }

    /// What is held of the semaphore or mutex with this name; of two with one name the first.
    pub fn get(&self, name: &str) -> Option<&Permit> {
        self.iter().find_map(|(other, permit)| (other == name).then_some(permit))
    }

    /// The fencing token of the semaphore or mutex with this name; see [`Permit::fence`].
    pub fn fence(&self, name: &str) -> Option<u64> {
        self.get(name).map(Permit::fence)
    }

    /// How long all of them are still held; see [`Permit::remaining`].
    pub fn remaining(&self) -> Option<Duration> {
        self.permits.iter().filter_map(Permit::remaining).min()
    }

    /// Whether one of them is not ours any more; see [`Permit::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Gives all of them a new lease, counted from now. Blocks for one round trip to each gate.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] when one of them is not ours any more. On any other error they live on until their old leases
    /// end.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        permit::refresh(&self.permits, None)
    }

    /// Releases them all. Blocks for one round trip to each gate. [`Released::Gone`] when one of them had been lost before; the
    /// others are given back all the same.
    ///
    /// # Errors
    /// [`UnlockError`] when a server did not confirm: it has the guard, to try again with.
    pub fn release(mut self) -> Result<Released, UnlockError<SeveralPermits>> {
        permit::release_all(&mut self.permits).map_err(|error| UnlockError::new(self, error))
    }

    /// A permit of each, to be released one by one, in the order in which they were acquired.
    #[must_use = "the permits are released as soon as they are dropped"]
    pub fn into_permits(mut self) -> Vec<Permit> {
        std::mem::take(&mut self.permits)
    }
}

impl Drop for SeveralPermits {
    fn drop(&mut self) {
        permit::drop_all(&mut self.permits);
    }
}

impl fmt::Debug for SeveralPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
