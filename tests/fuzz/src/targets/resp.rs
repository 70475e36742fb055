//! Replies in the format of the server. Promise: the same values however the bytes are cut, and the same as
//! `redis` reads. What is no reply is an error.

use crate::seeds;
use luagate_core::parser::read;
use luagate_core::value::{Refusal, Value};

/// The first byte: the length of the pieces in which the others arrive.
pub fn run(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let cut = read(bytes, usize::from(*piece).max(1));
    assert_eq!(whole.is_ok(), cut.is_ok(), "{whole:?} or {cut:?}");
    let (Ok(whole), Ok(cut)) = (whole, cut) else { return };
    assert_eq!(whole, cut);
    if let Some(first) = whole.first() {
        match redis::parse_redis_value(bytes) {
            Ok(value) => assert_eq!(&of_redis(value), first),
            Err(error) => assert!(has_error(first), "{error}"), // it refuses an error that is no UTF-8
        }
    }
    for value in whole.iter().filter(|value| !has_error(value)) {
        assert_eq!(read(&encode(value), 7).ok(), Some(vec![value.clone()]));
    }
}

fn of_redis(value: redis::Value) -> Value {
    match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::BulkString(bytes),
        redis::Value::Array(values) => Value::Array(values.into_iter().map(of_redis).collect()),
        redis::Value::Okay => Value::SimpleString("OK".to_owned()),
        redis::Value::SimpleString(text) => Value::SimpleString(text),
        redis::Value::ServerError(error) => {
            let detail = error.details().map(|detail| format!(" {detail}")).unwrap_or_default();
            Value::Error(Refusal::read(&format!("{}{detail}", error.code())))
        }
        other => panic!("{other:?} is not of RESP2"),
    }
}

fn has_error(value: &Value) -> bool {
    match value {
        Value::Error(_) => true,
        Value::Array(items) => items.iter().any(has_error),
        _ => false,
    }
}

/// A value in the format of the server, without its errors.
pub fn encode(value: &Value) -> Vec<u8> {
    match value {
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::BulkString(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        Value::Array(items) => {
            let items = items.iter().flat_map(encode);
            format!("*{}\r\n", items_of(value)).into_bytes().into_iter().chain(items).collect()
        }
        Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
        _ => b"$-1\r\n".to_vec(),
    }
}

fn items_of(value: &Value) -> usize {
    if let Value::Array(items) = value { items.len() } else { 0 }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let other = [
        "+OK\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n*0\r\n*2\r\n$-1\r\n:9223372036854775807\r\n*-1\r\n+PONG\r\n",
        "-NOSCRIPT No matching script.\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$13\r\nid 1 9 -1 100\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "$536870912\r\nx",
        "*9223372036854775807\r\n:1\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ];
    let other = other.iter().map(|text| text.as_bytes().to_vec());
    let all = seeds::replies().into_iter().chain(other);
    all.map(|bytes| [&[7], bytes.as_slice()].concat()).collect()
}
