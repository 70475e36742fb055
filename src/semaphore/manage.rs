//! Looking at a semaphore, and changing it for everybody.

use super::Semaphore;
use crate::error::{CallError, Invalid};
use crate::inspection::Inspection;
use crate::protocol::id;
use crate::protocol::semaphore::{Inspect, Release, ReleaseAnswer, Resize, ResizeAnswer, State};
use crate::trace::{Operation, words};

/// What came of a [`resize`](Semaphore::resize).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The limit is set. Shrinking takes from nobody: `in_use` may be above it until enough came back.
    Resized {
        /// The limit before; 0: none was stored.
        old: u32,
        /// How many permits are in use.
        in_use: u32,
    },
    /// Another limit than the expected one was in force, and still is.
    Unchanged {
        /// The limit in force; 0: none is stored.
        current: u32,
    },
}

/// What came of a [`revoke`](Semaphore::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It held, and holds no more.
    Held,
    /// It waited in line, and its wait ends with [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked).
    Waited,
    /// It had nothing.
    Nothing,
}

words! {
    Revoked { Held "released", Waited "cancelled", Nothing "gone" }
    Resized { Resized "resized", Unchanged "unchanged" }
}

impl Semaphore {
    /// Takes away whatever `id` has: its permits, or its place in line. Blocks for one round trip.
    ///
    /// A holder learns of it at its next refresh; until then only the fence and [`HOLDS`](crate::scripts::HOLDS) keep it out. A
    /// waiter is sent a message, which ends its wait with [`AcquireError::Revoked`](crate::errors::AcquireError::Revoked). Where that message is lost, or the waiter
    /// is behind a proxy without messages, it asks again within 5 s and has its place back.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn revoke(&self, id: &str) -> Result<Revoked, CallError> {
        let keys = self.keys()?;
        Operation::Revoke.on([keys.meta.as_ref()]).tell(|| {
            id::check_id(id)?;
            let release = Release { keys, id, keep: 0, fence: None };
            Ok(match self.shared.call(&release)? {
                ReleaseAnswer::Released { .. } => Revoked::Held,
                ReleaseAnswer::Cancelled => Revoked::Waited,
                ReleaseAnswer::Gone => Revoked::Nothing,
            })
        })
    }

    /// Sets the limit for everybody and pins it, so that it no longer expires with the state. Growing hands over to
    /// whoever waits; shrinking takes from nobody. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a limit of 0 or above 2^31-1; nothing was changed then.
    pub fn resize(&self, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, None)
    }

    /// As [`resize`](Semaphore::resize), but only if `expected` is in force now (0: no limit is stored).
    ///
    /// # Errors
    /// As [`resize`](Semaphore::resize).
    pub fn compare_and_resize(&self, expected: u32, limit: u32) -> Result<Resized, CallError> {
        self.set_limit(limit, Some(expected))
    }

    /// Forgets a pinned limit. Where nobody holds or waits that is at once, and the limit that the next caller declares counts.
    /// Otherwise the limit in force stays until the state expires, a minute after the last lease. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn unpin(&self) -> Result<(), CallError> {
        let keys = self.keys()?;
        Operation::Unpin.on([keys.meta.as_ref()]).run(|| {
            self.shared.call(&Resize { keys, limit: 0, expected: None })?;
            Ok(())
        })
    }

    fn set_limit(&self, limit: u32, expected: Option<u32>) -> Result<Resized, CallError> {
        if limit == 0 {
            let why = "0 is out of range. Accepted: 1 to 2147483647. To let a limit expire, use `unpin`";
            return Err(Invalid::new("limit", why).into());
        }
        let keys = self.keys()?;
        Operation::Resize.on([keys.meta.as_ref()]).tell(|| {
            let resize = Resize { keys, limit, expected };
            Ok(match self.shared.call(&resize)? {
                ResizeAnswer::Resized { old, in_use, .. } => Resized::Resized { old, in_use },
                ResizeAnswer::Unchanged { current, .. } => Resized::Unchanged { current },
            })
        })
    }

    /// How many permits are free now, whoever waits for them. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again. [`CallError::Invalid`] where no limit is stored and none declared.
    pub fn available_permits(&self) -> Result<u32, CallError> {
        let state = self.look(0, 0)?;
        match (state.limit, self.limit) {
            (0, 0) => {
                let why = "this handle declares no limit and none is stored. Store one with `resize`";
                Err(Invalid::new("no limit", why).into())
            }
            (0, declared) => Ok(declared),
            (stored, _) => Ok(stored.saturating_sub(state.in_use)),
        }
    }

    /// Who holds and who waits: the first 1,000 of each, and how many there are. Blocks for one round trip.
    ///
    /// # Errors
    /// [`CallError`]; the call may be made again.
    pub fn inspect(&self) -> Result<Inspection, CallError> {
        self.inspect_page(0, 1_000)
    }

    /// At most `count` (up to 1,000) holders and waiters, each from the `offset`-th on. Blocks for one round trip; two
    /// pages are of two instants.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a count above 1,000.
    pub fn inspect_page(&self, offset: u32, count: u32) -> Result<Inspection, CallError> {
        self.look(offset, count).map(Inspection::new)
    }

    /// A look at the semaphore, with `count` holders and waiters at most.
    pub(crate) fn look(&self, offset: u32, count: u32) -> Result<State, CallError> {
        let keys = self.keys()?;
        let inspect = Inspect { keys, offset, count };
        let span = Operation::Inspect.on([keys.meta.as_ref()]);
        span.run(|| self.shared.call(&inspect))
    }
}
