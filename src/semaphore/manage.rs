//! Inspects a semaphore, and changes it for all callers.

use super::Semaphore;
use super::inspection::Inspection;
use crate::engine::mode::{Mode, block};
use crate::error::{CallError, Invalid};
use crate::trace::Operation;
use luagate_core::semaphore::{Inspect, Release, ReleaseAnswer, Resize, ResizeAnswer, State};

/// How many holders and waiters an inspection lists.
pub(crate) const LISTED: u32 = 1_000;

/// The result of a [`resize`](Semaphore::resize).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The limit is set. A lower limit revokes no permit: `in_use` may exceed it until enough permits are
    /// released.
    Resized {
        /// The previous limit. `None`: none was stored.
        old: Option<u32>,
        /// The number of permits in use.
        in_use: u32,
    },
    /// The limit in force was not the expected one. It was not changed.
    Unchanged {
        /// The limit in force. `None`: none is stored.
        current: Option<u32>,
    },
}

/// The result of a [`revoke`](Semaphore::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The id was a holder, and holds nothing now.
    Held,
    /// The id was a waiter. Its wait ends with
    /// [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked).
    Waited,
    /// The id neither held nor waited.
    Nothing,
}

/// The limit that a script returned. 0: none is stored.
fn stored(limit: u32) -> Option<u32> {
    Some(limit).filter(|limit| *limit > 0)
}

impl Semaphore {
    /// Takes away what `id` has: its permits, or its place in line. The id can be any that a client has
    /// chosen. Blocks for one round trip.
    ///
    /// A holder notices it at its next refresh. Until then, only the fence and
    /// [`HOLDS`](crate::scripts::HOLDS) prevent its writes. A waiter receives a message, and its wait ends
    /// with
    /// [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked). If the message is lost, or a proxy
    /// does not deliver messages, the waiter asks again within 5 s and gets its place in line again.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    #[doc(alias = "force_unlock")]
    pub fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        block(|mode| self.revoke_by(id, mode))
    }

    /// As [`revoke`](Semaphore::revoke), without blocking.
    ///
    /// # Errors
    /// As [`revoke`](Semaphore::revoke).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn revoke_async(&self, id: &str) -> Result<Revoked, CallError> {
        self.revoke_by(id, Mode::Async).await
    }

    async fn revoke_by(&self, id: &str, mode: Mode) -> Result<Revoked, CallError> {
        let keys = self.settings.keys()?;
        let revoke = async {
            let release = Release { keys, id, keep: 0, fence: None };
            Ok(match self.shared.call(&release, mode).await? {
                ReleaseAnswer::Released { .. } => Revoked::Held,
                ReleaseAnswer::Cancelled => Revoked::Waited,
                ReleaseAnswer::Gone => Revoked::Nothing,
            })
        };
        Operation::Revoke.on([keys.meta.as_ref()]).tell(revoke).await
    }

    /// Sets the limit for all callers and pins it: it no longer expires with the state. A higher limit grants
    /// permits to the waiters at once. A lower limit revokes no permit. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a limit of 0 or above 2^31-1. Nothing is changed then.
    pub fn resize(&self, limit: u32) -> Result<Resized, CallError> {
        block(|mode| self.set_limit(limit, None, mode))
    }

    /// As [`resize`](Semaphore::resize), without blocking.
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn resize_async(&self, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, None, Mode::Async).await
    }

    /// As [`resize`](Semaphore::resize), but only if `expected` is the limit in force. `None`: only if no
    /// limit is stored.
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    pub fn compare_and_resize(&self, expected: Option<u32>, limit: u32) -> Result<Resized, CallError> {
        block(|mode| self.set_limit(limit, Some(expected.unwrap_or(0)), mode))
    }

    /// As [`compare_and_resize`](Semaphore::compare_and_resize), without blocking.
    ///
    /// # Errors
    /// As [`compare_and_resize`](Semaphore::compare_and_resize).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn compare_and_resize_async(
        &self,
        expected: Option<u32>,
        limit: u32,
    ) -> Result<Resized, CallError> {
        self.set_limit(limit, Some(expected.unwrap_or(0)), Mode::Async).await
    }

    /// Removes the pin from the limit. If there are no holders and no waiters, the limit is removed at once,
    /// and the next caller's declared limit applies. Otherwise the limit in force stays until the state
    /// expires, one minute after the last lease. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    pub fn unpin_limit(&self) -> Result<(), CallError> {
        block(|mode| self.unpin_by(mode))
    }

    /// As [`unpin_limit`](Semaphore::unpin_limit), without blocking.
    ///
    /// # Errors
    /// As [`unpin_limit`](Semaphore::unpin_limit).
    ///
    /// # Cancel safety
    /// If this is dropped, the server may have run the call or not. It can be repeated.
    pub async fn unpin_limit_async(&self) -> Result<(), CallError> {
        self.unpin_by(Mode::Async).await
    }

    async fn unpin_by(&self, mode: Mode) -> Result<(), CallError> {
        let keys = self.settings.keys()?;
        let unpin = async {
            self.shared.call(&Resize { keys, limit: 0, expected: None }, mode).await?;
            Ok(())
        };
        Operation::UnpinLimit.on([keys.meta.as_ref()]).run(unpin).await
    }

    async fn set_limit(&self, limit: u32, expected: Option<u32>, mode: Mode) -> Result<Resized, CallError> {
        if limit == 0 {
            let why =
                "0 is out of range. Accepted: 1 to 2147483647. To let a limit expire, use `unpin_limit`";
            return Err(Invalid::new("limit", why).into());
        }
        let keys = self.settings.keys()?;
        let resize = async {
            let resize = Resize { keys, limit, expected };
            Ok(match self.shared.call(&resize, mode).await? {
                ResizeAnswer::Resized { old, in_use, .. } => Resized::Resized { old: stored(old), in_use },
                ResizeAnswer::Unchanged { current, .. } => Resized::Unchanged { current: stored(current) },
            })
        };
        Operation::Resize.on([keys.meta.as_ref()]).tell(resize).await
    }

    /// Returns the number of permits that are free now. Waiters are not subtracted. Blocks for one round
    /// trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated. [`CallError::Invalid`] if no limit is stored and this caller
    /// declares none.
    pub fn available_permits(&self) -> Result<u32, CallError> {
        block(|mode| self.free(mode))
    }

    /// As [`available_permits`](Semaphore::available_permits), without blocking.
    ///
    /// # Errors
    /// As [`available_permits`](Semaphore::available_permits).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn available_permits_async(&self) -> Result<u32, CallError> {
        self.free(Mode::Async).await
    }

    async fn free(&self, mode: Mode) -> Result<u32, CallError> {
        let state = self.look(0, 0, mode).await?;
        match (state.limit, self.settings.limit) {
            (0, 0) => {
                let why =
                    "the call passes no limit and none is stored. Pass a limit, or store one with `resize`";
                Err(Invalid::new("no limit", why).into())
            }
            (0, declared) => Ok(declared),
            (stored, _) => Ok(stored.saturating_sub(state.in_use)),
        }
    }

    /// Returns the holders and the waiters: the first 1,000 of each, and the total numbers.
    /// [`inspect_page`](crate::admin::inspect_page) returns the others. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]. The call can be repeated.
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        block(|mode| self.inspect_by(0, LISTED, mode))
    }

    /// As [`inspect`](Semaphore::inspect), without blocking.
    ///
    /// # Errors
    /// As [`inspect`](Semaphore::inspect).
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect_async(&self) -> Result<Inspection, CallError> {
        self.inspect_by(0, LISTED, Mode::Async).await
    }

    /// Reads the state, with at most `count` holders and waiters, without the first `offset` of each.
    pub(crate) async fn inspect_by(
        &self,
        offset: u32,
        count: u32,
        mode: Mode,
    ) -> Result<Inspection, CallError> {
        self.look(offset, count, mode).await.map(Inspection::new)
    }

    /// Whether a permit is in use.
    pub(crate) async fn is_in_use(&self, mode: Mode) -> Result<bool, CallError> {
        Ok(self.look(0, 0, mode).await?.in_use > 0)
    }

    /// Reads the state of the semaphore, with `count` holders and `count` waiters at most.
    pub(crate) async fn look(&self, offset: u32, count: u32, mode: Mode) -> Result<State, CallError> {
        let keys = self.settings.keys()?;
        let inspect = Inspect { keys, offset, count };
        let span = Operation::Inspect.on([keys.meta.as_ref()]);
        span.run(async { Ok(self.shared.call(&inspect, mode).await?) }).await
    }
}
