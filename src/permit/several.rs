//! Refreshes and releases many permits at once. A loop would take a round trip for each.

use super::Permit;
use super::refresh::refresh_each;
use super::release::{ReleaseError, Released, give_back};
use crate::engine::mode::{Mode, block};
use crate::error::{CallError, RefreshError};
use crate::trace::Operation;
use std::time::Duration;

/// The maximum number of permits in a packet.
const BATCH: usize = 100;

/// The minimum time to wait for the reply to a packet, even if one of its permits ends earlier.
const LEAST: Duration = Duration::from_millis(50);

impl Permit {
    /// Starts a new lease for each of these permits, as [`refresh`](Permit::refresh) does. Returns a result for each,
    /// in the same order. The permits can be of one semaphore or of several. Blocks for one round trip for
    /// each 100 permits on a server.
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
    /// For each permit as [`refresh`](Permit::refresh). A failure of one does not prevent the refresh of the others.
    pub fn refresh_each<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> Vec<Result<(), RefreshError>> {
        let permits: Vec<&Permit> = permits.into_iter().collect();
        block(|mode| refresh_each_of(&permits, mode))
    }

    /// As [`refresh_each`](Permit::refresh_each), without blocking.
    ///
    /// # Errors
    /// As [`refresh_each`](Permit::refresh_each).
    ///
    /// # Cancel safety
    /// As [`refresh_async`](Permit::refresh_async).
    pub async fn refresh_each_async<'a>(
        permits: impl IntoIterator<Item = &'a Permit>,
    ) -> Vec<Result<(), RefreshError>> {
        let permits: Vec<&Permit> = permits.into_iter().collect();
        refresh_each_of(&permits, Mode::Async).await
    }

    /// Releases these permits, as [`release`](Permit::release) does. Returns a result for each, in the same order.
    /// The permits can be of one semaphore or of several. Blocks for one round trip for each 100 permits on a
    /// server.
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
    /// [`ReleaseError`](crate::errors::ReleaseError) for each permit whose release the server did not confirm. It
    /// contains the permit, so that the caller can try again. Dropping it does not block: the release continues in the
    /// background. A failure of one does not prevent the release of the others.
    pub fn release_each(permits: impl IntoIterator<Item = Permit>) -> Vec<Result<Released, ReleaseError>> {
        let permits: Vec<Permit> = permits.into_iter().collect();
        block(|mode| release_each_of(permits, mode))
    }

    /// As [`release_each`](Permit::release_each), without blocking.
    ///
    /// # Errors
    /// As [`release_each`](Permit::release_each).
    ///
    /// # Cancel safety
    /// If this is dropped, all of them are released in the background.
    pub async fn release_each_async(permits: impl IntoIterator<Item = Permit>) -> Vec<Result<Released, ReleaseError>> {
        let permits: Vec<Permit> = permits.into_iter().collect();
        release_each_of(permits, Mode::Async).await
    }
}

/// Refreshes permits of any gates. Returns a result for each.
async fn refresh_each_of(permits: &[&Permit], mode: Mode) -> Vec<Result<(), RefreshError>> {
    let of_one_gate = permits.chunk_by(|one, next| one.is_of_same_gate(next));
    let packets: Vec<&[&Permit]> = of_one_gate.flat_map(|permits| permits.chunks(BATCH)).collect();
    let mut outcomes = Vec::with_capacity(permits.len());
    for packet in packets {
        outcomes.extend(refresh_packet(packet, mode).await);
    }
    outcomes
}

/// Releases permits of any gates. Returns a result for each.
async fn release_each_of(permits: Vec<Permit>, mode: Mode) -> Vec<Result<Released, ReleaseError>> {
    let mut results = Vec::with_capacity(permits.len());
    let of_one_gate = permits.chunk_by(Permit::is_of_same_gate);
    for packet in of_one_gate.flat_map(|permits| permits.chunks(BATCH)) {
        results.extend(release_packet(packet, mode).await);
    }
    let results = permits.into_iter().zip(results);
    results.map(|(permit, result)| result.map_err(|error| ReleaseError::new(permit, error))).collect()
}

/// Refreshes permits of one gate, in one packet.
async fn refresh_packet(permits: &[&Permit], mode: Mode) -> Vec<Result<(), RefreshError>> {
    let Some(shared) = permits.first().map(|permit| &permit.shared) else {
        return Vec::new();
    };
    if let Err(error) = shared.check_process() {
        return permits.iter().map(|_| Err(error.clone().into())).collect();
    }
    let mut outcomes = Vec::with_capacity(permits.len());
    let span = Operation::Refresh.on(permits.iter().map(|permit| permit.state.key()));
    let work = async {
        let alive = permits.iter().copied().filter(|permit| !permit.is_lost());
        let alive: Vec<&Permit> = alive.collect();
        let ends = alive.iter().filter_map(|permit| permit.state.deadline());
        let until = ends.min().map(|end| end.max(shared.now() + LEAST));
        let refreshed = refresh_each(&alive, None, until, mode).await;
        let mut refreshed = alive.iter().zip(refreshed).peekable();
        outcomes.extend(permits.iter().map(|permit| {
            match refreshed.next_if(|(other, _)| other.state.number == permit.state.number) {
                Some((_, outcome)) => outcome,
                None => Err(RefreshError::Lost(permit.state.identity.lost())),
            }
        }));
        let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        error.map_or(Ok(()), |error| Err(error.clone()))
    };
    let _ = span.run_async(work).await; // the result is in `outcomes`
    outcomes
}

/// Releases permits of one gate, in one packet. Returns a result for each.
async fn release_packet(permits: &[Permit], mode: Mode) -> Vec<Result<Released, CallError>> {
    match permits.first().map(|permit| permit.shared.check_process()) {
        Some(Err(error)) => vec![Err(error); permits.len()],
        _ => give_back(permits, mode).await,
    }
}
