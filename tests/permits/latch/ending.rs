//! Promise: a wait for a latch ends at its timeout or cancellation, and reports the remaining count.

use super::{Raw, lose_message, waiter};
use crate::own;
use crate::support::{SOON, Server, assert_in_time, command_counts, eventually};

use luagate::Cancel;
use luagate::errors::{StillClosed, WaitError};
use std::time::{Duration, Instant};

#[test]
fn a_timeout_is_kept_within_50_ms() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 3);
    latch.count_down().unwrap();
    let timeout = Duration::from_millis(120);
    assert_in_time(Duration::from_millis(50), || {
        let start = Instant::now();
        let error = latch.wait_timeout(timeout).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timed out at the latch: 2 of 3 must still count down. Call again to wait again, or use a longer timeout"
        );
        start.elapsed().checked_sub(timeout).expect("it timed out too early")
    });
}

#[test]
fn a_wait_asks_once_more_at_its_end() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let latch = server.gate().latch("raw", 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_secs(1)));
        raw.await_waiters(1);
        lose_message(&mut raw);
        raw.count_down("a");
        assert!(waiting.join().unwrap().is_ok());
    });
}

#[test]
fn a_wait_for_a_latch_can_be_cancelled_from_another_thread() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 1);
    let stop = Cancel::new();
    let latch = server.gate().latch("raw", 1).cancelled_by(&stop);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..5).map(|_| waiter(scope, &latch)).collect();
        raw.await_waiters(1);
        let start = Instant::now();
        stop.cancel();
        for waiting in waiters {
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, WaitError::Cancelled(_)), "{error:?}");
        }
        assert!(start.elapsed() < SOON, "they waited on");
    });
    assert!(matches!(latch.wait(), Err(WaitError::Cancelled(_))));
    assert_eq!(latch.count_down().unwrap(), 0, "cancelling does not affect counting");
}

#[test]
fn a_server_that_stalls_at_the_end_of_a_wait_makes_it_time_out() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 2);
    let mut raw = Raw::new(&server, 2);
    std::thread::scope(|scope| {
        let start = Instant::now();
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_millis(700)));
        raw.await_waiters(1);
        server.pause();
        let outcome = waiting.join().unwrap();
        server.resume();
        assert!(matches!(outcome, Err(WaitError::StillClosed(StillClosed { left: 2, .. }))), "{outcome:?}");
        assert!(start.elapsed() < SOON, "it did not time out");
    });
}

#[test]
fn a_timed_out_wait_reports_the_last_known_count() {
    let mut server = own!(Server::private(&[]));
    let latch = server.gate().latch("raw", 3);
    let mut raw = Raw::new(&server, 3);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait_timeout(Duration::from_secs(3)));
        raw.await_waiters(1);
        for left in [2, 1] {
            assert_eq!(raw.count_down(&format!("id-{left}")), left);
            let asked = |raw: &mut Raw| command_counts(&mut raw.con)["evalsha"];
            let before = asked(&mut raw);
            raw.call_waiters();
            eventually("it asks", || (asked(&mut raw) > before).then_some(()));
            asked(&mut raw); // by now the first call has its reply too
        }
        server.pause();
        let outcome = waiting.join().unwrap();
        server.resume();
        assert!(matches!(outcome, Err(WaitError::StillClosed(StillClosed { left: 1, .. }))), "{outcome:?}");
    });
}
