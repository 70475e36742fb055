//! Replies of the scripts, and of a cluster about its slots. Promise: a reply is an error, or is returned exactly as it is.

use super::resp::encode;
use operations::{OPERATIONS, run as run_operation};
use stand_in::{StandIn, reply, text};

#[path = "../../../contract/fuzz_replies/operations.rs"]
mod operations;
#[path = "../../../contract/fuzz_replies/stand_in.rs"]
mod stand_in;

use luagate::__proof::protocol::routing::{sentinel, slots};
use luagate::__proof::replies;
use redis::Value;
use std::time::Instant;

pub fn run(data: &[u8]) {
    for value in replies(data, data.len().max(1)).into_iter().flatten() {
        for (name, operation) in OPERATIONS {
            match run_operation(*operation, &mut StandIn::answering(&value)) {
                Ok(reported) if *name == "semaphore/inspect" => assert_eq!(reported, readable(&value), "{name}"),
                Ok(reported) => assert_eq!(reported, value, "{name}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        learn(value);
    }
}

/// As `inspect` lists ids: bytes that are not valid UTF-8 appear as the replacement character.
fn readable(value: &Value) -> Value {
    match value {
        Value::BulkString(bytes) => Value::BulkString(String::from_utf8_lossy(bytes).into_owned().into_bytes()),
        Value::Array(items) => Value::Array(items.iter().map(readable).collect()),
        other => other.clone(),
    }
}

/// The value as the answer of a node about the slots, as a redirection, and as the role of a server.
fn learn(value: Value) {
    let mut map = slots::SlotMap::new([("first".to_owned(), 1)]);
    if let Ok(ranges) = slots::read(value.clone()) {
        assert!(matches!(&value, Value::Array(rows) if rows.len() == ranges.len()));
        map.learn(0, ranges, Instant::now());
    }
    for key in [&encode(&value)[..], b"", b"{a}b"] {
        assert!(map.node_of(key) < map.nodes().len());
    }
    if let Value::BulkString(to) = &value {
        let to = String::from_utf8_lossy(to);
        let port = to.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match map.at(0, &to) {
            Ok(node) => assert_eq!(Some(map.nodes()[node].1), port),
            Err(failure) => assert!(port.is_none() && failure.to_string().contains("not an address")),
        }
    }
    let is_master = matches!(&value, Value::Array(parts) if parts.first() == Some(&text("master")));
    assert_eq!(sentinel::check_role("name", Ok(value)).is_ok(), is_master);
}
