//! Promise: each id counts once, however often a call is repeated. The first call stores the count.

use super::Raw;
use crate::forked::in_child;
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::{Server, process};

use luagate::errors::{CallError, FailureKind};
use luagate::{Error, Gate};
use redis::Commands;
use std::time::Duration;

#[test]
fn the_first_call_stores_the_count() {
    let server = Server::any();
    let gate = server.gate();
    let raw = Raw::new(&server, 3);
    let waited = gate.latch("raw", 3).wait_timeout(Duration::from_millis(50));
    assert!(waited.is_err());
    assert_eq!(gate.latch("raw", 1).count_down().unwrap(), 2);
    assert_eq!(gate.latch("raw", 9).left().unwrap(), 2);
    let mut other = Raw { count: 1, ..raw };
    assert_eq!(other.wait_closed(0, "").0, 2);
}

#[test]
fn a_count_down_with_a_lost_reply_counts_once() {
    let (server, proxy, gate) = own!(Proxy::with_gate());
    let latch = gate.latch("raw", 3);
    assert_eq!(latch.left().unwrap(), 3);
    proxy.lose_replies(1);
    assert_eq!(latch.count_down().unwrap(), 2);
    assert!(proxy.is_done());
    // Both replies are lost, and then the caller retries.
    proxy.lose_replies(2);
    let lost = latch.count_down_as("me");
    assert!(matches!(lost, Err(CallError::Unknown(_))), "{lost:?}");
    assert_eq!(latch.count_down_as("me").unwrap(), 1);
    drop(server);
}

#[test]
fn a_worker_that_crashed_and_runs_again_counts_once() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 2);
    for _ in 0..2 {
        let arguments = [&*server.url, &*server.prefix, "part-1"];
        let mut child = process("crash", &arguments);
        let status = child.stderr(std::process::Stdio::null()).status().unwrap();
        assert!(!status.success());
        assert_eq!(latch.left().unwrap(), 1);
    }
}

#[test]
fn each_call_without_an_id_counts() {
    let server = Server::any();
    let gate = Gate::builder(&server.url).prefix(&server.prefix).label("worker").open().unwrap();
    let latch = gate.latch("raw", 3);
    assert_eq!(latch.count_down().unwrap(), 2);
    assert_eq!(latch.clone().count_down().unwrap(), 1);
    let mut raw = Raw::new(&server, 3);
    let fields: Vec<String> = raw.con.hkeys(raw.keys.list()[0]).unwrap();
    let labelled = fields.iter().filter(|id| id.starts_with("worker/"));
    assert_eq!(labelled.count(), 2, "{fields:?}");
}

#[test]
fn a_forked_child_neither_counts_nor_waits() {
    let server = Server::any();
    let latch = server.gate().latch("raw", 1);
    assert!(latch.wait_timeout(Duration::from_millis(50)).is_err());
    let forked =
        |error: Error| matches!(error, Error::Failed(failure) if failure.kind() == FailureKind::Forked);
    let refused = in_child(|| {
        latch.count_down().is_err_and(|error| forked(error.into()))
            && latch.left().is_err_and(|error| forked(error.into()))
            && latch.wait().is_err_and(|error| forked(error.into()))
    });
    assert_eq!(refused.as_deref(), Some("true"));
    assert_eq!(latch.left().unwrap(), 1);
}
