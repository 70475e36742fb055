//! The permit: the guard that a grant returns.

use crate::engine::mode::Mode;
use crate::error::{Lost, RefreshError};
use crate::permit::{self, ReleaseError, Released};
use crate::protocol::keys::Keys;
use crate::protocol::lease;
use std::fmt;
use std::time::Duration;

/// Permits that this process holds, until they are released, dropped or lost.
///
/// Dropping a permit sends its release and does not wait for the reply. Dropping never blocks and never panics, also
/// outside of a runtime. Later calls of this gate for the same name run after it. Without a reply the release is repeated
/// until the server answers or the lease has ended. In a forked child, dropping does nothing, because the parent holds the
/// permit. A permit is not re-entrant: a holder that acquires again waits in line like every other caller.
///
/// A permit can be lost at any time. Its lease may end while this process is paused or cannot reach the server.
/// [`lost`](Permit::lost) waits for a loss, and [`is_lost`](Permit::is_lost) reports one early rather than late. But they
/// cannot protect the work after that. The [`fence`](Permit::fence) can, if the protected resource refuses every fence
/// lower than the highest one it has seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit(pub(crate) crate::Permit);

impl Permit {
    /// The fencing token: a number that is higher than that of every earlier grant of this semaphore. See
    /// [`luagate::Permit::fence`](crate::Permit::fence).
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// The id of the holder: `<uuid>`, `<label>/<uuid>`, or the id that the application chose.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// The keys of the semaphore, for your own scripts. See [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        self.0.keys()
    }

    /// The number of permits in this guard. 0 in a forked child.
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// The limit in force at the time of the grant. See [`luagate::Permit::limit`](crate::Permit::limit).
    pub fn limit(&self) -> u32 {
        self.0.limit()
    }

    /// The place in line at which the caller waited. `None` if it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.0.ticket()
    }

    /// The time for which the permit is still held, early rather than late. Zero if the permit is lost, and in a forked
    /// child. `None` if the permit is permanent. See [`luagate::Permit::remaining`](crate::Permit::remaining).
    pub fn remaining(&self) -> Option<Duration> {
        self.0.remaining()
    }

    /// Whether the permit is lost, by the clocks of this machine and the replies so far. Once true, it stays true. See
    /// [`luagate::Permit::is_lost`](crate::Permit::is_lost).
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Stops the background renewal. The permit ends with its current lease, unless the caller calls
    /// [`refresh`](Permit::refresh). See [`luagate::Permit::stop_renewal`](crate::Permit::stop_renewal).
    pub fn stop_renewal(&self) {
        self.0.stop_renewal();
    }

    /// Drops the guard without releasing, and returns the id. Within [`remaining`](Permit::remaining), another process
    /// can take over with [`Semaphore::adopt`](super::Semaphore::adopt). The renewal stops.
    pub fn into_id(self) -> String {
        self.0.into_id()
    }

    /// Starts a new lease from now.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if the permit is lost. A lost permit never becomes valid again. After any other error the
    /// permit is valid until its old lease ends. After [`RefreshError::Unknown`] the earlier of the old and the new end
    /// counts.
    ///
    /// # Cancel safety
    /// If this is dropped, the earlier of the old and the new end counts.
    pub async fn refresh(&self) -> Result<(), RefreshError> {
        permit::refresh(&[&self.0], None, Mode::Async).await
    }

    /// Starts a new lease of another length from now, 1 ms to 100 years. If the permit is renewed in the background,
    /// the next renewal returns to the length from the settings.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh), and [`RefreshError::Invalid`] if the length is out of range.
    ///
    /// # Cancel safety
    /// As [`refresh`](Permit::refresh).
    pub async fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        permit::refresh(&[&self.0], Some(lease::to_ms(lease)?), Mode::Async).await
    }

    /// Releases the permit. When it returns, the server has granted it to the first waiter.
    ///
    /// # Errors
    /// [`ReleaseError`] if the server did not confirm the release. It contains the permit, so that the caller can try
    /// again. Dropping the error releases in the background.
    ///
    /// # Cancel safety
    /// If this is dropped, the permit is released in the background.
    pub async fn release(self) -> Result<Released, ReleaseError<Permit>> {
        self.0.release_by(Mode::Async).await.map_err(|error| error.map(Permit))
    }

    /// Releases `permits` of the permits in this guard and keeps the rest, which is at least one.
    ///
    /// # Errors
    /// [`RefreshError::Invalid`] for 0, and for all of them or more: use [`release`](Permit::release).
    /// [`RefreshError::Lost`] if the permit is lost. After any other error the same call can be repeated, because the
    /// client sends the number that it keeps, not the number that it releases.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have released them or not. The same call can be repeated.
    pub async fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        self.0.release_some_by(permits, Mode::Async).await
    }

    /// Waits until the permit is lost, for `tokio::select!`. A permanent permit is lost only if it is revoked, which the
    /// next refresh notices.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example() -> Result<(), luagate::Error> {
    /// let gate = luagate::aio::Gate::open("redis://127.0.0.1/").await?;
    /// let permit = gate.semaphore("market:account:17", 5).acquire().await?;
    /// tokio::select! {
    ///     () = work() => {}
    ///     lost = permit.lost() => return Err(luagate::Error::Lost(lost)),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// It can be dropped and called again at any time. A loss in between is not missed.
    pub async fn lost(&self) -> Lost {
        self.0.until_lost().await
    }

    /// Starts a new lease for each of these permits, as [`refresh`](Permit::refresh) does. Returns a result for each, in
    /// the same order. Accepts permits and guards, of one semaphore or of several. Takes one round trip for each 100
    /// permits on a server.
    ///
    /// # Errors
    /// For each permit as [`refresh`](Permit::refresh). A failure of one does not prevent the refresh of the others.
    ///
    /// # Cancel safety
    /// As [`refresh`](Permit::refresh).
    pub async fn refresh_all<'a, P: AsRef<Permit> + 'a>(
        permits: impl IntoIterator<Item = &'a P>,
    ) -> Vec<Result<(), RefreshError>> {
        let permits: Vec<&crate::Permit> = permits.into_iter().map(|permit| &permit.as_ref().0).collect();
        permit::refresh_each_of(&permits, Mode::Async).await
    }

    /// Releases these permits, as [`release`](Permit::release) does. Returns a result for each, in the same order.
    /// Accepts permits and guards, of one semaphore or of several. Takes one round trip for each 100 permits on a
    /// server.
    ///
    /// # Errors
    /// [`ReleaseError`] for each permit whose release the server did not confirm. It contains the permit, so that the
    /// caller can try again. A failure of one does not prevent the release of the others.
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    pub async fn release_all<P: Into<Permit>>(
        permits: impl IntoIterator<Item = P>,
    ) -> Vec<Result<Released, ReleaseError<Permit>>> {
        let permits = permits.into_iter().map(|permit| permit.into().0).collect();
        let released = permit::release_each_of(permits, Mode::Async).await.into_iter();
        released.map(|released| released.map_err(|error| error.map(Permit))).collect()
    }
}

impl AsRef<Permit> for Permit {
    fn as_ref(&self) -> &Permit {
        self
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
