//! Refreshes and releases many permits at once. A loop would take a round trip for each.

use super::{Permit, give_back, refresh_each};
use crate::error::{CallError, RefreshError};
use crate::permit::{ReleaseError, Released};
use crate::trace::Operation;
use std::time::Duration;

/// The maximum number of permits in a packet.
const BATCH: usize = 100;

/// The minimum time to wait for the reply to a packet, even if one of its permits ends earlier.
const LEAST: Duration = Duration::from_millis(50);

impl Permit {
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
        let permits: Vec<&Permit> = permits.into_iter().map(AsRef::as_ref).collect();
        let mut outcomes = Vec::with_capacity(permits.len());
        for permits in permits.chunk_by(|one, next| one.is_of_same_gate(next)).flat_map(|permits| permits.chunks(BATCH))
        {
            outcomes.extend(refresh_packet(permits).await);
        }
        outcomes
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
        let mut permits: Vec<Permit> = permits.into_iter().map(Into::into).collect();
        let mut errors = Vec::with_capacity(permits.len());
        for permits in permits.chunk_by_mut(Permit::is_of_same_gate).flat_map(|permits| permits.chunks_mut(BATCH)) {
            errors.extend(release_packet(permits).await);
        }
        let outcomes = permits.into_iter().zip(errors).map(|(permit, error)| match error {
            None if permit.state.gone => Ok(Released::Gone),
            None => Ok(Released::Released),
            Some(error) => Err(ReleaseError::new(permit, error)),
        });
        outcomes.collect()
    }
}

/// Refreshes permits of one gate, in one packet.
async fn refresh_packet(permits: &[&Permit]) -> Vec<Result<(), RefreshError>> {
    let Some(shared) = permits.first().map(|permit| &permit.shared) else {
        return Vec::new();
    };
    if let Err(error) = shared.check_process() {
        return permits.iter().map(|_| Err(error.clone().into())).collect();
    }
    let mut outcomes = Vec::with_capacity(permits.len());
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    // The result is in `outcomes`.
    let _ = span
        .run_async(async {
            let alive: Vec<&Permit> = permits.iter().copied().filter(|permit| !permit.is_lost()).collect();
            let ends = alive.iter().filter_map(|permit| permit.state.deadline());
            let until = ends.min().map(|end| end.max(shared.now() + LEAST));
            let refreshed = refresh_each(&alive, None, until).await;
            let mut refreshed = alive.iter().zip(refreshed).peekable();
            outcomes.extend(permits.iter().map(|permit| {
                match refreshed.next_if(|(other, _)| other.state.number == permit.state.number) {
                    Some((_, outcome)) => outcome,
                    None => Err(RefreshError::Lost(permit.state.identity.lost())),
                }
            }));
            let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
            error.map_or(Ok(()), |error| Err(error.clone()))
        })
        .await;
    outcomes
}

/// Releases permits of one gate, in one packet. Returns the error for each permit that was not released.
async fn release_packet(permits: &mut [Permit]) -> Vec<Option<CallError>> {
    match permits.first().map(|permit| permit.shared.check_process()) {
        Some(Err(error)) => vec![Some(error); permits.len()],
        _ => give_back(permits).await,
    }
}
