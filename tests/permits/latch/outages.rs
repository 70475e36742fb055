//! Promise: a wait for a latch continues after an outage. A server that stays unreachable is reported as an
//! error.

use super::{MINUTE, RECHECK, Raw, waiter, with_deaf_gate};
use crate::own;
use crate::support::{Server, command_counts, eventually};

use luagate::Gate;
use luagate::errors::WaitError;
use std::time::{Duration, Instant};

#[test]
fn a_wait_for_a_latch_continues_after_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 2);
    let mut raw = Raw::new(&server, 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        raw.count_down("a");
        server.kill();
        server.start_again();
        // The server lost all data. An own id that has counted can count again.
        raw.con = server.connection();
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let start = Instant::now();
        assert_eq!(raw.count_down("b"), 0);
        assert!(waiting.join().unwrap().unwrap() - start < RECHECK);
    });
}

#[test]
fn a_wait_for_a_latch_continues_after_an_outage() {
    let (mut server, deaf) = own!(with_deaf_gate());
    let latch = deaf.latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        // The waiter asks every second. If it asks again, it has received the previous reply.
        let mut con = server.connection();
        eventually("the waiter asks again", || {
            let asked = command_counts(&mut con).get("evalsha").copied();
            (asked >= Some(3)).then_some(())
        });
        server.kill();
        // Longer than the pause until its next call.
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!waiting.is_finished());
        server.start_again();
        Raw::new(&server, 1).count_down("a");
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_that_stays_unreachable_ends_the_wait_with_an_error() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url)
        .prefix(&server.prefix)
        .outage_timeout(Duration::from_millis(300))
        .open()
        .unwrap();
    let latch = gate.latch("raw", 1);
    let patient = server.gate().latch("raw", 1);
    let mut raw = Raw::new(&server, 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait());
        raw.await_waiters(1);
        let start = Instant::now();
        server.kill();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, WaitError::Failed(_) | WaitError::Unknown(_)), "{error}");
        assert!(start.elapsed() < RECHECK);
    });
    // A gate without any earlier reply does not wait for the server.
    let start = Instant::now();
    assert!(patient.wait_timeout(MINUTE).is_err());
    assert!(start.elapsed() < Duration::from_secs(2));
}
