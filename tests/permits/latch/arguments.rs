//! Promise: a latch refuses invalid settings before anything is sent.

use super::MINUTE;
use crate::support::Server;

use luagate::{CountDownLatch, Error};
use std::time::Duration;

#[test]
fn invalid_settings_of_a_latch_are_refused() {
    let server = Server::any();
    let gate = server.gate();
    let invalid = |result: Result<(), Error>, what: &str| match result {
        Err(Error::Invalid(invalid)) => assert_eq!(invalid.what(), what),
        other => panic!("expected {what} to be invalid, got {other:?}"),
    };
    let all = |latch: CountDownLatch, what: &str| {
        invalid(latch.count_down().map(drop).map_err(Error::from), what);
        invalid(latch.left().map(drop).map_err(Error::from), what);
        invalid(latch.wait().map_err(Error::from), what);
        invalid(latch.wait_timeout(MINUTE).map_err(Error::from), what);
    };
    for name in ["", "a b", "a{b", "{}:a"] {
        all(gate.latch(name, 1), "name");
    }
    for count in [0, 1 << 31, u32::MAX] {
        all(gate.latch("a", count), "count");
    }
    for life in
        [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(3_155_760_000_001), Duration::MAX]
    {
        all(gate.latch("a", 1).life(life), "life");
    }
    let latch = gate.latch("a", 1);
    for id in ["", "a b", &"x".repeat(201)] {
        invalid(latch.count_down_as(id).map(drop).map_err(Error::from), "id");
    }
    assert!(server.all_keys().is_empty());
    let grouped = gate.latch("{builds}:17", i32::MAX as u32);
    let grouped = grouped.life(Duration::from_millis(3_155_760_000_000));
    assert_eq!(grouped.count_down().unwrap(), i32::MAX as u32 - 1);
    assert_eq!(grouped.name(), "{builds}:17");
    gate.latch("forever", 1).count_down().unwrap();
    gate.latch("forever", 1).wait_timeout(Duration::MAX).unwrap();
}
