//! Refreshes and releases many permits at once. A loop would take a round trip for each.

use super::Permit;
use super::refresh::refresh_each;
use super::release::{ReleaseError, Released, Unconfirmed, give_back};
use crate::error::{CallError, RefreshError};
use crate::trace::Operation;
use std::time::Duration;

/// The maximum number of permits in a packet.
const BATCH: usize = 100;

/// The minimum time to wait for the reply to a packet, even if one of its permits ends earlier.
const LEAST: Duration = Duration::from_millis(50);

impl Permit {
    /// Starts a new lease for each of these permits, as [`refresh`](Permit::refresh) does. Returns a result for each,
    /// in the same order. Accepts permits and guards, of one semaphore or of several. Blocks for one round trip for
    /// each 100 permits on a server.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let market = gate.semaphore("market", 50);
    /// let permits = vec![market.acquire()?, market.acquire()?];
    /// for (permit, refreshed) in permits.iter().zip(luagate::Permit::refresh_all(&permits)) {
    ///     if let Err(error) = refreshed {
    ///         eprintln!("{permit}: {error}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// For each permit as [`refresh`](Permit::refresh). A failure of one does not prevent the refresh of the others.
    pub fn refresh_all<'a, P: AsRef<Permit> + 'a>(
        permits: impl IntoIterator<Item = &'a P>,
    ) -> Vec<Result<(), RefreshError>> {
        let permits: Vec<&Permit> = permits.into_iter().map(AsRef::as_ref).collect();
        let of_one_gate = permits.chunk_by(|one, next| one.is_of_same_gate(next));
        let packets = of_one_gate.flat_map(|permits| permits.chunks(BATCH));
        packets.flat_map(refresh_packet).collect()
    }

    /// Releases these permits, as [`release`](Permit::release) does. Returns a result for each, in the same order.
    /// Accepts permits and guards, of one semaphore or of several. Blocks for one round trip for each 100 permits on a
    /// server.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), luagate::Error> {
    /// # let gate = luagate::Gate::open("redis://127.0.0.1/")?;
    /// let market = gate.semaphore("market", 50);
    /// let permits = vec![market.acquire()?, market.acquire()?];
    /// let released: Result<Vec<_>, _> = luagate::Permit::release_all(permits).into_iter().collect();
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError`](crate::errors::ReleaseError) for each permit whose release the server did not confirm. It
    /// contains the permit, so that the caller can try again. Dropping it does not block: the release continues in the
    /// background. A failure of one does not prevent the release of the others.
    pub fn release_all<P: Into<Permit>>(permits: impl IntoIterator<Item = P>) -> Vec<Result<Released, ReleaseError>> {
        let mut permits: Vec<Permit> = permits.into_iter().map(Into::into).collect();
        let of_one_gate = permits.chunk_by_mut(Permit::is_of_same_gate);
        let packets = of_one_gate.flat_map(|permits| permits.chunks_mut(BATCH));
        let errors: Vec<Option<CallError>> = packets.flat_map(release_packet).collect();
        let outcomes = permits.into_iter().zip(errors);
        let outcomes = outcomes.map(|(mut permit, error)| match error {
            None if permit.state.gone => Ok(Released::Gone),
            None => Ok(Released::Released),
            Some(error) => {
                permit.tried = true;
                Err(ReleaseError::new(permit, error))
            }
        });
        outcomes.collect()
    }
}

/// Refreshes permits of one gate, in one packet.
fn refresh_packet(permits: &[&Permit]) -> Vec<Result<(), RefreshError>> {
    let Some(shared) = permits.first().map(|permit| &permit.shared) else {
        return Vec::new();
    };
    if let Err(error) = shared.check_process() {
        return permits.iter().map(|_| Err(error.clone().into())).collect();
    }
    let mut outcomes = Vec::with_capacity(permits.len());
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    // The result is in `outcomes`.
    let _ = span.run(|| {
        let alive = permits.iter().copied().filter(|permit| !permit.is_lost());
        let alive: Vec<&Permit> = alive.collect();
        let ends = alive.iter().filter_map(|permit| permit.state.deadline());
        let until = ends.min().map(|end| end.max(shared.now() + LEAST));
        let refreshed = refresh_each(shared, &alive, None, until);
        let mut refreshed = alive.iter().zip(refreshed).peekable();
        outcomes.extend(permits.iter().map(|permit| {
            match refreshed.next_if(|(other, _)| other.state.number == permit.state.number) {
                Some((_, outcome)) => outcome,
                None => Err(RefreshError::Lost(permit.state.identity.lost())),
            }
        }));
        let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        error.map_or(Ok(()), |error| Err(error.clone()))
    });
    outcomes
}

/// Releases permits of one gate, in one packet. Returns the error for each permit that was not released.
fn release_packet(permits: &mut [Permit]) -> Vec<Option<CallError>> {
    let mut errors = vec![None; permits.len()];
    if let Some(Err(error)) = permits.first().map(|permit| permit.shared.check_process()) {
        errors.fill(Some(error));
        return errors;
    }
    let mut unconfirmed = Vec::new();
    // The result is in `unconfirmed`.
    let _ = give_back(permits, None, &mut unconfirmed);
    for Unconfirmed { index, error, .. } in unconfirmed {
        if let Some(first) = errors.get_mut(index) {
            *first = Some(error);
        }
    }
    errors
}
