//! Promise: a wait for a latch goes on after an outage of the server, and a server that stays away is told as an error.

use super::{MINUTE, RECHECK, Raw, waiter, with_deaf_gate};
use crate::own;
use crate::support::{Server, command_counts, eventually};

use luagate::Gate;
use luagate::errors::WaitError;
use std::time::{Duration, Instant};

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 2);
    let mut raw = Raw::new(&server, 2);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        raw.await_waiters(1);
        raw.count_down("a");
        server.kill();
        server.start_again();
        // The server forgot everything. Who counted with an id of its own may do so again.
        raw.con = server.connection();
        raw.await_waiters(1);
        assert_eq!(raw.count_down("a"), 1);
        let start = Instant::now();
        assert_eq!(raw.count_down("b"), 0);
        assert!(waiting.join().unwrap().unwrap() - start < RECHECK);
    });
}

#[test]
fn a_wait_outlives_an_outage_in_which_it_asks() {
    let (mut server, deaf) = own!(with_deaf_gate());
    let latch = deaf.latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = waiter(scope, &latch);
        // It asks once a second: whoever asks again has had its answer.
        let mut con = server.connection();
        eventually("it asks again", || {
            let asked = command_counts(&mut con).get("evalsha").copied();
            (asked >= Some(3)).then_some(())
        });
        server.kill();
        // Longer than until it asks next.
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!waiting.is_finished());
        server.start_again();
        Raw::new(&server, 1).count_down("a");
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_that_stays_away_is_told_as_such() {
    let mut server = own!(Server::private(&[]));
    let gate = Gate::builder(&server.url).prefix(&server.prefix).outage(Duration::from_millis(300)).open().unwrap();
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
    // Who was never answered does not wait for the server.
    let start = Instant::now();
    assert!(patient.wait_timeout(MINUTE).is_err());
    assert!(start.elapsed() < Duration::from_secs(2));
}
