//! Promise: a forked child does no harm with what its parent opened. Every call of it returns at once.
#![cfg(unix)]

use crate::own;
use crate::support::raw::Raw;
use crate::support::{SOON, Server, eventually, signal};

use luagate::errors::FailureKind;
use luagate::{Cancel, Error, Gate};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Forks. Returns whether the child ended in time and `check` was true in it; a child that hangs is killed.
fn child_finds(check: impl FnOnce() -> bool) -> bool {
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let found = check();
            std::process::exit(if found { 0 } else { 1 });
        }
        fork::Fork::Parent(child) => {
            let (ended, watch) = channel::<()>();
            thread::scope(|scope| {
                scope.spawn(move || {
                    if watch.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                        signal("-KILL", child.cast_unsigned());
                    }
                });
                let status = fork::waitpid(child).unwrap();
                drop(ended);
                status == 0
            })
        }
    }
}

fn is_forked(error: impl Into<Error>) -> bool {
    matches!(error.into(), Error::Failed(failure) if failure.kind() == FailureKind::Forked)
}

#[test]
fn a_child_returns_at_once_whatever_lock_a_thread_of_its_parent_held() {
    let server = Server::any();
    let gate = server.gate();
    let cancel = Cancel::new();
    let semaphore = gate.semaphore("busy", 3).cancelled_by(&cancel);
    let permit = semaphore.acquire_many(2).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // These take every lock over and over, so most forks happen while one is held.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(!permit.is_lost());
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(semaphore.acquire_timeout(Duration::from_secs(5)));
                assert!(!cancel.is_cancelled());
            }
        });
        let fine = (0..60).all(|_| {
            child_finds(|| {
                let looks_lost = permit.is_lost() && permit.remaining() == Some(Duration::ZERO);
                let shows = format!("{permit} {permit:?}");
                cancel.cancel();
                looks_lost
                    && permit.permits() == 0
                    && shows.contains("lost")
                    && cancel.is_cancelled()
                    && gate.open_connections() == 0
                    && gate.warnings().is_empty()
                    && semaphore.available_permits().is_err_and(is_forked)
                    && semaphore.acquire().is_err_and(is_forked)
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(fine, "a child hung, or was told something else");
    });
    assert!(!cancel.is_cancelled(), "the parent's handle is its own");
    permit.release().unwrap();
}

#[test]
fn a_child_releases_nothing_that_its_parent_was_about_to_release() {
    let mut server = own!(Server::private(&[]));
    let mut raw = Raw::named(&server, "job", 1);
    let builder = Gate::builder(&server.url).prefix(&server.prefix);
    let builder = builder.read_timeout(Duration::from_millis(500));
    let gate = builder.open().unwrap();
    let job = gate.semaphore("job", 1).id("worker-1");
    let (other, first) = (gate.mutex("other").lock().unwrap(), job.acquire().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let holds_again = folder.path().join("holds again");
    server.pause();
    drop(other); // the thread for pending releases is busy with this one
    drop(first); // so this one is in its queue, here and in the child's copy
    thread::scope(|scope| {
        let child = scope.spawn(|| {
            child_finds(|| {
                eventually("the parent holds again", || exists(&holds_again));
                job.try_acquire().is_err_and(is_forked)
                    && job.try_acquire_all().is_err_and(is_forked)
                    && job.adopt("worker-1").is_err_and(is_forked)
            })
        });
        thread::sleep(Duration::from_millis(100)); // the child is born while the release is pending
        server.resume();
        let next = eventually("it is free again", || job.try_acquire().ok());
        std::fs::write(&holds_again, "").unwrap();
        assert!(child.join().unwrap(), "the child was not refused");
        assert!(raw.holds("worker-1"));
        next.release().unwrap();
    });
}

fn exists(path: &Path) -> Option<()> {
    path.exists().then_some(())
}
