//! Promise: at every grant the sum of all held permits is at most the limit.

use crate::support::Server;
use crate::support::raw::Raw;

use luagate::errors::TryAcquireError;
use luagate::scripts::semaphore::{AcquireAnswer, ResizeAnswer};

#[test]
fn a_lowered_limit_keeps_holders_and_blocks_grants_until_enough_are_released() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    for id in ["a", "b", "c"] {
        raw.grant(raw.ask(id));
    }
    let resized = raw.resize(1, None);
    assert_eq!(resized, ResizeAnswer::Resized { old: 3, new: 1, in_use: 3 });
    for id in ["a", "b"] {
        raw.assert_denied(raw.ask("d"));
        raw.assert_released(id);
    }
    raw.assert_denied(raw.ask("d"));
    assert!(
        matches!(raw.acquire(raw.ask("c")), AcquireAnswer::Held(..)),
        "a holder receives its grant again"
    );
    raw.assert_released("c");
    raw.grant(raw.ask("d"));
}

#[test]
fn a_partial_release_frees_the_given_number() {
    let server = Server::any();
    let gate = server.gate();
    let semaphore = gate.semaphore("partial", 5);
    let mut permit = semaphore.try_acquire_many(5).unwrap();
    permit.release_some(2).unwrap();
    assert_eq!(permit.permits(), 3);
    let two = semaphore.try_acquire_many(2).unwrap();
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Denied(_))));
    assert_eq!(semaphore.available_permits().unwrap(), 0);
    drop(two);
    assert_eq!(semaphore.available_permits().unwrap(), 2);
}

#[test]
fn acquiring_all_takes_all_free_permits() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("drain", 7);
    let two = semaphore.try_acquire_many(2).unwrap();
    let rest = semaphore.try_acquire_available().unwrap();
    assert_eq!((two.permits(), rest.permits()), (2, 5));
    let Err(TryAcquireError::Denied(denied)) = semaphore.try_acquire_available() else { panic!() };
    assert_eq!((denied.in_use, denied.limit), (7, 7));
}

#[test]
fn a_limit_of_an_unused_semaphore_is_removed_at_once_when_unpinned() {
    let server = Server::any();
    let semaphore = server.gate().semaphore("market", 5);
    semaphore.resize(2).unwrap();
    drop(semaphore.try_acquire().unwrap());
    semaphore.unpin_limit().unwrap();
    assert_eq!(semaphore.available_permits().unwrap(), 5); // the declared limit applies again
    let permit = semaphore.try_acquire_many(3).unwrap();
    assert_eq!(permit.limit(), Some(5));
}
