//! Promise: a call distinguishes contention from an outage, and takes effect once although it was sent twice.

use super::MINUTE;
use crate::own;
use crate::support::Server;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;

use luagate::Released;
use luagate::errors::{AcquireError, TryAcquireError};
use std::time::{Duration, Instant};

#[test]
fn hole_07_contention_and_outage_are_the_same_error() {
    let mut server = own!(Server::private(&[]));
    let gate = server.gate();
    let semaphore = gate.semaphore("contended", 1);
    let permit = semaphore.acquire().unwrap();
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Denied(_))));
    assert!(matches!(semaphore.acquire_timeout(Duration::from_millis(5)), Err(AcquireError::TimedOut(_))));
    permit.release().unwrap();
    server.kill();
    assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Failed(_) | TryAcquireError::Unknown(_))));
    assert!(matches!(
        semaphore.acquire_timeout(Duration::from_millis(5)),
        Err(AcquireError::Failed(_) | AcquireError::Unknown(_))
    ));
}

#[test]
fn hole_11_the_token_is_forgotten_before_the_release_succeeded() {
    let (_server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 1).lease(MINUTE);
    semaphore.acquire().unwrap().release().unwrap();
    let permit = semaphore.acquire().unwrap();
    proxy.lose_replies(2);
    let error = permit.release().unwrap_err();
    // The server has already released it. The promise is that a retry works.
    assert_eq!(error.into_permit().release().unwrap(), Released::Gone);
}

#[test]
fn hole_12_a_fractional_ttl_fails_after_the_first_write() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let semaphore = server.gate().semaphore("raw", 1);
    let permit = semaphore.clone().lease(Duration::from_nanos(1_234_567_890)).acquire().unwrap();
    assert!(raw.ttls()[..2].iter().all(|ttl| *ttl > 0));
    permit.release().unwrap();
    let before = raw.dump();
    let mut eval = redis::cmd("EVALSHA");
    let manifest: serde_json::Value = serde_json::from_str(include_str!("../../../lua/manifest.json")).unwrap();
    eval.arg(manifest["scripts"]["semaphore/acquire"]["sha1"].as_str().unwrap()).arg(3);
    eval.arg(&raw.key_names()).arg(&["id", "1", "1", "1234.5", "0", "", "0"]);
    let error = eval.exec(&mut raw.con).unwrap_err();
    assert_eq!(error.code(), Some("LUAGATE"));
    assert_eq!(raw.dump(), before);
}

#[test]
fn hole_15_acquire_sent_twice_takes_two_permits() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 2);
    semaphore.acquire().unwrap().release().unwrap();
    proxy.lose_replies(1);
    let permit = semaphore.try_acquire().unwrap();
    assert_eq!(Raw::new(&server, 2).in_use(), 1);
    permit.release().unwrap();
    assert_eq!(Raw::new(&server, 2).in_use(), 0);
}

#[test]
fn hole_27_acquire_loops_for_ever_on_any_error() {
    let mut server = own!(Server::private(&[]));
    let semaphore = server.gate().semaphore("down", 1);
    drop(semaphore.acquire().unwrap());
    server.kill();
    let start = Instant::now();
    assert!(matches!(semaphore.acquire(), Err(AcquireError::Failed(_) | AcquireError::Unknown(_))));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn hole_33_a_partial_release_repeated_gives_back_twice() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let semaphore = gate.semaphore("raw", 5);
    semaphore.acquire().unwrap().release().unwrap();
    let mut permit = semaphore.acquire_many(5).unwrap();
    proxy.lose_replies(1);
    permit.release_some(2).unwrap();
    assert_eq!(permit.permits(), 3);
    assert_eq!(Raw::new(&server, 5).in_use(), 3);
}
