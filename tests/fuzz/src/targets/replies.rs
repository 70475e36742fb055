//! Replies of the scripts, and of a cluster about its slots. Promise: a reply is an error, or is returned
//! exactly as it is.

use super::resp::encode;
use operations::{OPERATIONS, run as run_operation};
use stand_in::{StandIn, reply, text};

#[path = "../../../contract/fuzz_replies/operations.rs"]
mod operations;
#[path = "../../../contract/fuzz_replies/stand_in.rs"]
mod stand_in;

use luagate_core::failure::Reason;
use luagate_core::parser::read;
use luagate_core::routing::{sentinel, slots};
use luagate_core::value::Value as Reply;
use redis::Value;
use std::time::Instant;

pub fn run(data: &[u8]) {
    for reply in read(data, data.len().max(1)).into_iter().flatten() {
        let value = to_redis(&reply);
        for (name, operation) in OPERATIONS {
            match run_operation(*operation, &mut StandIn::answering(&value)) {
                Ok(reported) if *name == "semaphore/inspect" => {
                    assert_eq!(reported, readable(&value), "{name}")
                }
                Ok(reported) => assert_eq!(reported, value, "{name}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        learn(reply);
    }
}

/// As a client of `redis` receives it.
fn to_redis(reply: &Reply) -> Value {
    match reply {
        Reply::Nil => Value::Nil,
        Reply::Int(number) => Value::Int(*number),
        Reply::BulkString(bytes) => Value::BulkString(bytes.clone()),
        Reply::SimpleString(text) if text == "OK" => Value::Okay,
        Reply::SimpleString(text) => Value::SimpleString(text.clone()),
        Reply::Array(items) => Value::Array(items.iter().map(to_redis).collect()),
        Reply::Error(refusal) => {
            redis::parse_redis_value(format!("-{refusal}\r\n").as_bytes()).unwrap_or(Value::Nil)
        }
    }
}

/// As `inspect` lists ids: bytes that are not valid UTF-8 appear as the replacement character.
fn readable(value: &Value) -> Value {
    match value {
        Value::BulkString(bytes) => {
            Value::BulkString(String::from_utf8_lossy(bytes).into_owned().into_bytes())
        }
        Value::Array(items) => Value::Array(items.iter().map(readable).collect()),
        other => other.clone(),
    }
}

/// The value as the answer of a node about the slots, as a redirection, and as the role of a server.
fn learn(value: Reply) {
    let mut map = slots::SlotMap::new([("first".to_owned(), 1)]);
    if let Ok(ranges) = slots::read(value.clone()) {
        assert!(matches!(&value, Reply::Array(rows) if rows.len() == ranges.len()));
        map.learn(0, ranges, Instant::now());
    }
    for key in [&encode(&value)[..], b"", b"{a}b"] {
        assert!(map.node_of(key) < map.nodes().len());
    }
    if let Reply::BulkString(to) = &value {
        let to = String::from_utf8_lossy(to);
        let port = to.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match map.at(0, &to) {
            Ok(node) => assert_eq!(Some(map.nodes()[node].1), port),
            Err(failure) => assert!(port.is_none() && matches!(failure.reason(), Reason::NoAddress(_))),
        }
    }
    let is_master = matches!(&value, Reply::Array(parts) if parts.first() == Some(&Reply::BulkString(b"master".to_vec())));
    assert_eq!(sentinel::check_role("name", Ok(value)).is_ok(), is_master);
}
