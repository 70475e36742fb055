//! RESP2, the protocol of Redis: commands that clients send, and replies as bytes.

use crate::reply::{Bytes, Reply};
use redis::Value;

/// The name and the arguments of a command. `None` if the value is not a command.
pub(crate) fn words(command: Value) -> Option<Vec<Bytes>> {
    let Value::Array(words) = command else {
        return None;
    };
    let words = words.into_iter().map(|word| match word {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    words.collect()
}

/// An error or a status is one line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// An error reply as an element of an array.
pub(crate) fn error_value(text: &str) -> Value {
    let mut packed = Vec::new();
    pack(&Err(text.to_owned()), &mut packed);
    redis::parse_redis_value(&packed).unwrap_or(Value::Nil)
}

/// Appends a reply.
pub(crate) fn pack(reply: &Reply, to: &mut Vec<u8>) {
    match reply {
        Err(text) => line(to, '-', one_line(text)),
        Ok(value) => pack_value(value, to),
    }
}

fn pack_value(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Int(number) => line(to, ':', number),
        Value::Okay => line(to, '+', "OK"),
        Value::SimpleString(text) => line(to, '+', text),
        Value::BulkString(bytes) => {
            line(to, '$', bytes.len());
            to.extend_from_slice(bytes);
            to.extend_from_slice(b"\r\n");
        }
        Value::Array(values) => {
            line(to, '*', values.len());
            for value in values {
                pack_value(value, to);
            }
        }
        _ => line(to, '$', -1),
    }
}

fn line(to: &mut Vec<u8>, sign: char, text: impl std::fmt::Display) {
    to.extend_from_slice(format!("{sign}{text}\r\n").as_bytes());
}
