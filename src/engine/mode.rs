//! Whether an operation blocks its thread or wakes its task.
//!
//! An operation is one `async fn`. It waits only in the primitives of the engine, which get its [`Mode`]. In
//! a blocking operation a primitive blocks inside of its `poll`, and is always ready. So [`block`] polls the
//! operation once.

use crate::foreign::Foreign;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// How the primitives of an operation wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// They block the calling thread.
    Blocking(MayBlock),
    /// They return `Pending`, and wake the task later.
    Async,
    /// As `Async`, for work of the gate's own thread: its waker is of this crate.
    Worker,
}

impl Mode {
    /// Wakes what waits in this mode.
    pub(super) fn wake(self, foreign: &Foreign, waker: Waker) {
        match self {
            Mode::Worker => waker.wake(),
            Mode::Async | Mode::Blocking(_) => foreign.wake(waker),
        }
    }
}

/// The permission to block the calling thread. Every function of this crate that blocks takes it, and only
/// this module makes it. So an operation that runs in a task cannot call such a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayBlock(());

/// Runs the work of a thread that belongs to the gate, and may block.
pub(super) fn in_own_thread<T>(work: impl FnOnce(MayBlock) -> T) -> T {
    work(MayBlock(()))
}

/// Runs an operation, and blocks until its result is here.
pub(crate) fn block<F: Future>(operation: impl FnOnce(Mode) -> F) -> F::Output {
    block_with(MayBlock(()), operation)
}

/// As `block`, for a caller that may block.
pub(super) fn block_with<F: Future>(may: MayBlock, operation: impl FnOnce(Mode) -> F) -> F::Output {
    match pin!(operation(Mode::Blocking(may))).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a primitive of a blocking operation is ready when it is polled"),
    }
}
