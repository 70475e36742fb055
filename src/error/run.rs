//! The error of work that runs under a permit.

use super::{AcquireError, Error, Lost, one_of};
use std::fmt;

one_of! {
    /// Why work under a permit has no result: see [`Semaphore::run`](crate::Semaphore::run).
    RunError {
        /// There was no permit in time. The work did not run.
        NotAcquired(AcquireError) "",
        /// The permit was lost before the work ended. The work was dropped at an `await`, or it ended after the loss.
        /// Another caller may have held a permit at the same time.
        Lost(Lost) "",
    }
}

impl From<AcquireError> for RunError {
    fn from(error: AcquireError) -> RunError {
        RunError::NotAcquired(error)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Error {
        match error {
            RunError::NotAcquired(error) => error.into(),
            RunError::Lost(lost) => Error::Lost(lost),
        }
    }
}
