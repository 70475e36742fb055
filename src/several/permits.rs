//! Permits that were acquired together.

use crate::engine::mode::{Mode, block};
use crate::error::{Lost, RefreshError};
use crate::permit::{self, Permit, ReleaseError, Released};
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Permits of several semaphores, held together. Dropping this releases all of them.
///
/// Dropping sends the releases and does not wait for the replies, as for one [`Permit`].
#[must_use = "the permits are released as soon as this is dropped"]
pub struct SeveralPermits {
    pub(crate) names: Vec<String>,
    pub(crate) permits: Vec<Permit>,
}

impl SeveralPermits {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>, permits: Vec<Permit>) -> SeveralPermits {
        SeveralPermits { names: names.map(str::to_owned).collect(), permits }
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
        let mut losses: Vec<_> = self.permits.iter().map(|permit| Box::pin(permit.lost())).collect();
        poll_fn(|cx| {
            let lost = losses.iter_mut().map(|lost| lost.as_mut().poll(cx));
            lost.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Starts a new lease for all of them from now. Blocks for one round trip to each gate.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if one of them is lost. After any other error they are valid until their old leases end.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        block(|mode| self.refresh_by(mode))
    }

    /// As [`refresh`](SeveralPermits::refresh), without blocking.
    ///
    /// # Errors
    /// As [`refresh`](SeveralPermits::refresh).
    ///
    /// # Cancel safety
    /// As [`Permit::refresh_async`].
    pub async fn refresh_async(&self) -> Result<(), RefreshError> {
        self.refresh_by(Mode::Async).await
    }

    /// Releases all of them. Returns [`Released::Gone`] if one of them had been lost before; the others are released
    /// nevertheless. Blocks for one round trip to each gate.
    ///
    /// # Errors
    /// [`ReleaseError`] if a server did not confirm the release. It contains the permits, so that the caller can try
    /// again.
    pub fn release(self) -> Result<Released, ReleaseError<SeveralPermits>> {
        block(|mode| self.release_by(mode))
    }

    /// As [`release`](SeveralPermits::release), without blocking.
    ///
    /// # Errors
    /// As [`release`](SeveralPermits::release).
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    pub async fn release_async(self) -> Result<Released, ReleaseError<SeveralPermits>> {
        self.release_by(Mode::Async).await
    }

    async fn refresh_by(&self, mode: Mode) -> Result<(), RefreshError> {
        permit::refresh_all(&self.permits.iter().collect::<Vec<_>>(), None, None, mode).await
    }

    async fn release_by(self, mode: Mode) -> Result<Released, ReleaseError<SeveralPermits>> {
        permit::release_all(&self.permits, mode).await.map_err(|error| ReleaseError::new(self, error))
    }

    /// The separate permits, in the order of acquisition. Each of them can be released alone.
    #[must_use = "the permits are released as soon as they are dropped"]
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }
}

impl fmt::Debug for SeveralPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
