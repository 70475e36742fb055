//! The guard of permits that were acquired together.

use crate::aio::permit::{self, Permit};
use crate::error::{Lost, RefreshError};
use crate::guard::UnlockError;
use crate::permit::Released;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::fmt;
use std::time::Duration;

/// Permits of several semaphores, held together. Dropping this guard releases all of them, and never blocks.
#[must_use = "the permits are released as soon as their guard is dropped"]
pub struct SeveralPermits {
    names: Vec<String>,
    permits: Vec<Permit>,
}

impl SeveralPermits {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>, permits: Vec<Permit>) -> SeveralPermits {
        SeveralPermits { names: names.map(str::to_owned).collect(), permits }
    }

    pub(super) fn permits(&self) -> &[Permit] {
        &self.permits
    }

    /// The name and the permit of each semaphore, in the order of acquisition.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Permit)> {
        self.names.iter().map(String::as_str).zip(&self.permits)
    }

    /// The permit of the semaphore or mutex with this name. If two have the same name, the first one.
    pub fn get(&self, name: &str) -> Option<&Permit> {
        self.iter().find_map(|(other, permit)| (other == name).then_some(permit))
    }

    /// The fencing token of the semaphore or mutex with this name. See [`Permit::fence`].
    pub fn fence(&self, name: &str) -> Option<u64> {
        self.get(name).map(Permit::fence)
    }

    /// The time for which all of them are still held. See [`Permit::remaining`].
    pub fn remaining(&self) -> Option<Duration> {
        self.permits.iter().filter_map(Permit::remaining).min()
    }

    /// Whether one of them is lost. See [`Permit::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Waits until one of them is lost. See [`Permit::lost`].
    ///
    /// # Cancel safety
    /// As [`Permit::lost`].
    pub async fn lost(&self) -> Lost {
        let mut losses: FuturesUnordered<_> = self.permits.iter().map(Permit::lost).collect();
        match losses.next().await {
            Some(lost) => lost,
            None => std::future::pending().await, // there is always a permit
        }
    }

    /// Starts a new lease for all of them from now. Takes one round trip to each gate.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if one of them is lost. After any other error they are valid until their old leases end.
    ///
    /// # Cancel safety
    /// As [`Permit::refresh`].
    pub async fn refresh(&self) -> Result<(), RefreshError> {
        permit::refresh(&self.permits, None).await
    }

    /// Releases all of them. Returns [`Released::Gone`] if one of them had been lost before; the others are released
    /// nevertheless. Takes one round trip to each gate.
    ///
    /// # Errors
    /// [`UnlockError`] if a server did not confirm the release. It contains the guard, so that the caller can try
    /// again.
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    pub async fn release(mut self) -> Result<Released, UnlockError<SeveralPermits>> {
        permit::release_all(&mut self.permits).await.map_err(|error| UnlockError::new(self, error))
    }

    /// The separate permits, in the order of acquisition. Each of them can be released alone.
    #[must_use = "the permits are released as soon as they are dropped"]
    pub fn into_permits(mut self) -> Vec<Permit> {
        std::mem::take(&mut self.permits)
    }
}

impl fmt::Debug for SeveralPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
