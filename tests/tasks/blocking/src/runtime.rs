//! The runtime of all gates of a process, and blocking until a future is ready.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Builder, Runtime};

struct Shared {
    runtime: Runtime,
    process: u32,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    // As many as there are tests at a time: one that floods its gate must not delay the gates of others.
    runtime: Builder::new_multi_thread().worker_threads(8).enable_all().build().expect("a runtime"),
    process: std::process::id(),
});

/// Whether this process is a forked child of the one that started the runtime.
pub(crate) fn is_forked() -> bool {
    SHARED.process != std::process::id()
}

/// Blocks until the future is ready. In a forked child, which has no threads of the runtime, it must be ready at once.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    if !is_forked() {
        return SHARED.runtime.block_on(future);
    }
    let _runtime = SHARED.runtime.enter();
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a call in a forked child does not return at once"),
    }
}
