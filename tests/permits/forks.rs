//! Promise: a forked child does no harm with objects of its parent. Every call in the child returns at once.
#![cfg(unix)]

use crate::forked::in_child;
use crate::own;
use crate::support::raw::Raw;
use crate::support::stop::Stop;
use crate::support::{SOON, Server, eventually, within};

use luagate::errors::FailureKind;
use luagate::{Cancel, Error, Gate};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A property that must hold in the child, and its check.
type Check<'a> = (&'static str, &'a dyn Fn() -> bool);

/// Forks. Returns the first check that failed in the child, or that the child panicked or hung.
fn not_found(checks: &[Check]) -> Option<String> {
    let wrong = || checks.iter().find(|(_, check)| !check()).map_or("", |(what, _)| what).to_owned();
    let found = in_child(wrong).unwrap_or_else(|| "the child panicked or hung".to_owned());
    (!found.is_empty()).then_some(found)
}

fn is_forked(error: impl Into<Error>) -> bool {
    matches!(error.into(), Error::Failed(failure) if failure.kind() == FailureKind::Forked)
}

#[test]
fn calls_in_a_child_return_at_once_whatever_lock_its_parent_held() {
    let server = Server::any();
    let gate = server.gate();
    let cancel = Cancel::new();
    let semaphore = gate.semaphore("busy", 3).cancelled_by(&cancel);
    let permit = semaphore.acquire_many(2).unwrap();
    let stop = Stop::default();
    thread::scope(|scope| {
        let _stop = stop.at_end();
        // These threads take every lock again and again, so most forks happen while a lock is held.
        scope.spawn(|| {
            while !stop.is_set() {
                assert!(!permit.is_lost());
            }
        });
        scope.spawn(|| {
            while !stop.is_set() {
                drop(semaphore.acquire_timeout(Duration::from_secs(5)));
                assert!(!cancel.is_cancelled());
            }
        });
        let checks: &[Check] = &[
            ("the permit is lost", &|| permit.is_lost()),
            ("no time of the lease is left", &|| permit.remaining() == Some(Duration::ZERO)),
            ("it has no permits", &|| permit.permits() == 0),
            ("its text says lost", &|| format!("{permit} {permit:?}").contains("lost")),
            ("a handle created in the child is cancelled", &|| {
                cancel.cancel();
                cancel.is_cancelled()
            }),
            ("there are no warnings", &|| gate.warnings().is_empty()),
            ("an inspection is refused", &|| semaphore.available_permits().is_err_and(is_forked)),
            ("a call is refused", &|| semaphore.acquire().is_err_and(is_forked)),
        ];
        let wrong = (0..60).find_map(|_| not_found(checks));
        assert_eq!(wrong, None);
    });
    assert!(!cancel.is_cancelled(), "the parent's handle is not affected");
    permit.release().unwrap();
}

#[test]
fn a_child_does_not_run_its_parents_pending_releases() {
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
    drop(other); // the background release thread is busy with this one
    drop(first); // so this one is in its queue, in the parent and in the child's copy
    thread::scope(|scope| {
        let child = scope.spawn(|| {
            not_found(&[
                ("the parent holds the permit again", &|| within(SOON, || exists(&holds_again)).is_some()),
                ("a try is refused", &|| job.try_acquire().is_err_and(is_forked)),
                ("a try for several is refused", &|| job.try_acquire_available().is_err_and(is_forked)),
                ("a permit is not adopted", &|| job.adopt("worker-1").is_err_and(is_forked)),
            ])
        });
        thread::sleep(Duration::from_millis(100)); // the fork happens while the release is pending
        server.resume();
        let next = eventually("the permit is free again", || job.try_acquire().ok());
        std::fs::write(&holds_again, "").unwrap();
        assert_eq!(child.join().unwrap(), None);
        assert!(raw.holds("worker-1"));
        next.release().unwrap();
    });
}

fn exists(path: &Path) -> Option<()> {
    path.exists().then_some(())
}
