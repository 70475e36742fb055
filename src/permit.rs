//! The permit that a grant returns.

mod release;

pub(crate) use release::all as release_all;
pub use release::{ReleaseError, Released};

use crate::engine::mode::{Mode, block};
use crate::error::{CallError, FailureKind, Invalid, Lost, PermitError, Ticket};
use crate::lease::permits::OnLost;
use crate::shared::Shared;
use crate::trace::Operation;
use luagate_core::exchange::BATCH;
use luagate_core::failure::Failure;
use luagate_core::held::{HeldPermit, Identity};
use luagate_core::keeper::{Keeper, Number, SHORTEST_REFRESH};
use luagate_core::keys::Keys;
use luagate_core::lease::{self, LeaseOptions};
use luagate_core::semaphore::{Release, ReleaseAnswer};
use luagate_core::waiter::Granted;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one grant gave this process: one permit or [several](Permit::permits), until it is released, dropped
/// or lost.
///
/// Dropping a permit sends its release and does not wait for the reply. Later calls of this gate for the same
/// name run after it. Without a reply the release is repeated until the server answers or the lease has
/// ended. In a forked child, dropping does nothing, because the parent holds the permit. A permit is not
/// re-entrant: a holder that acquires again waits in line like every other caller.
///
/// A permit can be lost at any time. Its lease may end while this process is paused or cannot reach the
/// server.
/// [`is_lost`](Permit::is_lost) reports a loss early rather than late. But it cannot protect the work after
/// that check. The [`fence`](Permit::fence) can, if the protected resource refuses every fence lower than the
/// highest one it has seen.
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    identity: Arc<Identity>,
    number: Number,
    limit: u32,
    ticket: Option<u64>,
}

impl Permit {
    /// The fencing token: a number that is higher than that of every earlier grant of this semaphore. Pass it
    /// to the protected resource, and let the resource refuse lower numbers. If several holders are allowed
    /// at the same time, the fence identifies a grant but does not order the holders.
    ///
    /// It can be lower than an earlier one if the server's clock was set back by more than a minute, or if
    /// keys were lost and the clock is behind. [`resize`](crate::Semaphore::resize) pins the limit, and a
    /// pinned state never expires:
    /// [the guide](crate::guide::leases_and_fences#fences-and-the-servers-clock) has the details.
    #[doc(alias = "fencing_token")]
    pub fn fence(&self) -> u64 {
        self.identity.fence
    }

    /// The name of the semaphore or lock.
    pub fn name(&self) -> &str {
        self.identity.keys.name()
    }

    /// The id of the holder: `<uuid>`, `<label>/<uuid>`, or the id that the application chose.
    pub fn id(&self) -> &str {
        &self.identity.id
    }

    /// The keys of the semaphore, for your own scripts. See [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        &self.identity.keys
    }

    /// The number of permits that it has. 0 in a forked child.
    pub fn permits(&self) -> u32 {
        if self.is_own_process() { self.held(|held| held.permits).unwrap_or(0) } else { 0 }
    }

    /// The limit in force, as the last reply to this acquire reported it. After a wait this can be older than
    /// the grant, since the grant message does not contain the limit. It may differ from the declared limit.
    /// `None` after
    /// [`adopt`](crate::Semaphore::adopt), because the server does not report the limit to that call.
    pub fn limit(&self) -> Option<u32> {
        Some(self.limit).filter(|limit| *limit > 0)
    }

    /// The ticket of the wait, which decided its place in line. `None` if it was granted without waiting, or
    /// if no reply during the wait was read. The wait has ended, so do not pass it to
    /// [`Semaphore::ticket`](crate::Semaphore::ticket).
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket.map(Ticket::new)
    }

    /// The time for which the permit is still held, by the clocks of this machine, early rather than late.
    /// Zero if the permit is lost, and in a forked child. `None` if the permit is permanent. Does not block
    /// and sends nothing to the server.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        if self.is_own_process() { self.shared.permits.remaining(self.number) } else { Some(Duration::ZERO) }
    }

    /// Whether the permit is lost, by the clocks of this machine and the replies so far. Once true, it stays
    /// true. Does not block and sends nothing to the server. Therefore a revoked permit is reported only
    /// after the next refresh.
    #[must_use = "the work must stop if the permit is lost"]
    pub fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Starts a new lease from now. Blocks for one round trip.
    ///
    /// # Errors
    /// [`PermitError::Lost`] if the permit is lost. A lost permit never becomes valid again. After any other
    /// error the permit is valid until its old lease ends. After [`PermitError::Unknown`] the earlier of the
    /// old and the new end counts.
    #[doc(alias = "extend")]
    pub fn refresh(&self) -> Result<(), PermitError> {
        let permits = [self];
        block(|mode| refresh_all(&permits, None, mode))
    }

    /// As [`refresh`](Permit::refresh), without blocking.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh).
    ///
    /// # Cancel safety
    /// If this is dropped, the earlier of the old and the new end counts.
    pub async fn refresh_async(&self) -> Result<(), PermitError> {
        refresh_all(&[self], None, Mode::Async).await
    }

    /// Starts a new lease of another length from now, 2 ms to 100 years. If the permit is renewed in the
    /// background, the next renewal returns to the length from the settings. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`refresh`](Permit::refresh), and [`PermitError::Invalid`] if the length is out of range.
    pub fn refresh_for(&self, lease: Duration) -> Result<(), PermitError> {
        let lease_ms = lease::to_ms(lease)?;
        let permits = [self];
        block(|mode| refresh_all(&permits, Some(lease_ms), mode))
    }

    /// As [`refresh_for`](Permit::refresh_for), without blocking.
    ///
    /// # Errors
    /// As [`refresh_for`](Permit::refresh_for).
    ///
    /// # Cancel safety
    /// As [`refresh_async`](Permit::refresh_async).
    pub async fn refresh_for_async(&self, lease: Duration) -> Result<(), PermitError> {
        refresh_all(&[self], Some(lease::to_ms(lease)?), Mode::Async).await
    }

    /// Releases the permit. Blocks for one round trip. When it returns, the server has given it to the first
    /// waiter, unless that one waits for more permits, or a [minimum hold](crate::Semaphore::at_least) keeps
    /// it in use.
    ///
    /// If the permit was lost before, the result is [`Released::Gone`]: another caller may have held it at
    /// the same time.
    ///
    /// # Errors
    /// [`ReleaseError`] if the server did not confirm the release. It contains the permit, so that the caller
    /// can try again. Dropping the error releases in the background.
    #[doc(alias = "unlock")]
    pub fn release(self) -> Result<Released, ReleaseError> {
        block(|mode| release::one(self, mode))
    }

    /// As [`release`](Permit::release), without blocking.
    ///
    /// # Errors
    /// As [`release`](Permit::release).
    ///
    /// # Cancel safety
    /// If this is dropped, the permit is released in the background.
    pub async fn release_async(self) -> Result<Released, ReleaseError> {
        release::one(self, Mode::Async).await
    }

    /// Releases `permits` of these permits and keeps the rest, which is at least one. Blocks for one round
    /// trip.
    ///
    /// # Errors
    /// [`PermitError::Invalid`] for 0, and for all of them or more: use [`release`](Permit::release).
    /// [`PermitError::Lost`] if the permit is lost. After any other error the same call can be repeated,
    /// because the client sends the number that it keeps, not the number that it releases.
    pub fn release_some(&mut self, permits: u32) -> Result<(), PermitError> {
        block(|mode| self.release_some_by(permits, mode))
    }

    /// As [`release_some`](Permit::release_some), without blocking.
    ///
    /// # Errors
    /// As [`release_some`](Permit::release_some).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have released them or not. The same call can be repeated.
    pub async fn release_some_async(&mut self, permits: u32) -> Result<(), PermitError> {
        self.release_some_by(permits, Mode::Async).await
    }

    /// Keeps one permit and releases the others. If it has only one, nothing is sent. So the writer of a
    /// [`RwLock`](crate::RwLock) continues as a reader, with the same fence and lease. No writer is granted
    /// in between. Blocks for one round trip.
    ///
    /// # Errors
    /// As [`release_some`](Permit::release_some).
    pub fn downgrade(&mut self) -> Result<(), PermitError> {
        block(|mode| self.downgrade_by(mode))
    }

    /// As [`downgrade`](Permit::downgrade), without blocking.
    ///
    /// # Errors
    /// As [`downgrade`](Permit::downgrade).
    ///
    /// # Cancel safety
    /// As [`release_some_async`](Permit::release_some_async).
    pub async fn downgrade_async(&mut self) -> Result<(), PermitError> {
        self.downgrade_by(Mode::Async).await
    }

    /// Starts a new lease for each of these permits, as [`refresh`](Permit::refresh) does. Returns a result
    /// for each, in the same order. The permits can be of one semaphore or of several. Blocks for one round
    /// trip for each 100 permits on a server.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let market = gate.semaphore("market", 50);
    /// let permits = vec![market.acquire()?, market.acquire()?];
    /// for (permit, refreshed) in permits.iter().zip(luagate::Permit::refresh_each(&permits)) {
    ///     if let Err(error) = refreshed {
    ///         eprintln!("{permit}: {error}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// For each permit as [`refresh`](Permit::refresh). A failure of one does not prevent the refresh of the
    /// others.
    #[must_use = "it contains the result for each permit"]
    pub fn refresh_each<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> Vec<Result<(), PermitError>> {
        let permits: Vec<&Permit> = permits.into_iter().collect();
        block(|mode| refresh_each(&permits, mode))
    }

    /// As [`refresh_each`](Permit::refresh_each), without blocking.
    ///
    /// # Errors
    /// As [`refresh_each`](Permit::refresh_each).
    ///
    /// # Cancel safety
    /// As [`refresh_async`](Permit::refresh_async).
    #[must_use = "it contains the result for each permit"]
    pub async fn refresh_each_async<'a>(
        permits: impl IntoIterator<Item = &'a Permit>,
    ) -> Vec<Result<(), PermitError>> {
        let permits: Vec<&Permit> = permits.into_iter().collect();
        refresh_each(&permits, Mode::Async).await
    }

    /// Releases these permits, as [`release`](Permit::release) does. Returns a result for each, in the same
    /// order. The permits can be of one semaphore or of several. Blocks for one round trip for each 100
    /// permits on a server.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let market = gate.semaphore("market", 50);
    /// let permits = vec![market.acquire()?, market.acquire()?];
    /// let released: Result<Vec<_>, _> = luagate::Permit::release_each(permits).into_iter().collect();
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError`](crate::errors::ReleaseError) for each permit whose release the server did not
    /// confirm. It contains the permit, so that the caller can try again. Dropping it does not block: the
    /// release continues in the background. A failure of one does not prevent the release of the others.
    #[must_use = "it contains the result for each permit"]
    pub fn release_each(permits: impl IntoIterator<Item = Permit>) -> Vec<Result<Released, ReleaseError>> {
        let permits: Vec<Permit> = permits.into_iter().collect();
        block(|mode| release::each(permits, mode))
    }

    /// As [`release_each`](Permit::release_each), without blocking.
    ///
    /// # Errors
    /// As [`release_each`](Permit::release_each).
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    #[must_use = "it contains the result for each permit"]
    pub async fn release_each_async(
        permits: impl IntoIterator<Item = Permit>,
    ) -> Vec<Result<Released, ReleaseError>> {
        let permits: Vec<Permit> = permits.into_iter().collect();
        release::each(permits, Mode::Async).await
    }

    /// Waits until the permit is lost, for `tokio::select!`. A permanent permit is lost only if it is
    /// revoked, which the next refresh notices.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example() -> Result<(), luagate::Error> {
    /// let gate = luagate::Gate::open_async("redis://127.0.0.1/").await?;
    /// let permit = gate.semaphore("market:account:17", 5).acquire_async().await?;
    /// tokio::select! {
    ///     () = work() => {}
    ///     lost = permit.lost_async() => return Err(lost.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// It can be dropped and called again at any time. A loss in between is not missed.
    pub async fn lost_async(&self) -> Lost {
        if self.is_own_process() {
            self.shared.permits.lost(self.number).await;
        }
        Lost::of(&self.identity)
    }

    /// Stops the background renewal. The permit ends with its current lease, unless the caller calls
    /// [`refresh`](Self::refresh). [`on_lost`](crate::Semaphore::on_lost) still reports the end. A renewal
    /// that is already on its way still counts: read [`remaining`](Self::remaining) again after a round trip.
    /// A permit that is permanent or not renewed does not change. Does not block and sends nothing to the
    /// server.
    pub fn stop_renewal(&self) {
        if self.is_own_process() {
            self.keeper(Keeper::stop_renewal);
        }
    }

    /// Drops the permit without releasing it, and returns the id. Within [`remaining`](Self::remaining),
    /// another process can take over with [`Semaphore::adopt`](crate::Semaphore::adopt). The renewal stops.
    #[must_use = "the permit stays in use until another process adopts this id, or its lease ends"]
    pub fn into_id(self) -> String {
        self.hand_on();
        self.identity.id.clone()
    }
}

impl Permit {
    /// A permit that the server has granted.
    pub(crate) fn new(shared: &Arc<Shared>, granted: Granted, on_lost: Option<&OnLost>) -> Permit {
        let Granted { identity, grant, limit, deadline, ticket } = granted;
        let identity = Arc::new(identity);
        let number = shared.permits.keep(HeldPermit::new(identity.clone(), &grant, deadline), on_lost);
        Permit { shared: shared.clone(), identity, number, limit, ticket }
    }

    /// A permit from a grant, after its confirmation.
    pub(crate) async fn granted(
        shared: &Arc<Shared>,
        granted: Granted,
        on_lost: Option<&OnLost>,
        until: Option<Instant>,
        mode: Mode,
    ) -> Result<Permit, CallError> {
        let permit = Permit::new(shared, granted, on_lost);
        if permit.is_unconfirmed() {
            Box::pin(confirm(&[&permit], until, mode)).await?;
        }
        shared.servers.counts.grant(permit.ticket.is_some());
        Ok(permit)
    }

    /// Whether its grant must be confirmed before it counts.
    fn is_unconfirmed(&self) -> bool {
        self.identity.lease.lease_ms == 0 || self.shared.permits.replicas.is_some()
    }

    /// It is no longer watched and will not be released.
    pub(crate) fn hand_on(&self) {
        if self.is_own_process() {
            self.change(HeldPermit::hand_on);
        }
    }

    /// The same permit with other lease options. Its current lease continues.
    pub(crate) fn under(self, lease: LeaseOptions, on_lost: Option<&OnLost>) -> Permit {
        let Some(held) = self.change(|held| held.under(lease)) else {
            return self;
        };
        let (shared, identity) = (self.shared.clone(), held.identity.clone());
        let number = shared.permits.keep(held, on_lost);
        Permit { shared, identity, number, limit: self.limit, ticket: self.ticket }
    }

    async fn downgrade_by(&self, mode: Mode) -> Result<(), PermitError> {
        match self.permits() {
            1 if !self.is_lost() => Ok(()),
            permits => self.release_some_by(permits.saturating_sub(1), mode).await,
        }
    }

    async fn release_some_by(&self, permits: u32, mode: Mode) -> Result<(), PermitError> {
        let work = async {
            self.shared.servers.check_process()?;
            if self.is_lost() {
                // Another caller may hold with the same id by now, if the application chose the id.
                return Err(PermitError::Lost(Lost::of(&self.identity)));
            }
            let held = self.permits();
            if permits == 0 || permits >= held {
                let why = format!(
                    "{permits} of {held}. Accepted: 1 or more, and fewer than {held}. To release all, call `release`"
                );
                return Err(Invalid::new("permits", why).into());
            }
            match self.shared.call(&self.release_call(held - permits), mode).await? {
                ReleaseAnswer::Released { left, .. } => {
                    self.held(|held| held.permits = left);
                    Ok(())
                }
                ReleaseAnswer::Cancelled | ReleaseAnswer::Gone => {
                    self.keeper(|keeper, number| keeper.lose(number, false));
                    Err(PermitError::Lost(Lost::of(&self.identity)))
                }
            }
        };
        Operation::ReleaseSome.on([self.key()]).run(work).await
    }

    fn release_call(&self, keep: u32) -> Release<'_> {
        Release { keys: &self.identity.keys, id: &self.identity.id, keep, fence: self.identity.own_fence() }
    }

    fn is_own_process(&self) -> bool {
        self.shared.servers.is_own_process()
    }

    fn is_of_same_gate(&self, other: &Permit) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn key(&self) -> &str {
        &self.identity.keys.meta
    }

    fn deadline(&self) -> Option<Instant> {
        self.held(|held| held.deadline().instant())?
    }

    fn held<T>(&self, work: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        self.keeper(|keeper, number| keeper.held(number).map(work))
    }

    fn change<T>(&self, change: impl FnOnce(&mut HeldPermit) -> T) -> Option<T> {
        self.keeper(|keeper, number| keeper.change(number, change))
    }

    fn keeper<T>(&self, work: impl FnOnce(&mut Keeper, Number) -> T) -> T {
        self.shared.permits.with(|keeper| work(keeper, self.number))
    }
}

/// Completes grants: starts the lease of permanent permits, and waits for replicas, until `until` at most.
/// Fails also if one of them has ended. Then the caller releases the permits.
pub(crate) async fn confirm(
    permits: &[&Permit],
    until: Option<Instant>,
    mode: Mode,
) -> Result<(), CallError> {
    let confirmed = if permits.iter().any(|permit| permit.is_unconfirmed()) {
        refresh_together(permits, None, until, mode).await
    } else {
        Ok(())
    };
    confirmed.and_then(|()| all_held(permits)).map_err(|error| match error {
        PermitError::Lost(lost) => {
            let text = format!("the lease of the id {} ended before it was confirmed", lost.id);
            CallError::Failed(Failure::new(FailureKind::TimedOut, text).into())
        }
        PermitError::Invalid(invalid) => CallError::Invalid(invalid),
        PermitError::Failed(failure) => CallError::Failed(failure),
        PermitError::Unknown(failure) => CallError::Unknown(failure),
    })
}

/// Fails if one of these permits has ended.
pub(crate) fn all_held(permits: &[&Permit]) -> Result<(), PermitError> {
    match permits.iter().find(|permit| permit.is_lost()) {
        Some(lost) => Err(PermitError::Lost(Lost::of(&lost.identity))),
        None => Ok(()),
    }
}

/// Refreshes these permits on request of the user.
pub(crate) async fn refresh_all(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    mode: Mode,
) -> Result<(), PermitError> {
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.key()));
    span.run(refresh_together(permits, lease_ms, None, mode)).await
}

/// Refreshes these permits in one packet for each gate, with their own leases or with `lease_ms`. If one of
/// them is lost, it refreshes none. Waits for the replies until `until` at most.
pub(crate) async fn refresh_together(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
    mode: Mode,
) -> Result<(), PermitError> {
    if let Some(first) = permits.first() {
        first.shared.servers.check_process()?;
    }
    all_held(permits)?;
    let until = permits.iter().filter_map(|permit| permit.deadline()).chain(until).min();
    let mut all = Ok(());
    for permits in permits.chunk_by(|one, next| one.is_of_same_gate(next)) {
        let refreshed = refresh_packet(permits, lease_ms, until, mode).await;
        all = all.and(refreshed.into_iter().collect());
    }
    all
}

/// Refreshes permits of any gates. Returns a result for each.
async fn refresh_each(permits: &[&Permit], mode: Mode) -> Vec<Result<(), PermitError>> {
    let mut results = Vec::with_capacity(permits.len());
    for of_one_gate in permits.chunk_by(|one, next| one.is_of_same_gate(next)) {
        for packet in of_one_gate.chunks(BATCH) {
            let Some(shared) = packet.first().map(|permit| &permit.shared) else { continue };
            if let Err(error) = shared.servers.check_process() {
                results.extend(packet.iter().map(|_| Err(error.clone().into())));
                continue;
            }
            let span = Operation::Refresh.on(packet.iter().map(|permit| permit.key()));
            let work = async {
                let alive: Vec<&Permit> = packet.iter().copied().filter(|permit| !permit.is_lost()).collect();
                let ends = alive.iter().filter_map(|permit| permit.deadline());
                let until = ends.min().map(|end| end.max(shared.now() + SHORTEST_REFRESH));
                let refreshed = refresh_packet(&alive, None, until, mode).await;
                let mut refreshed = alive.iter().zip(refreshed).peekable();
                let outcomes = packet.iter().map(|permit| {
                    match refreshed.next_if(|(other, _)| other.number == permit.number) {
                        Some((_, outcome)) => outcome,
                        None => Err(PermitError::Lost(Lost::of(&permit.identity))),
                    }
                });
                let first = results.len();
                results.extend(outcomes);
                results.iter().skip(first).find(|result| result.is_err()).cloned().unwrap_or(Ok(()))
            };
            let _ = span.run(work).await; // the result is in `results`
        }
    }
    results
}

/// Refreshes these permits, all of one gate, in one packet. Returns a result for each.
async fn refresh_packet(
    permits: &[&Permit],
    lease_ms: Option<u64>,
    until: Option<Instant>,
    mode: Mode,
) -> Vec<Result<(), PermitError>> {
    let Some(first) = permits.first() else {
        return Vec::new();
    };
    let permits: Vec<_> = permits.iter().map(|permit| (permit.number, &*permit.identity)).collect();
    first.shared.permits.refresh(&permits, lease_ms, until, mode).await
}

impl Drop for Permit {
    fn drop(&mut self) {
        release::post(self);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("id", &self.id())
            .field("permits", &self.permits())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fence {}, ", self.id(), self.fence())?;
        match self.remaining() {
            None => f.write_str("permanent)"),
            Some(left) if left.is_zero() => f.write_str("lost)"),
            Some(left) => write!(f, "{left:.1?} left)"),
        }
    }
}
