//! Promise: with TLS everything works as without. TLS errors contain what to do.

mod certificates;
mod handshakes;
mod one_server;
mod several_servers;

pub use certificates::open;

use crate::support::{self, Server, eventually};
use crate::tls_server::{Authority, Identity};

use luagate::errors::{CallError, Failure, FailureKind};
use luagate::{Gate, GateBuilder, Lease};
use std::time::{Duration, Instant};

/// Messages arrive within this time. A waiter that receives none asks again after 5 s.
const REPORTED: Duration = Duration::from_secs(3);

/// Gate settings with the CA and the client certificate.
fn both(url: &str, authority: &Authority, own: &Identity) -> GateBuilder {
    Gate::builder(url).root_certificates(&authority.pem).client_certificate(&own.chain, &own.key)
}

#[track_caller]
fn failure(opened: Result<Gate, CallError>) -> Failure {
    match opened {
        Err(CallError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// Asserts that opening fails with a TLS error that contains every one of `words`.
#[track_caller]
fn assert_reported(opened: Result<Gate, CallError>, words: &[&str]) {
    let failure = failure(opened);
    assert_eq!(failure.kind(), FailureKind::Tls, "{failure}");
    for word in words {
        assert!(failure.to_string().contains(word), "no {word} in: {failure}");
    }
}

/// Acquires, waits in line, is woken by a message, renews and counts down.
fn use_it(server: &Server, gate: &Gate) {
    let semaphore = gate.semaphore("all", 1).lease(Lease::fixed(Duration::from_secs(3)));
    let held = semaphore.clone().lease(Lease::renewed(Duration::from_secs(3))).try_acquire().unwrap();
    assert!(semaphore.try_acquire().is_err());
    let fence = held.fence();
    let granted = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (semaphore.acquire().unwrap(), Instant::now()));
        eventually("it waits", || (semaphore.inspect().unwrap().waiter_count == 1).then_some(()));
        let end = Instant::now() + Duration::from_millis(3_500);
        let kept = support::within(Duration::from_secs(4), || (Instant::now() > end).then_some(()));
        assert!(kept.is_some() && !held.is_lost(), "the permit was not renewed");
        assert!(!waiter.is_finished());
        let start = Instant::now();
        held.release().unwrap();
        let (granted, woken) = waiter.join().unwrap();
        assert!(woken - start < REPORTED, "{:?}", woken - start);
        granted
    });
    assert!(granted.fence() > fence);
    granted.refresh().unwrap();
    granted.release().unwrap();
    std::thread::scope(|scope| {
        let latch = gate.latch("all", 1);
        let waiter = scope.spawn({
            let latch = latch.clone();
            move || (latch.wait().unwrap(), Instant::now())
        });
        let mut con = server.connection();
        let waiters = format!("{}:latch.waiters:{{all}}", server.prefix);
        eventually("it waits", || {
            let count: i64 = redis::cmd("ZCARD").arg(&waiters).query(&mut con).unwrap();
            (count == 1).then_some(())
        });
        let start = Instant::now();
        latch.count_down().unwrap();
        assert!(waiter.join().unwrap().1 - start < REPORTED);
    });
}
