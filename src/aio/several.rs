//! Permits of several semaphores, acquired together or not at all.

use super::permit::Permit;
use crate::engine::mode::Mode;
use crate::error::{AcquireSeveralError, Lost, RefreshError, TryAcquireSeveralError};
use crate::guard::{UnlockError, settings};
use crate::permit::{self, Released};
use crate::wait::waits::Caller;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Permits of several semaphores, which are acquired together or not at all.
///
/// See [`luagate::Several`](crate::Several). [`Gate::several`](crate::aio::Gate::several) creates it, and
/// [`Gate::mutexes`](crate::aio::Gate::mutexes) creates it for mutexes only.
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), luagate::Error> {
/// # let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
/// let user = gate.semaphore("export:user:17", 3);
/// let total = gate.semaphore("export", 100);
/// let both = gate.several([(&user, 1), (&total, 1)]);
/// let held = both.acquire_timeout(Duration::from_secs(10)).await?; // a permit of each
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// The [guide](crate::guide::several_at_once) explains the order, fairness, and the effect of callers that declare
/// different limits.
#[derive(Clone)]
pub struct Several(pub(super) crate::Several);

settings!(Several);

impl Several {
    fn with(self, set: impl Fn(crate::Semaphore) -> crate::Semaphore) -> Several {
        Several(self.0.with(set))
    }

    /// Takes the permits of all semaphores with one script, if each has enough free permits and no caller waits for any
    /// of them. Otherwise it takes none. All semaphores must be of one gate. All names must share a group, as in
    /// `{group}:name`, so that one server stores them.
    ///
    /// # Errors
    /// [`TryAcquireSeveralError::Blocked`] names the first semaphore that did not grant, and contains the usage of
    /// each. [`TryAcquireSeveralError::Invalid`] for names of different groups, a semaphore given twice, no semaphore,
    /// more than 64, or a semaphore with an [id](super::Semaphore::id) chosen by the application. After any error
    /// nothing stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, nothing stays held.
    pub async fn try_acquire(&self) -> Result<SeveralPermits, TryAcquireSeveralError> {
        let shared = self.0.shared()?;
        let watched = shared.watch(|polled| async move { self.0.try_acquire_by(Caller::polled(&polled)).await })?;
        watched.await.map(SeveralPermits::new)
    }

    /// Takes the permits of all semaphores, one semaphore after the other. Waits in line for at most `timeout`, and
    /// returns after at most `timeout` plus 50 ms.
    ///
    /// The order is: the smallest declared limit first, then by the bytes of their keys. All callers that declare the
    /// same limits use this order, so two of them never wait for each other. No caller holds a permit of a semaphore
    /// with a large limit while it waits for one with a small limit. While it waits, the permits that it already holds
    /// are renewed. At the end it checks that all of them are still held. It is fair: each line is first come, first
    /// served. The names need no common group, and the semaphores can be of different gates.
    ///
    /// If this future is woken but not polled for one second, the permits that it already holds are not renewed any more.
    ///
    /// # Errors
    /// [`AcquireSeveralError::TimedOut`] names the semaphore that was waited for. [`AcquireSeveralError::Lost`] if
    /// permits that were already granted were lost during the wait. [`AcquireSeveralError::Invalid`] for a timeout of
    /// zero, a semaphore given twice, no semaphore, more than 64, or a semaphore with an [id](super::Semaphore::id)
    /// chosen by the application. After any error nothing stays held.
    ///
    /// # Cancel safety
    /// If this is dropped, the caller leaves the line, and the permits that it already holds are released.
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<SeveralPermits, AcquireSeveralError> {
        let shared = self.0.shared()?;
        let watched =
            shared.watch(|polled| async move { self.0.acquire_by(timeout, Caller::polled(&polled)).await })?;
        watched.await.map(SeveralPermits::new)
    }
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Permits of several semaphores, held together. Dropping this guard releases all of them, and never blocks.
#[must_use = "the permits are released as soon as their guard is dropped"]
pub struct SeveralPermits {
    names: Vec<String>,
    permits: Vec<Permit>,
}

impl SeveralPermits {
    fn new(held: crate::SeveralPermits) -> SeveralPermits {
        SeveralPermits { names: held.names, permits: held.permits.into_iter().map(Permit).collect() }
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

    /// Starts a new lease for all of them from now. Takes one round trip to each gate.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if one of them is lost. After any other error they are valid until their old leases end.
    ///
    /// # Cancel safety
    /// As [`Permit::refresh`].
    pub async fn refresh(&self) -> Result<(), RefreshError> {
        let permits: Vec<&crate::Permit> = self.permits.iter().map(|permit| &permit.0).collect();
        permit::refresh(&permits, None, Mode::Async).await
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
    pub async fn release(self) -> Result<Released, UnlockError<SeveralPermits>> {
        let permits = self.permits.into_iter().map(|permit| permit.0).collect();
        let held = crate::SeveralPermits { names: self.names, permits };
        held.release_by(Mode::Async).await.map_err(|error| error.map(SeveralPermits::new))
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
