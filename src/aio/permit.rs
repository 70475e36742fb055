//! The permit: the guard that a grant returns.

mod several;

use super::lease::permits::Renewal;
use super::shared::Shared;
use super::transport::servers::Outcome;
use super::transport::{Connection, Sending, Unanswered};
use super::wait::polled::Held;
use crate::clock::Busy;
use crate::error::failure::{Failure, FailureKind};
use crate::error::{CallError, Lost, RefreshError};
use crate::lease::store::OnLost;
use crate::permit::{PermitState, ReleaseError, Released, functions};
use crate::protocol::call::Packed;
use crate::protocol::held::{HeldPermit, Identity};
use crate::protocol::lease::{self, Deadline, LeaseOptions};
use crate::protocol::semaphore::Grant;
use crate::protocol::waiter::Granted;
use crate::trace::Operation;
use futures_util::FutureExt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Permits that this process holds, until they are released, dropped or lost.
///
/// Dropping a permit releases it: the gate's task sends the release, and repeats it until the server answers or the
/// lease has ended. Dropping never blocks and never panics, also outside a runtime. If the runtime ends before the task
/// has sent the release, the permit ends with its lease: see [`Gate::close`](crate::aio::Gate::close). In a forked
/// child, dropping does nothing, because the parent holds the permit. A permit is not re-entrant: a holder that acquires
/// again waits in line like every other caller.
///
/// A permit can be lost at any time. Its lease may end while this process is paused or cannot reach the server.
/// [`lost`](Permit::lost) waits for a loss, and [`is_lost`](Permit::is_lost) reports one early rather than late. But they
/// cannot protect the work after that. The [`fence`](Permit::fence) can, if the protected resource refuses every fence
/// lower than the highest one it has seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    state: PermitState<Renewal>,
}

functions!(Permit);

impl Permit {
    /// A permit that the server has granted to this id, with these lease options.
    pub(super) fn new(
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
        let number = shared.keep(held, on_lost);
        let state = PermitState::new(shared.permits.store(), &identity, number);
        Permit { shared, state }
    }

    /// A permit from a grant, after its confirmation. `busy`: until it is registered for renewal.
    pub(super) async fn granted(
        shared: &Arc<Shared>,
        (granted, busy): (Granted, Busy),
        on_lost: Option<&OnLost>,
    ) -> Result<Permit, CallError> {
        let Granted { identity, grant, deadline, .. } = granted;
        let mut permit = {
            let _busy = busy;
            Permit::new(shared, identity, &grant, deadline, on_lost)
        };
        permit.state.limit = granted.limit;
        permit.state.ticket = granted.ticket;
        if permit.is_unconfirmed() {
            confirm(slice::from_ref(&permit)).boxed().await?;
        }
        shared.servers.counts.grant(granted.ticket.is_some());
        Ok(permit)
    }

    pub(super) fn with_limit(mut self, limit: u32) -> Permit {
        self.state.limit = limit;
        self
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
        refresh(slice::from_ref(self), None).await
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
        refresh(slice::from_ref(self), Some(lease::to_ms(lease)?)).await
    }

    /// Releases the permit. When it returns, the server has granted it to the first waiter.
    ///
    /// # Errors
    /// [`ReleaseError`] if the server did not confirm the release. It contains the permit, so that the caller can try
    /// again. Dropping the error releases in the background.
    ///
    /// # Cancel safety
    /// If this is dropped, the permit is released in the background.
    pub async fn release(mut self) -> Result<Released, ReleaseError<Permit>> {
        match release_one(&mut self).await {
            Ok(released) => Ok(released),
            Err(error) => Err(ReleaseError::new(self, error)),
        }
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
        let span = Operation::ReleaseSome.on([self.state.key()]);
        span.run_async(self.keep_less(permits)).await
    }

    async fn keep_less(&self, permits: u32) -> Result<(), RefreshError> {
        self.shared.check_process()?;
        let release = self.state.begin_release_some(permits)?;
        self.state.end_release_some(self.shared.call(&release).await?)
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
        if self.state.is_own_process() {
            self.shared.permits.lost(self.state.number).await;
        }
        self.state.identity.lost()
    }

    /// Hands the permit on without a release, because another release has been queued.
    pub(super) fn forget(mut self) {
        self.state.hand_on();
    }

    /// Ends the renewal of this permit while the future that holds it is not polled.
    pub(super) fn held(&self) -> Held {
        let (store, number) = (self.shared.permits.store().clone(), self.state.number);
        Box::new(move || store.with(|keeper| keeper.stop_renewal(number)))
    }

    fn is_of_same_gate(&self, other: &Permit) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The same permit with other lease options. Its current lease continues.
    pub(super) fn under(mut self, lease: LeaseOptions, on_lost: Option<&OnLost>) -> Permit {
        let Some(held) = self.state.under(lease) else {
            return self;
        };
        let mut permit = Permit::keep(self.shared.clone(), held, on_lost);
        (permit.state.limit, permit.state.ticket) = (self.state.limit, self.state.ticket);
        permit
    }

    /// Handles the outcome of its release.
    fn released(&mut self, outcome: Outcome) -> Result<(), CallError> {
        let read = outcome.and_then(|answered| {
            let repeated = answered.repeated;
            let answer = answered.read(|reply| self.state.read_release(reply))?;
            Ok((answer, repeated))
        });
        match read {
            Ok((answer, repeated)) => {
                self.state.released(answer, repeated);
                Ok(())
            }
            Err(Unanswered { error, .. }) => {
                self.state.unanswered(&error);
                Err(error)
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // In a forked child, a lock may be held by a thread that does not exist there.
        if self.state.armed && self.state.is_own_process() {
            let pending = self.state.pending(self.shared.now(), None::<Arc<Connection>>);
            self.shared.release_later([pending]);
        }
    }
}

/// Completes grants: starts the lease of permanent permits, and waits for replicas. If this fails, the caller drops the
/// permits.
pub(super) async fn confirm(permits: &[Permit]) -> Result<(), CallError> {
    if !permits.iter().any(Permit::is_unconfirmed) {
        return Ok(());
    }
    refresh_all(permits, None, None).await.map_err(|error| match error {
        RefreshError::Lost(lost) => {
            let text = format!("the lease of the id {} ended before it was confirmed", lost.id);
            CallError::Failed(Failure::new(FailureKind::TimedOut, text))
        }
        RefreshError::Invalid(invalid) => CallError::Invalid(invalid),
        RefreshError::Failed(failure) => CallError::Failed(failure),
        RefreshError::Unknown(failure) => CallError::Unknown(failure),
    })
}

impl Permit {
    /// Whether its grant must be confirmed before it counts.
    fn is_unconfirmed(&self) -> bool {
        self.state.identity.lease.lease_ms == 0 || self.shared.permits.replicas.is_some()
    }
}

/// Refreshes these permits on request of the user.
pub(super) async fn refresh(permits: &[Permit], lease_ms: Option<u64>) -> Result<(), RefreshError> {
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    span.run_async(refresh_all(permits, lease_ms, None)).await
}

/// Refreshes these permits in one packet for each gate, with their own leases or with `lease_ms`. If one of them is
/// lost, it refreshes none. Waits for the replies until `until` at most.
pub(super) async fn refresh_all(
    permits: &[Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Result<(), RefreshError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    if let Some(lost) = permits.iter().find(|permit| permit.is_lost()) {
        return Err(RefreshError::Lost(lost.state.identity.lost()));
    }
    let ends = permits.iter().filter_map(|permit| permit.state.deadline());
    let until = ends.chain(until).min();
    let mut all = Ok(());
    for permits in permits.chunk_by(Permit::is_of_same_gate) {
        let refreshed = refresh_each(&permits.iter().collect::<Vec<_>>(), lease_ms, until).await;
        all = all.and(refreshed.into_iter().collect());
    }
    all
}

/// Refreshes each of these permits, all of one gate. Returns a result for each.
async fn refresh_each(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
) -> Vec<Result<(), RefreshError>> {
    let Some(first) = permits.first() else {
        return Vec::new();
    };
    let permits: Vec<_> = permits.iter().map(|permit| (permit.state.number, &*permit.state.identity)).collect();
    first.shared.permits.refresh(&permits, lease_ms, until).await
}

/// Releases this permit, as `release_all` does.
async fn release_one(permit: &mut Permit) -> Result<Released, CallError> {
    permit.shared.check_process()?;
    let shared = permit.shared.clone();
    let span = Operation::Release.on([permit.state.key()]);
    let release = async {
        if let Some(call) = permit.state.begin_release() {
            let outcome = shared.servers.send_checked(&call, Sending::default()).await;
            permit.released(outcome)?;
        }
        Ok(if permit.state.gone { Released::Gone } else { Released::Released })
    };
    span.tell_async(release).await
}

/// Releases these permits, in one packet for each gate. A permit whose release was confirmed is no longer armed.
pub(super) async fn release_all(permits: &mut [Permit]) -> Result<Released, CallError> {
    if let Some(first) = permits.first() {
        first.shared.check_process()?;
    }
    let mut all = Ok(Released::Released);
    for permits in permits.chunk_by_mut(Permit::is_of_same_gate) {
        let released = give_back(permits).await.into_iter().flatten().next();
        let is_gone = permits.iter().any(|permit| permit.state.gone);
        // A failure of one gate does not prevent the release of the others.
        all = match (all, released) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(error),
            (Ok(_), None) if is_gone => Ok(Released::Gone),
            (Ok(released), None) => Ok(released),
        };
    }
    all
}

/// Releases the permits that are armed, all of one gate. Returns an error for each that the server did not confirm.
async fn give_back(permits: &mut [Permit]) -> Vec<Option<CallError>> {
    let mut errors = vec![None; permits.len()];
    let Some(servers) = permits.first().map(|permit| permit.shared.servers.clone()) else {
        return errors;
    };
    let span = Operation::Release.on(permits.iter().map(|permit| permit.state.key()));
    // The result is in `errors`.
    let _ = span
        .tell_async(async {
            let with_indexes = permits.iter_mut().enumerate();
            let calls = with_indexes.filter_map(|(index, permit)| Some((index, permit.state.begin_release()?)));
            let (indexes, calls): (Vec<usize>, Vec<Packed>) = calls.unzip();
            let outcomes = servers.send_all(&calls, Sending::default()).await;
            for (index, outcome) in indexes.into_iter().zip(outcomes) {
                if let (Some(permit), Some(error)) = (permits.get_mut(index), errors.get_mut(index)) {
                    *error = permit.released(outcome).err();
                }
            }
            match errors.iter().flatten().next() {
                Some(error) => Err(error.clone()),
                None if permits.iter().any(|permit| permit.state.gone) => Ok(Released::Gone),
                None => Ok(Released::Released),
            }
        })
        .await;
    errors
}
