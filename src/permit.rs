//! The permit that a grant returns.

mod functions;
mod refresh;
mod release;
mod several;
mod state;

pub(crate) use refresh::{confirm, refresh, refresh_all};
pub(crate) use release::release_all;
pub use release::{ReleaseError, Released};
pub(crate) use state::PermitState;

use crate::engine::mode::{Mode, block};
use crate::error::{CallError, Lost, RefreshError};
use crate::lease::permits::OnLost;
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::lease::{self, Deadline, LeaseOptions};
use crate::protocol::semaphore::Grant;
use crate::protocol::waiter::Granted;
use crate::shared::Shared;
use crate::trace::Operation;
use crate::wait::polled::Held;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// Permits that this process holds, until they are released, dropped or lost.
///
/// Dropping a permit sends its release and does not wait for the reply. Later calls of this gate for the same name run
/// after it. Without a reply the release is repeated until the server answers or the lease has ended. In a forked child,
/// dropping does nothing, because the parent holds the permit. A permit is not re-entrant: a holder that acquires again
/// waits in line like every other caller.
///
/// A permit can be lost at any time. Its lease may end while this process is paused or cannot reach the server.
/// [`is_lost`](Permit::is_lost) reports a loss early rather than late. But it cannot protect the work after that check.
/// The [`fence`](Permit::fence) can, if the protected resource refuses every fence lower than the highest one it has
/// seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    state: PermitState,
}

impl Permit {
    /// A permit that the server has granted to this id, with these lease options.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        identity: Identity,
        grant: &Grant,
        deadline: Deadline,
        on_lost: Option<&OnLost>,
    ) -> Permit {
        let held = HeldPermit::new(Arc::new(identity), grant, deadline);
        Permit::keep(shared.clone(), held, on_lost)
    }

    fn keep(shared: Arc<Shared>, held: HeldPermit, on_lost: Option<&OnLost>) -> Permit {
        let identity = held.identity.clone();
        let number = shared.permits.keep(held, on_lost);
        let state = PermitState::new(shared.permits.store(), &identity, number);
        Permit { shared, state }
    }

    /// A permit from a grant, after its confirmation.
    pub(crate) async fn granted(
        shared: &Arc<Shared>,
        granted: Granted,
        on_lost: Option<&OnLost>,
        mode: Mode,
    ) -> Result<Permit, CallError> {
        let Granted { identity, grant, deadline, .. } = granted;
        let mut permit = Permit::new(shared, identity, &grant, deadline, on_lost);
        permit.state.limit = granted.limit;
        permit.state.ticket = granted.ticket;
        if permit.is_unconfirmed() {
            Box::pin(confirm(&[&permit], mode)).await?;
        }
        shared.servers.counts.grant(granted.ticket.is_some());
        Ok(permit)
    }

    pub(crate) fn with_limit(mut self, limit: u32) -> Permit {
        self.state.limit = limit;
        self
    }

    /// Starts a new lease from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`RefreshError::Lost`] if the permit is lost. A lost permit never becomes valid again. After any other error the
    /// permit is valid until its old lease ends. After [`RefreshError::Unknown`] the earlier of the old and the new end
    /// counts.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        let permits = [self];
        block(|mode| refresh(&permits, None, mode))
    }

    /// As [`refresh`](Permit::refresh), without blocking.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh).
    ///
    /// # Cancel safety
    /// If this is dropped, the earlier of the old and the new end counts.
    pub async fn refresh_async(&self) -> Result<(), RefreshError> {
        refresh(&[self], None, Mode::Async).await
    }

    /// Starts a new lease of another length from now, 1 ms to 100 years. If the permit is renewed in the background,
    /// the next renewal returns to the length from the settings. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh), and [`RefreshError::Invalid`] if the length is out of range.
    pub fn refresh_for(&self, lease: Duration) -> Result<(), RefreshError> {
        let lease_ms = lease::to_ms(lease)?;
        let permits = [self];
        block(|mode| refresh(&permits, Some(lease_ms), mode))
    }

    /// As [`refresh_for`](Permit::refresh_for), without blocking.
    ///
    /// # Errors
    /// As [`refresh_for`](Permit::refresh_for).
    ///
    /// # Cancel safety
    /// As [`refresh_async`](Permit::refresh_async).
    pub async fn refresh_for_async(&self, lease: Duration) -> Result<(), RefreshError> {
        refresh(&[self], Some(lease::to_ms(lease)?), Mode::Async).await
    }

    /// Releases the permit. Blocks for one round trip. When it returns, the server has granted it to the first waiter.
    ///
    /// # Errors
    /// [`ReleaseError`] if the server did not confirm the release. It contains the permit, so that the caller can try
    /// again. Dropping the error releases in the background.
    pub fn release(self) -> Result<Released, ReleaseError> {
        block(|mode| self.release_by(mode))
    }

    /// As [`release`](Permit::release), without blocking.
    ///
    /// # Errors
    /// As [`release`](Permit::release).
    ///
    /// # Cancel safety
    /// If this is dropped, the permit is released in the background.
    pub async fn release_async(self) -> Result<Released, ReleaseError> {
        self.release_by(Mode::Async).await
    }

    async fn release_by(self, mode: Mode) -> Result<Released, ReleaseError> {
        match release_all(slice::from_ref(&self), mode).await {
            Ok(released) => Ok(released),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
    }

    /// Releases `permits` of these permits and keeps the rest, which is at least one. Blocks for one round
    /// trip.
    ///
    /// # Errors
    /// [`RefreshError::Invalid`] for 0, and for all of them or more: use [`release`](Permit::release).
    /// [`RefreshError::Lost`] if the permit is lost. After any other error the same call can be repeated, because the
    /// client sends the number that it keeps, not the number that it releases.
    pub fn release_some(&mut self, permits: u32) -> Result<(), RefreshError> {
        block(|mode| self.release_some_by(permits, mode))
    }

    /// As [`release_some`](Permit::release_some), without blocking.
    ///
    /// # Errors
    /// As [`release_some`](Permit::release_some).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have released them or not. The same call can be repeated.
    pub async fn release_some_async(&mut self, permits: u32) -> Result<(), RefreshError> {
        self.release_some_by(permits, Mode::Async).await
    }

    /// Keeps one permit and releases the others. So the writer of a [`RwLock`](crate::RwLock) continues as a reader, with
    /// the same fence and lease. No writer is granted in between. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`release_some`](Permit::release_some). [`RefreshError::Invalid`] if it has only one permit.
    pub fn downgrade(&mut self) -> Result<(), RefreshError> {
        self.release_some(self.permits().saturating_sub(1))
    }

    /// As [`downgrade`](Permit::downgrade), without blocking.
    ///
    /// # Errors
    /// As [`downgrade`](Permit::downgrade).
    ///
    /// # Cancel safety
    /// As [`release_some_async`](Permit::release_some_async).
    pub async fn downgrade_async(&mut self) -> Result<(), RefreshError> {
        self.release_some_async(self.permits().saturating_sub(1)).await
    }

    async fn release_some_by(&self, permits: u32, mode: Mode) -> Result<(), RefreshError> {
        let span = Operation::ReleaseSome.on([self.state.key()]);
        let work = async {
            self.shared.check_process()?;
            let release = self.state.begin_release_some(permits)?;
            self.state.end_release_some(self.shared.call(&release, mode).await?)
        };
        span.run_async(work).await
    }

    /// Waits until the permit is lost, for `tokio::select!`. A permanent permit is lost only if it is revoked, which the
    /// next refresh notices.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example() -> Result<(), luagate::Error> {
    /// let gate = luagate::Gate::open_async("redis://127.0.0.1/").await?;
    /// let permit = gate.semaphore("market:account:17", 5).acquire_async().await?;
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
        if self.state.is_own_process() {
            self.shared.permits.lost(self.state.number).await;
        }
        self.state.identity.lost()
    }

    /// Whether its grant must be confirmed before it counts.
    fn is_unconfirmed(&self) -> bool {
        self.state.identity.lease.lease_ms == 0 || self.shared.permits.has_replicas()
    }

    /// Hands the permit on without a release, because another release has been posted.
    pub(crate) fn forget(self) {
        self.state.hand_on();
    }

    /// Ends the renewal of this permit. For a future that is not polled.
    pub(crate) fn renewal_end(&self) -> Held {
        let (store, number) = (self.shared.permits.store().clone(), self.state.number);
        Box::new(move || store.with(|keeper| keeper.stop_renewal(number)))
    }

    pub(crate) fn is_of_same_gate(&self, other: &Permit) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The same permit with other lease options. Its current lease continues.
    pub(crate) fn under(self, lease: LeaseOptions, on_lost: Option<&OnLost>) -> Permit {
        let Some(held) = self.state.under(lease) else {
            return self;
        };
        let mut permit = Permit::keep(self.shared.clone(), held, on_lost);
        (permit.state.limit, permit.state.ticket) = (self.state.limit, self.state.ticket);
        permit
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.post();
    }
}
