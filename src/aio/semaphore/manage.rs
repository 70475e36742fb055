//! Inspects a semaphore, and changes it for all callers.

use super::Semaphore;
use crate::error::{CallError, Invalid};
use crate::inspection::Inspection;
use crate::protocol::id;
use crate::protocol::semaphore::{Inspect, Release, ReleaseAnswer, Resize, ResizeAnswer, State};
use crate::semaphore::{Resized, Revoked};
use crate::trace::Operation;

impl Semaphore {
    /// Takes away what `id` has: its permits, or its place in line.
    ///
    /// A holder notices it at its next refresh. Until then, only the fence and [`HOLDS`](crate::scripts::HOLDS) prevent
    /// its writes. A waiter receives a message, and its wait ends with
    /// [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked). If the message is lost, or a proxy does not
    /// deliver messages, the waiter asks again within 5 s and gets its place in line again.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        let keys = self.settings.keys()?;
        let revoke = async {
            id::check_id(id)?;
            let release = Release { keys, id, keep: 0, fence: None };
            Ok(match self.shared.call(&release).await? {
                ReleaseAnswer::Released { .. } => Revoked::Held,
                ReleaseAnswer::Cancelled => Revoked::Waited,
                ReleaseAnswer::Gone => Revoked::Nothing,
            })
        };
        Operation::Revoke.on([keys.meta.as_ref()]).tell_async(revoke).await
    }

    /// Sets the limit for all callers and pins it: it no longer expires with the state. A higher limit grants permits
    /// to the waiters at once. A lower limit revokes no permit.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a limit of 0 or above 2^31-1. Nothing is changed then.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn resize(&self, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, None).await
    }

    /// As [`resize`](Semaphore::resize), but only if `expected` is the limit in force (0: no limit is stored).
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn compare_and_resize(&self, expected: u32, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, Some(expected)).await
    }

    /// Removes the pin from the limit. If there are no holders and no waiters, the limit is removed at once, and the
    /// next caller's declared limit applies. Otherwise the limit in force stays until the state expires, one minute
    /// after the last lease.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn unpin(&self) -> Result<(), CallError> {
        let keys = self.settings.keys()?;
        let unpin = async {
            self.shared.call(&Resize { keys, limit: 0, expected: None }).await?;
            Ok(())
        };
        Operation::Unpin.on([keys.meta.as_ref()]).run_async::<(), CallError>(unpin).await
    }

    async fn set_limit(&self, limit: u32, expected: Option<u32>) -> Result<Resized, CallError> {
        if limit == 0 {
            let why = "0 is out of range. Accepted: 1 to 2147483647. To let a limit expire, use `unpin`";
            return Err(Invalid::new("limit", why).into());
        }
        let keys = self.settings.keys()?;
        let resize = async {
            let resize = Resize { keys, limit, expected };
            Ok(match self.shared.call(&resize).await? {
                ResizeAnswer::Resized { old, in_use, .. } => Resized::Resized { old, in_use },
                ResizeAnswer::Unchanged { current, .. } => Resized::Unchanged { current },
            })
        };
        Operation::Resize.on([keys.meta.as_ref()]).tell_async(resize).await
    }

    /// Returns the number of permits that are free now. Waiters are not subtracted.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated. [`CallError::Invalid`] if no limit is stored and this caller declares
    /// none.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn available_permits(&self) -> Result<u32, CallError> {
        let state = self.look(0, 0).await?;
        match (state.limit, self.settings.limit()) {
            (0, 0) => {
                let why = "this handle declares no limit and none is stored. Store one with `resize`";
                Err(Invalid::new("no limit", why).into())
            }
            (0, declared) => Ok(declared),
            (stored, _) => Ok(stored.saturating_sub(state.in_use)),
        }
    }

    /// Returns the holders and the waiters: the first 1,000 of each, and the total numbers.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect(&self) -> Result<Inspection, CallError> {
        self.inspect_page(0, 1_000).await
    }

    /// Returns at most `count` (up to 1,000) holders and as many waiters, each list without its first `offset` entries.
    /// Two pages show two different instants.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a count above 1,000.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect_page(&self, offset: u32, count: u32) -> Result<Inspection, CallError> {
        self.look(offset, count).await.map(Inspection::new)
    }

    /// Reads the state of the semaphore, with `count` holders and `count` waiters at most.
    pub(in crate::aio) async fn look(&self, offset: u32, count: u32) -> Result<State, CallError> {
        let keys = self.settings.keys()?;
        let inspect = Inspect { keys, offset, count };
        let span = Operation::Inspect.on([keys.meta.as_ref()]);
        span.run_async(self.shared.call(&inspect)).await
    }
}
