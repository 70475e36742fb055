//! A forked child of a test.

use crate::support::{SOON, signal};

use rustix::process::{Signal, getpid, kill_process};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

/// Forks, and returns the text of what `work` returns in the child: `None` if the child panicked, or hung and
/// was killed.
///
/// The child kills itself at its end: `std::process::exit` takes a lock that another thread may have held at
/// the fork, when it began or ended, and then never returns.
pub fn in_child<T: ToString>(work: impl FnOnce() -> T) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer");
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let _ = std::fs::write(&answer, work().to_string());
            let _ = kill_process(getpid(), Signal::KILL);
            std::process::abort()
        }
        fork::Fork::Parent(child) => {
            let (ended, watch) = channel::<()>();
            thread::scope(|scope| {
                scope.spawn(move || {
                    if watch.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                        signal("-KILL", child.cast_unsigned());
                    }
                });
                fork::waitpid(child).unwrap();
                drop(ended);
            });
            std::fs::read_to_string(answer).ok()
        }
    }
}
