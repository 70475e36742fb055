//! Promise: a latch refuses invalid arguments and changes nothing.

use super::{MINUTE, Raw};
use crate::support::{Server, root};

use luagate::{CountDownLatch, Error};
use std::time::Duration;

/// Runs a script by its text, with arguments that no typed function would send.
fn call(raw: &mut Raw, script: &str, arguments: &[&str]) -> Result<redis::Value, String> {
    let text = std::fs::read_to_string(root().join(format!("lua/dist/{script}.lua"))).unwrap();
    let reply = redis::cmd("EVAL").arg(text).arg(2).arg(&raw.keys.names()).arg(arguments).query(&mut raw.con);
    reply.map_err(|error: redis::RedisError| {
        assert_eq!(error.code(), Some("LUAGATE"), "{error}");
        error.detail().unwrap().to_owned()
    })
}

#[test]
fn invalid_arguments_are_refused_and_create_no_latch() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    let mut refused = |script: &str, good: &[&str], at: usize, bad: &str, name: &str| {
        let mut arguments = good.to_vec();
        arguments[at] = bad;
        match call(&mut raw, script, &arguments) {
            Err(text) => assert!(text.starts_with(name), "{script} {arguments:?}: {text}"),
            Ok(reply) => panic!("{script} {arguments:?}: {reply:?}"),
        }
        assert_eq!(raw.dump(), [None, None], "{script} {arguments:?}");
    };
    let count_down = ["id", "3", "1000"];
    let wait = ["3", "1000", "0", ""];
    for bad in ["", "-1", "0x3", "1e0", " 2 ", "1.5", "+1", "nan"] {
        refused("latch/count_down", &count_down, 1, bad, "count");
        refused("latch/count_down", &count_down, 2, bad, "life_ms");
        refused("latch/wait", &wait, 0, bad, "count");
        refused("latch/wait", &wait, 1, bad, "life_ms");
        refused("latch/wait", &wait, 2, bad, "wait_ms");
    }
    for bad in ["0", "2147483648"] {
        refused("latch/count_down", &count_down, 1, bad, "count");
        refused("latch/wait", &wait, 0, bad, "count");
    }
    for bad in ["0", "3155760000001"] {
        refused("latch/count_down", &count_down, 2, bad, "life_ms");
        refused("latch/wait", &wait, 1, bad, "life_ms");
    }
    refused("latch/wait", &wait, 2, "86400001", "wait_ms");
    let long = "x".repeat(301);
    for bad in ["", "a b", "a\n", &long[..201]] {
        refused("latch/count_down", &count_down, 0, bad, "id");
    }
    for bad in ["a b", "a\n", &long] {
        refused("latch/wait", &wait, 3, bad, "inbox");
    }
    for (script, arguments) in
        [("latch/count_down", &count_down[..2]), ("latch/wait", &wait[..3]), ("latch/count", &["x"])]
    {
        let error = call(&mut raw, script, arguments).unwrap_err();
        assert!(error.starts_with("arguments"), "{script}: {error}");
    }
    assert_eq!(raw.dump(), [None, None]);
    // The calls without the bad value are valid.
    call(&mut raw, "latch/count_down", &count_down).unwrap();
    call(&mut raw, "latch/wait", &wait).unwrap();
}

#[test]
fn invalid_arguments_leave_a_latch_unchanged() {
    let server = Server::any();
    let mut raw = Raw::new(&server, 3);
    raw.count_down("a");
    raw.wait_closed(60_000, "x");
    let before = raw.dump();
    for (script, arguments) in [
        ("latch/count_down", &["a b", "3", "1000"][..]),
        ("latch/count_down", &["b", "0", "1000"]),
        ("latch/wait", &["3", "0", "0", ""]),
        ("latch/wait", &["3", "1000", "1000", "a b"]),
        ("latch/count", &["x"]),
    ] {
        assert!(call(&mut raw, script, arguments).is_err(), "{script} {arguments:?}");
    }
    assert_eq!(raw.dump(), before);
}

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
        invalid(latch.count().map(drop).map_err(Error::from), what);
        invalid(latch.wait().map_err(Error::from), what);
        invalid(latch.wait_timeout(MINUTE).map_err(Error::from), what);
    };
    for name in ["", "a b", "a{b", "{}:a"] {
        all(gate.latch(name, 1), "name");
    }
    for count in [0, 1 << 31, u32::MAX] {
        all(gate.latch("a", count), "count");
    }
    for life in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(3_155_760_000_001), Duration::MAX] {
        all(gate.latch("a", 1).life(life), "life");
    }
    let latch = gate.latch("a", 1);
    invalid(latch.wait_timeout(Duration::ZERO).map_err(Error::from), "timeout");
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
